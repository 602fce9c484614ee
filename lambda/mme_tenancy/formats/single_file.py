"""scikit-learn and PyTorch: one model file at the root.

Sources: aws/sagemaker-scikit-learn-container (the script that loads models belongs to the endpoint, so code in an artifact is ignored) and
aws/sagemaker-pytorch-inference-toolkit (``handler_service.py``: a model's ``code`` folder is put on the path of its worker).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from mme_facts.artifacts import MANIFESTS, carries_code
from mme_tenancy.findings import Findings
from mme_tenancy.formats.archives import ZipFile, skops_model, torch_archive
from mme_tenancy.formats.content import Content, Pull
from mme_tenancy.formats.pickles import Pickle
from mme_tenancy.formats.safetensors import safetensors
from mme_tenancy.formats.shape import File, report_missing

__all__ = ["PICKLE_SUFFIXES", "PYTORCH", "SKLEARN", "SingleFile", "SingleFileShape"]

PICKLE_SUFFIXES = frozenset({".pkl", ".pickle", ".joblib", ".dill", ".cloudpickle"})
"""Files that are pickles by their name, wherever they lie."""


@dataclass(frozen=True, slots=True)
class SingleFile:
    """The rules of one framework.

    Attributes:
        rule: what a missing, second or broken model breaks.
        expected: the model's usual name.
        contents: makes the check of a model's content from its size and whether code is allowed, by suffix.
        uses_code: whether the container runs the code in an artifact.
    """

    rule: str
    expected: str
    contents: Mapping[str, Callable[[int, bool], Content]]
    uses_code: bool


def _pickle(_size_bytes: int, _allow_code: bool) -> Content:
    return Pickle()


def _skops(size_bytes: int, _allow_code: bool) -> Content:
    return ZipFile(size_bytes, skops_model, "a skops file")


def torch_file(size_bytes: int, allow_code: bool) -> Content:
    """The check of a file of PyTorch."""
    return ZipFile(size_bytes, partial(torch_archive, allow_code=allow_code), "TorchScript or what torch.save writes since PyTorch 1.6")


def _safetensors(size_bytes: int, _allow_code: bool) -> Content:
    return Pull(safetensors(size_bytes))


SKLEARN = SingleFile(
    "sklearn-model", "model.skops", {".joblib": _pickle, ".pkl": _pickle, ".pickle": _pickle, ".skops": _skops}, uses_code=False
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
        if file.suffix in PICKLE_SUFFIXES and not self._allow_code:
            findings.add("code-format", file.name, "the member is a pickle, which runs code when it is loaded")
        elif carries_code(file.path):
            self._code(file, findings)
        elif file.parts[-1] == "requirements.txt":
            findings.add("ignored", file.name, "nothing installs the requirements of a model on a multi-model endpoint")
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
        return self._kind.contents[file.suffix](file.size_bytes, self._allow_code)

    def _code(self, file: File, findings: Findings) -> None:
        if not self._allow_code or file.parts[0] in MANIFESTS:
            findings.add("code", file.name, "the member is code, or chooses what code runs")
        elif not self._kind.uses_code:
            findings.add("ignored", file.name, "the container runs the endpoint's script, not a model's own")
