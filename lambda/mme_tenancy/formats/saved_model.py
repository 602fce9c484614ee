"""TensorFlow: one SavedModel in a folder with a numeric version.

Sources: tensorflow/core/protobuf/{saved_model,meta_graph}.proto, framework/{graph,function,node_def}.proto; TensorFlow's SECURITY.md:
models are programs. The operations that read or write files or call Python are refused.
"""

from __future__ import annotations

import re

from mme_tenancy.findings import Findings
from mme_tenancy.formats.content import Content, ContentFault, Parser, Pull
from mme_tenancy.formats.protobuf import VARINT, Field, Messages, protobuf
from mme_tenancy.formats.shape import File, leaves_the_archive, note_requirements, refuse_code

__all__ = ["SavedModel", "TensorFlowShape", "is_version"]

_MESSAGES: Messages = {
    "SavedModel": {1: Field("schema_version", VARINT), 2: Field("meta_graph", message="MetaGraph")},
    "MetaGraph": {2: Field("graph_def", message="Graph"), 6: Field("asset", message="Asset")},
    "Asset": {2: Field("filename", keep_bytes=4096)},
    "Graph": {1: Field("node", message="Node"), 2: Field("library", message="Library")},
    "Library": {1: Field("function", message="Function")},
    "Function": {3: Field("node_def", message="Node")},
    "Node": {2: Field("op", keep_bytes=1024)},
}
_UNSAFE_OPERATIONS = frozenset({b"ReadFile", b"WriteFile", b"MatchingFiles", b"PyFunc", b"PyFuncStateless", b"EagerPyFunc", b"PrintV2"})
_SHARD = re.compile(r"variables\.data-([0-9]{5})-of-([0-9]{5})")
_FILE = "saved_model.pb"


def is_version(name: str) -> bool:
    """Whether a folder's name is a version: a number from 1 on, as TensorFlow Serving and Triton read it."""
    return name.isascii() and name.isdigit() and len(name) <= 18 and int(name) > 0


class SavedModel:
    """The content of ``saved_model.pb``.

    Args:
        size_bytes: the file's size.
    """

    def __init__(self, size_bytes: int) -> None:
        self._pull = Pull(self._parser(size_bytes))
        self._graphs = 0

    def feed(self, data: memoryview) -> None:
        """Take the next bytes; raises `ContentFault`."""
        self._pull.feed(data)

    def close(self) -> None:
        """There are no more bytes; raises `ContentFault` unless it was a whole SavedModel."""
        self._pull.close()
        if not self._graphs:
            raise ContentFault("the file is no SavedModel: it has no graph")

    def _parser(self, size_bytes: int) -> Parser:
        yield from protobuf(_MESSAGES, "SavedModel", size_bytes, self._note)

    def _note(self, name: str, value: bytes) -> None:
        if name == "MetaGraph.graph_def":
            self._graphs += 1
        elif name == "Node.op" and value in _UNSAFE_OPERATIONS:
            raise ContentFault(f"the graph has the operation {value.decode()}, which reaches out of the model", "code")
        elif name == "Asset.filename" and leaves_the_archive(value.decode("utf-8", "replace")):
            raise ContentFault(f"its asset {value[:80]!r} lies outside the archive")


class TensorFlowShape:
    """The rules of a SavedModel's archive: ``1/saved_model.pb`` or ``name/1/saved_model.pb``, and its variables, whole."""

    content_rule = "tensorflow-model"

    def __init__(self) -> None:
        self._models: dict[tuple[str, ...], str] = {}
        self._misplaced: str | None = None
        self._paths: dict[tuple[str, ...], str] = {}

    def file(self, file: File, findings: Findings) -> Content | None:
        """Look at a file."""
        if refuse_code(file, findings):
            return None
        note_requirements(file, findings)
        self._paths[file.parts] = file.name
        if file.parts[-1] != _FILE:
            return None
        folder = file.parts[:-1]
        if not 1 <= len(folder) <= 2 or not is_version(folder[-1]):
            self._misplaced = file.name
            return None
        self._models[folder] = file.name
        return SavedModel(file.size_bytes)

    def folder(self, parts: tuple[str, ...]) -> None:
        """Folders are harmless."""

    def finish(self, findings: Findings) -> None:
        """Note a missing, misplaced or second model, and missing variables."""
        if not self._models:
            detail = f"the archive has no <version>/{_FILE}, where the version is a number from 1 on"
            findings.add("tensorflow-model", self._misplaced or f"1/{_FILE}", detail)
        if len({folder[:-1] for folder in self._models}) > 1:
            findings.add("tensorflow-model", [*self._models.values()][-1], "the archive has SavedModels in several folders")
        for folder, name in self._models.items():
            self._check_variables((*folder, "variables"), name, findings)

    def _check_variables(self, folder: tuple[str, ...], name: str, findings: Findings) -> None:
        files = {parts[-1] for parts in self._paths if parts[:-1] == folder}
        shards = [match for match in map(_SHARD.fullmatch, files) if match]
        if not shards and "variables.index" not in files:
            return  # a model without variables
        counts = {int(match[2]) for match in shards}
        complete = len(counts) == 1 and {int(match[1]) for match in shards} == set(range(min(len(shards), *counts)))
        if "variables.index" not in files or not complete or len(shards) not in counts:
            findings.add("tensorflow-model", name, "its variables are not complete: variables.index or a part of variables.data is missing")
