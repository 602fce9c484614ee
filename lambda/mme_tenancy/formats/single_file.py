"""scikit-learn and PyTorch: one model file at the root.

Sources: aws/sagemaker-scikit-learn-container (the script that loads models belongs to the endpoint, so code in an artifact is ignored) and
aws/sagemaker-pytorch-inference-toolkit (``handler_service.py``: a model's ``code`` folder is put on the path of its worker).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mme_facts.artifacts import MANIFESTS, carries_code
from mme_tenancy.findings import Findings
from mme_tenancy.formats.archives import TorchFile, ZipFile, skops_model
from mme_tenancy.formats.code_scan import PickleScan, PythonSource
from mme_tenancy.formats.content import Content, Pull
from mme_tenancy.formats.safetensors import safetensors
from mme_tenancy.formats.shape import File, note_requirements, report_missing

__all__ = ["PICKLE_SUFFIXES", "PYTORCH", "SKLEARN", "SingleFile", "SingleFileShape", "scan_code", "scan_pickle", "torch_file"]

PICKLE_SUFFIXES = frozenset({".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle"})
"""Files that are pickles by their name, wherever they lie."""


@dataclass(frozen=True, slots=True)
class SingleFile:
    """The rules of one framework.

    Attributes:
        rule: what a missing, second or broken model breaks.
        expected: the model's usual name.
        contents: makes the check of a model's content, by suffix; gets the file, the findings, and whether code is allowed.
        uses_code: whether the container runs the code in an artifact.
    """

    rule: str
    expected: str
    contents: Mapping[str, Callable[[File, Findings, bool], Content]]
    uses_code: bool


def scan_pickle(file: File, findings: Findings, _allow_code: bool = True) -> Content:
    """The scan of a pickle that is allowed; ``.joblib`` tells that ``joblib.load`` reads it."""
    return PickleScan(file.name, file.size_bytes, findings, joblib=file.suffix == ".joblib")


def scan_code(file: File, findings: Findings) -> Content | None:
    """The scan of code that is allowed: Python, or else nothing, because compiled code cannot be scanned."""
    if file.suffix == ".py":
        return PythonSource()
    findings.add("unscanned-code", file.name, "the member is compiled code")
    return None


def torch_file(file: File, findings: Findings, allow_code: bool) -> Content:
    """The check of a file of PyTorch."""
    return TorchFile(file.name, file.size_bytes, findings, allow_code=allow_code)


def _skops(file: File, _findings: Findings, _allow_code: bool) -> Content:
    return ZipFile(file.size_bytes, skops_model, "a skops file")


def _safetensors(file: File, _findings: Findings, _allow_code: bool) -> Content:
    return Pull(safetensors(file.size_bytes))


SKLEARN = SingleFile(
    "sklearn-model", "model.skops", {".joblib": scan_pickle, ".pkl": scan_pickle, ".pickle": scan_pickle, ".skops": _skops}, uses_code=False
)
PYTORCH = SingleFile("pytorch-model", "model.pt", {".pt": torch_file, ".pth": torch_file, ".safetensors": _safetensors}, uses_code=True)


class SingleFileShape:
    """Looks at an archive whose model is one file.

    Args:
        kind: the framework's rules.
        allow_code: whether code and pickles are admitted.
    """

    def __init__(self, kind: SingleFile, allow_code: bool) -> None:
        self._kind, self._allow_code = kind, allow_code
        self._found: str | None = None
        self._inside: str | None = None

    @property
    def content_rule(self) -> str:
        """The rule that a broken model breaks."""
        return self._kind.rule

    def file(self, file: File, findings: Findings) -> Content | None:
        """Look at a file."""
        if file.suffix in self._kind.contents:
            return self._model(file, findings)
        if file.suffix in PICKLE_SUFFIXES:
            if self._allow_code:
                return scan_pickle(file, findings)
            findings.add("code-format", file.name, "the member is a pickle, which runs code when it is loaded")
        elif carries_code(file.path):
            return self._code(file, findings)
        else:
            note_requirements(file, findings)
        return None

    def folder(self, parts: tuple[str, ...]) -> None:
        """Folders are harmless."""

    def finish(self, findings: Findings) -> None:
        """Note a missing model."""
        if self._found is None:
            report_missing(self._kind.rule, self._kind.expected, self._inside, findings)

    def _model(self, file: File, findings: Findings) -> Content | None:
        if len(file.parts) == 1:
            if self._found is not None:
                findings.add(self._kind.rule, file.name, f"the root holds two models, this one and {self._found}")
            self._found = file.name
        else:
            self._inside = file.name
        if file.suffix in PICKLE_SUFFIXES and not self._allow_code:
            findings.add("code-format", file.name, "the model is a pickle, which runs code when it is loaded")
            return None
        return self._kind.contents[file.suffix](file, findings, self._allow_code)

    def _code(self, file: File, findings: Findings) -> Content | None:
        if not self._allow_code or file.parts[0] in MANIFESTS:
            findings.add("code", file.name, "the member is code, or chooses what code runs")
            return None
        if not self._kind.uses_code:
            findings.add("ignored", file.name, "the container runs the endpoint's script, not a model's own")
        return scan_code(file, findings)
