"""XGBoost: one booster at the root, in UBJSON or JSON.

Source: aws/sagemaker-xgboost-container, algorithm mode, which loads every file at the root as a model, and tries to unpickle
it first; a file that starts with ``{`` is no pickle.
"""

from __future__ import annotations

from mme_facts.artifacts import XGBOOST_MODEL
from mme_tenancy.findings import Findings
from mme_tenancy.formats.content import Content, ContentFault, Pull
from mme_tenancy.formats.json_stream import JsonStream
from mme_tenancy.formats.outline import Outline
from mme_tenancy.formats.shape import File, note_requirements, refuse_code, report_missing
from mme_tenancy.formats.ubjson import ubjson

__all__ = ["Booster", "XGBoostShape"]

_NEEDED = (("learner", "gradient_booster"), ("learner", "learner_model_param"), ("learner", "objective"), ("version",))
_TREES = (("learner", "gradient_booster", "model"), ("learner", "gradient_booster", "gbtree"))
_PICKLE, _OLD_BINARY = b"\x80", (b"bi", b"bs")


class Booster:
    """The content of a booster's file: JSON if ``{`` is followed by ``"`` or space, else UBJSON, as XGBoost decides it."""

    def __init__(self) -> None:
        self._outline = Outline()
        self._start = b""
        self._content: Content | None = None

    def feed(self, data: memoryview) -> None:
        """Take the next bytes; raises `ContentFault`."""
        if self._content is not None:
            self._content.feed(data)
            return
        self._start += data
        if len(self._start) >= 2:
            self._content = self._choose()
            self._content.feed(memoryview(self._start))

    def close(self) -> None:
        """There are no more bytes; raises `ContentFault` unless it was a whole booster."""
        if self._content is None:
            raise ContentFault("the file is empty" if not self._start else "the file is a single byte")
        self._content.close()
        missing: list[tuple[str, ...]] = [path for path in _NEEDED if path not in self._outline.paths]
        if not missing and self._outline.paths.isdisjoint(_TREES):
            missing.append(_TREES[0])
        if missing:
            raise ContentFault(f"the document is no booster: it has no {'.'.join(missing[0])}")

    def _choose(self) -> Content:
        start = self._start[:2]
        if start[:1] == _PICKLE:
            raise ContentFault("the file is a pickle, which runs code when it is loaded", "code-format")
        if start in _OLD_BINARY:
            raise ContentFault("the file has XGBoost's old binary format, which new versions do not read")
        if start[:1] != b"{":
            raise ContentFault("the file is neither UBJSON nor JSON")
        return JsonStream(self._outline) if start[1:] in b'" \t\r\n}' else Pull(ubjson(self._outline))


class XGBoostShape:
    """The rules of an XGBoost archive. Code is never taken: all models of an endpoint share a container."""

    content_rule = "xgboost-model"

    def __init__(self) -> None:
        self._found = False
        self._inside: str | None = None

    def file(self, file: File, findings: Findings) -> Content | None:
        """Look at a file."""
        if refuse_code(file, findings):
            return None
        if len(file.parts) > 1:
            if file.parts[-1] == XGBOOST_MODEL:
                self._inside = file.name
            note_requirements(file, findings)
            return None
        if file.path != XGBOOST_MODEL:
            findings.add("xgboost-root", file.name, f"the root holds a file other than {XGBOOST_MODEL}")
            return None
        self._found = True
        return Booster()

    def folder(self, parts: tuple[str, ...]) -> None:
        """Folders are harmless."""

    def finish(self, findings: Findings) -> None:
        """Note a missing model."""
        if not self._found:
            report_missing("xgboost-model", XGBOOST_MODEL, self._inside, findings)
