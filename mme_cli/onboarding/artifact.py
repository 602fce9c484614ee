"""What a registration says about files on this machine: digest, size, framework, sample."""

from __future__ import annotations

import base64
import hashlib
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Event
from typing import Any

from mme_cli.errors import CommandError, UsageError
from mme_cli.onboarding_client import StoppedError
from mme_facts.artifacts import XGBOOST_MODEL
from mme_facts.grammar import GrammarError, check_model_id, check_tenant_id
from mme_facts.limits import SAMPLE_BODY_BYTES
from mme_tenancy.bodies import registration_shape
from mme_tenancy.errors import TenancyError
from mme_tenancy.formats.frameworks import FRAMEWORKS

__all__ = ["SUFFIXES", "ModelFiles", "content_type_of", "digest_of", "framework_of"]

SUFFIXES: Mapping[str, str] = {
    ".ubj": "xgboost",
    ".json": "xgboost",
    ".skops": "sklearn",
    ".joblib": "sklearn",
    ".pkl": "sklearn",
    ".pickle": "sklearn",
    ".onnx": "onnx",
    ".pt": "pytorch",
    ".pth": "pytorch",
    ".safetensors": "pytorch",
}
"""What a model's file tells about its framework."""
_CONTENT_TYPES = {".csv": "text/csv", ".json": "application/json", ".libsvm": "text/libsvm", ".npy": "application/x-npy"}
_LOOKED_AT = 200
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """One model to onboard.

    Attributes:
        tenant: tenant id.
        model: model id.
        artifact: the ``.tar.gz``.
        sample: file with a payload that the model must be able to answer.
        content_type: media type of the payload.
        framework: what the artifact is made for.
        accept: media type of the answer to the payload; ``None`` leaves it to the container.
        notes: the tenant's own words.
    """

    tenant: str
    model: str
    artifact: Path
    sample: Path
    content_type: str
    framework: str
    accept: str | None = None
    notes: str | None = None

    @classmethod
    def check(
        cls,
        tenant: str,
        model: str,
        artifact: Path,
        sample: Path,
        *,
        content_type: str | None = None,
        framework: str | None = None,
        accept: str | None = None,
        notes: str | None = None,
    ) -> ModelFiles:
        """Check everything that can be checked here; what is left out is told by the files' names and the archive's members.

        Raises:
            UsageError: something is wrong; the text names it.
        """
        try:
            check_tenant_id(tenant)
            check_model_id(model)
        except GrammarError as error:
            raise UsageError(str(error)) from None
        for what, path in (("artifact", artifact), ("sample", sample)):
            if not path.is_file():
                raise UsageError(f"{what} {str(path)!r} does not exist, or is no file")
            if path.stat().st_size == 0:
                raise UsageError(f"{what} {str(path)!r} is empty")
        if sample.stat().st_size > SAMPLE_BODY_BYTES:
            raise UsageError(f"sample {str(sample)!r} has {sample.stat().st_size} bytes: at most {SAMPLE_BODY_BYTES} are allowed")
        files = cls(
            tenant, model, artifact, sample, content_type or content_type_of(sample), framework or framework_of(artifact), accept, notes
        )
        shape = registration_shape(max_artifact_bytes=2**63, frameworks=FRAMEWORKS)
        try:
            shape.check("body", files.registration("0" * 64))
        except TenancyError as error:
            raise UsageError(error.detail) from None
        return files

    def registration(self, sha256: str) -> dict[str, Any]:
        """The body of the registration of the artifact with this digest."""
        sample: dict[str, Any] = {
            "content_type": self.content_type,
            "body": base64.b64encode(self.sample.read_bytes()).decode(),
            "encoding": "base64",
        }
        if self.accept is not None:
            sample["accept"] = self.accept
        document: dict[str, Any] = {
            "sha256": sha256,
            "size_bytes": self.artifact.stat().st_size,
            "framework": self.framework,
            "sample": sample,
        }
        if self.notes is not None:
            document["notes"] = self.notes
        return document


def content_type_of(sample: Path) -> str:
    """The media type of a payload by its file's name."""
    return _CONTENT_TYPES.get(sample.suffix.lower(), "application/octet-stream")


def framework_of(artifact: Path) -> str:
    """The framework that an artifact's members tell; raises `UsageError` if they tell none or several."""
    found: set[str] = set()
    try:
        with tarfile.open(artifact, "r:gz") as archive:
            for number, member in enumerate(archive):
                found |= _told_by(PurePosixPath(member.name))
                if found & {"xgboost", "tensorflow", "triton"} or number >= _LOOKED_AT:
                    break
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UsageError(f"artifact {str(artifact)!r} is no .tar.gz that can be read: {error}") from None
    for telling in ("triton", "tensorflow", "xgboost"):
        if telling in found:
            return telling
    if len(found) != 1:
        told = "no framework" if not found else "several frameworks"
        raise UsageError(f"artifact {str(artifact)!r} tells {told}: name it ({', '.join(FRAMEWORKS)})")
    return found.pop()


def _told_by(path: PurePosixPath) -> set[str]:
    if path.name == XGBOOST_MODEL:
        return {"xgboost"}
    if path.name == "saved_model.pb":
        return {"tensorflow"}
    if path.name == "config.pbtxt":
        return {"triton"}
    told = SUFFIXES.get(path.suffix.lower())
    return set() if told in (None, "xgboost") else {str(told)}


def digest_of(artifact: Path, stop: Event) -> str:
    """SHA-256 of a file, 64 hexadecimal digits.

    Raises:
        CommandError: it cannot be read.
        StoppedError: ``stop`` was set meanwhile.
    """
    digest = hashlib.sha256()
    try:
        with artifact.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                if stop.is_set():
                    raise StoppedError
                digest.update(chunk)
    except OSError as error:
        raise CommandError(f"artifact {str(artifact)!r} cannot be read: {error.strerror}") from None
    return digest.hexdigest()
