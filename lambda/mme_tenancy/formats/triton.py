"""NVIDIA Triton: one folder with ``config.pbtxt`` and a version, or an ensemble and up to five models.

Sources: triton-inference-server/server, docs/user_guide/{model_repository,model_configuration,ensemble_models}.md; SageMaker developer
guide, "Model repository" of Triton on multi-model endpoints (an archive holds one model, and at most five in an ensemble).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mme_facts.artifacts import MANIFESTS, carries_code
from mme_tenancy.findings import Findings
from mme_tenancy.formats.content import Content, ContentFault
from mme_tenancy.formats.onnx import OnnxModel
from mme_tenancy.formats.saved_model import SavedModel, is_version
from mme_tenancy.formats.shape import File, leaves_the_archive, note_requirements
from mme_tenancy.formats.single_file import PICKLE_SUFFIXES, scan_code, scan_pickle, torch_file
from mme_tenancy.formats.text_proto import Node, all_texts, children, parse, texts

__all__ = ["MAX_ENSEMBLE_MODELS", "TritonShape"]

MAX_ENSEMBLE_MODELS = 5
_CONFIG, _CONFIG_BYTES = "config.pbtxt", 256 << 10
_ENSEMBLE = "ensemble"
_MODEL_FILES: Mapping[str, str] = {
    "tensorrt_plan": "model.plan",
    "tensorflow_graphdef": "model.graphdef",
    "tensorflow_savedmodel": "model.savedmodel",
    "onnxruntime_onnx": "model.onnx",
    "pytorch_libtorch": "model.pt",
    "tensorrt": "model.plan",
    "tensorflow": "model.savedmodel",
    "onnxruntime": "model.onnx",
    "pytorch": "model.pt",
    "openvino": "model.xml",
    "python": "model.py",
}
"""The file of a version, by platform or back end, unless ``default_model_filename`` names another."""
_WITHOUT_CODE = frozenset({*_MODEL_FILES, "fil", _ENSEMBLE}) - {"python"}
"""Platforms and back ends that only compute; any other may run a model's own code."""


class _Config:
    """The content of ``config.pbtxt``."""

    def __init__(self) -> None:
        self._text = bytearray()
        self.node: Node | None = None

    def feed(self, data: memoryview) -> None:
        """Take the next bytes; raises `ContentFault`."""
        self._text += data[: _CONFIG_BYTES + 1]
        if len(self._text) > _CONFIG_BYTES:
            raise ContentFault(f"{_CONFIG} is larger than {_CONFIG_BYTES} bytes")

    def close(self) -> None:
        """There are no more bytes; raises `ContentFault` unless they were a message as text."""
        try:
            text = self._text.decode()
        except UnicodeDecodeError as error:
            raise ContentFault(f"{_CONFIG} is not UTF-8") from error
        self._text.clear()
        node = parse(text)
        for value in all_texts(node):
            if leaves_the_archive(value):
                raise ContentFault(f"{_CONFIG} names {value[:80]!r}, which lies outside the model's folder")
        self.node = node

    def text(self, name: str) -> str:
        """The last value of a field, as protocol buffers read it."""
        return (texts(self.node or [], name) or [""])[-1]

    @property
    def kind(self) -> str:
        """The back end, or else the platform."""
        return self.text("backend") or self.text("platform")

    @property
    def steps(self) -> list[str]:
        """The models that an ensemble calls."""
        schedules = children(self.node or [], "ensemble_scheduling")
        return [name for schedule in schedules for step in children(schedule, "step") for name in texts(step, "model_name")]


@dataclass
class _Model:
    """One folder at the root."""

    first: str
    config: _Config | None = None
    versions: dict[str, set[str]] = field(default_factory=dict)


class TritonShape:
    """The rules of a Triton archive.

    Args:
        allow_code: whether back ends that run a model's own code are admitted.
    """

    content_rule = "triton-config"

    def __init__(self, allow_code: bool) -> None:
        self._allow_code = allow_code
        self._models: dict[str, _Model] = {}

    def file(self, file: File, findings: Findings) -> Content | None:
        """Look at a file."""
        parts = file.parts
        note_requirements(file, findings)
        if self._refuse_code(file, findings):
            return None
        if len(parts) == 1:
            if parts[0] != "requirements.txt":
                findings.add("triton-layout", file.name, "the root holds a file: it must hold the model's folder only")
            return None
        model = self._models.setdefault(parts[0], _Model(file.name))
        if parts[1:] == (_CONFIG,):
            model.config = _Config()
            return model.config
        if len(parts) >= 3 and is_version(parts[1]):
            model.versions.setdefault(parts[1], set()).add(parts[2])
        if parts[-1] == _CONFIG and len(parts) == 3 and not is_version(parts[1]):
            findings.add("root-folder", file.name, "the model's folder must be at the root of the archive, not in another folder")
        return self._content(file, findings)

    def folder(self, parts: tuple[str, ...]) -> None:
        """Look at a folder: an ensemble's version may be empty."""
        if len(parts) == 2 and is_version(parts[1]):
            self._models.setdefault(parts[0], _Model("/".join(parts))).versions.setdefault(parts[1], set())

    def finish(self, findings: Findings) -> None:
        """Note what is missing, and what does not belong together."""
        if not self._models:
            findings.add("triton-layout", f"model/{_CONFIG}", "the archive has no model's folder")
        for folder, model in self._models.items():
            self._check(folder, model, findings)
        self._check_ensemble(findings)

    def _refuse_code(self, file: File, findings: Findings) -> bool:
        if file.suffix in PICKLE_SUFFIXES:
            rule, detail = "code-format", "the member is a pickle, which runs code when it is loaded"
        elif carries_code(file.path) and file.suffix != ".pth":
            python = len(file.parts) == 3 and file.parts[2] == "model.py"
            rule, detail = ("code-format", "the model is code of Triton's Python back end") if python else ("code", "the member is code")
        else:
            return False
        if self._allow_code and file.parts[0] not in MANIFESTS:
            return False
        findings.add(rule, file.name, detail)
        return True

    def _content(self, file: File, findings: Findings) -> Content | None:
        if file.suffix == ".onnx":
            return OnnxModel(file.size_bytes)
        if file.suffix in {".pt", ".pth"}:
            return torch_file(file, findings, self._allow_code)
        if file.suffix in PICKLE_SUFFIXES:
            return scan_pickle(file, findings)
        if carries_code(file.path):
            return scan_code(file, findings)
        return SavedModel(file.size_bytes) if file.parts[-1] == "saved_model.pb" else None

    def _check(self, folder: str, model: _Model, findings: Findings) -> None:
        where = f"{folder}/{_CONFIG}"
        if model.config is None:
            findings.add("triton-layout", where, f"the folder {folder!r} has no {_CONFIG}")
            return
        if not model.versions:
            findings.add(
                "triton-layout", model.first, f"the folder {folder!r} has no version: a folder with a number from 1 on as its name"
            )
        if model.config.node is None:
            return  # said already
        if (name := model.config.text("name")) not in {"", folder}:
            findings.add("triton-config", where, f"the configuration names the model {name[:80]!r}, its folder is {folder!r}")
        kind = model.config.kind
        if not kind:
            findings.add("triton-config", where, "the configuration names neither backend nor platform")
        elif kind not in _WITHOUT_CODE and not self._allow_code:
            findings.add("code-format", where, f"the back end {kind[:80]!r} may run a model's own code")
        expected = model.config.text("default_model_filename") or _MODEL_FILES.get(model.config.text("platform")) or _MODEL_FILES.get(kind)
        for version, files in model.versions.items():
            if kind != _ENSEMBLE and (not files or (expected is not None and expected not in files)):
                missing = expected or "a model file"
                findings.add("triton-layout", f"{folder}/{version}/{expected or ''}", f"version {version} of {folder!r} lacks {missing}")

    def _check_ensemble(self, findings: Findings) -> None:
        configs = {folder: model.config for folder, model in self._models.items() if model.config is not None}
        ensembles = {folder: config for folder, config in configs.items() if config.kind == _ENSEMBLE}
        if not ensembles:
            if len(self._models) > 1:
                second = [*self._models.values()][1].first
                findings.add("triton-ensemble", second, f"the archive holds {len(self._models)} models, and none of them is an ensemble")
            return
        if len(ensembles) > 1:
            findings.add("triton-ensemble", f"{[*ensembles][1]}/{_CONFIG}", "the archive holds two ensembles")
        folder, config = next(iter(ensembles.items()))
        where, steps, others = f"{folder}/{_CONFIG}", set(config.steps), self._models.keys() - ensembles.keys()
        if not steps:
            findings.add("triton-ensemble", where, "the ensemble has no steps")
        if len(others) > MAX_ENSEMBLE_MODELS:
            findings.add("triton-ensemble", where, f"the ensemble has {len(others)} models: at most {MAX_ENSEMBLE_MODELS} are allowed")
        for step in sorted(steps - others):
            findings.add("triton-ensemble", where, f"the ensemble calls the model {step[:80]!r}, which the archive does not hold")
        for other in sorted(others - steps):
            findings.add("triton-ensemble", self._models[other].first, f"the ensemble does not call the model {other[:80]!r}")
