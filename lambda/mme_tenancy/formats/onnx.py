"""ONNX: one model file at the root, and the external data that it names beside it.

Sources: onnx/onnx.proto (``ModelProto``, ``GraphProto``, ``TensorProto``) and "ONNX External Data", whose locations are relative
paths that must not leave the model's folder.
"""

from __future__ import annotations

from collections.abc import Mapping

from mme_tenancy.findings import Findings
from mme_tenancy.formats.content import Content, ContentFault, Parser, Pull
from mme_tenancy.formats.protobuf import VARINT, Field, Messages, protobuf
from mme_tenancy.formats.shape import File, leaves_the_archive, note_requirements, refuse_code, report_missing

__all__ = ["OnnxModel", "OnnxShape"]

_MAX_LOCATIONS = 1000
_MESSAGES: Messages = {
    "Model": {
        1: Field("ir_version", VARINT),
        7: Field("graph", message="Graph"),
        8: Field("opset_import"),
        20: Field("training_info", message="Training"),
        25: Field("functions", message="Function"),
    },
    "Graph": {
        1: Field("node", message="Node"),
        5: Field("initializer", message="Tensor"),
        12: Field("output"),
        15: Field("sparse_initializer", message="SparseTensor"),
    },
    "Node": {5: Field("attribute", message="Attribute")},
    "Attribute": {
        5: Field("t", message="Tensor"),
        6: Field("g", message="Graph"),
        10: Field("tensors", message="Tensor"),
        11: Field("graphs", message="Graph"),
        22: Field("sparse_tensor", message="SparseTensor"),
        23: Field("sparse_tensors", message="SparseTensor"),
    },
    "Tensor": {13: Field("external_data", message="Entry")},
    "SparseTensor": {1: Field("values", message="Tensor"), 2: Field("indices", message="Tensor")},
    "Entry": {1: Field("key", keep_bytes=1024), 2: Field("value", keep_bytes=4096)},
    "Function": {7: Field("node", message="Node")},
    "Training": {1: Field("initialization", message="Graph"), 2: Field("algorithm", message="Graph")},
}
_NEEDED: Mapping[str, str] = {
    "Model.ir_version": "no IR version",
    "Model.opset_import": "no operator set",
    "Model.graph": "no graph",
    "Graph.output": "a graph without outputs",
}


class OnnxModel:
    """The content of an ``.onnx`` file.

    Args:
        size_bytes: the file's size.
    """

    def __init__(self, size_bytes: int) -> None:
        self._pull = Pull(self._parser(size_bytes))
        self._seen: set[str] = set()
        self._entry = (b"", b"")
        self.locations: set[str] = set()
        """Paths of external data, relative to the model's folder."""

    def feed(self, data: memoryview) -> None:
        """Take the next bytes; raises `ContentFault`."""
        self._pull.feed(data)

    def close(self) -> None:
        """There are no more bytes; raises `ContentFault` unless it was a whole model."""
        self._pull.close()
        for name, lack in _NEEDED.items():
            if name not in self._seen:
                raise ContentFault(f"the file is no ONNX model: it has {lack}")

    def _parser(self, size_bytes: int) -> Parser:
        yield from protobuf(_MESSAGES, "Model", size_bytes, self._note)

    def _note(self, name: str, value: bytes) -> None:
        if name in _NEEDED:
            self._seen.add(name)
        elif name == "Tensor.external_data":
            self._entry = (b"", b"")
        elif name in {"Entry.key", "Entry.value"}:  # in either order
            key, text = self._entry
            self._entry = (value, text) if name == "Entry.key" else (key, value)
            if self._entry[0] == b"location" and self._entry[1]:
                self._locate(self._entry[1])

    def _locate(self, value: bytes) -> None:
        try:
            location = value.decode()
        except UnicodeDecodeError:
            raise ContentFault("the location of external data is not UTF-8") from None
        if not location or leaves_the_archive(location):
            raise ContentFault(f"its external data lie at {location[:80]!r}, outside the archive")
        if len(self.locations) >= _MAX_LOCATIONS:
            raise ContentFault(f"its external data lie in more than {_MAX_LOCATIONS} files")
        self.locations.add("/".join(part for part in location.split("/") if part not in {"", "."}))


class OnnxShape:
    """The rules of an ONNX archive."""

    content_rule = "onnx-model"

    def __init__(self) -> None:
        self._model: OnnxModel | None = None
        self._model_name = ""
        self._inside: str | None = None
        self._paths: set[str] = set()

    def file(self, file: File, findings: Findings) -> Content | None:
        """Look at a file."""
        if refuse_code(file, findings):
            return None
        self._paths.add(file.path)
        note_requirements(file, findings)
        if file.suffix != ".onnx":
            return None
        if len(file.parts) > 1:
            self._inside = file.name
            return None
        if self._model is not None:
            findings.add("onnx-model", file.name, f"the root holds two models, this one and {self._model_name}")
            return None
        self._model, self._model_name = OnnxModel(file.size_bytes), file.name
        return self._model

    def folder(self, parts: tuple[str, ...]) -> None:
        """Folders are harmless."""

    def finish(self, findings: Findings) -> None:
        """Note a missing model or missing data."""
        if self._model is None:
            report_missing("onnx-model", "model.onnx", self._inside, findings)
            return
        for location in sorted(self._model.locations - self._paths):
            findings.add("onnx-data", self._model_name, f"the model's external data {location[:80]!r} are not in the archive")
