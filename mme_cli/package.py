"""Make an artifact from a model: the same bytes for the same model on every machine, and inspected as admission will."""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from mme_cli.errors import CommandError
from mme_cli.onboarding.artifact import SUFFIXES
from mme_facts.artifacts import XGBOOST_MODEL
from mme_tenancy.archive import inspect_artifact
from mme_tenancy.formats.frameworks import FRAMEWORKS
from mme_tenancy.formats.saved_model import is_version

if TYPE_CHECKING:
    from mme_tenancy.versions import Reason

__all__ = ["Package", "package"]

_CHUNK_BYTES = 1 << 20
_LEFT_OUT = frozenset({".DS_Store", "Thumbs.db", "__pycache__", ".git", ".ipynb_checkpoints"})
_APPLE_DOUBLE = "._"


@dataclass(frozen=True, slots=True)
class Package:
    """A finished artifact.

    Attributes:
        artifact: its path.
        framework: what it is a model of.
        sha256: its digest, 64 hexadecimal digits.
        size_bytes: its size.
        unpacked_bytes: its size once unpacked.
        members: the files in it.
        left_out: files of the model's folder that are no part of a model, relative to it.
        warnings: what a multi-model endpoint will ignore.
    """

    artifact: str
    framework: str
    sha256: str
    size_bytes: int
    unpacked_bytes: int
    members: tuple[str, ...]
    left_out: tuple[str, ...]
    warnings: tuple[Reason, ...]

    def document(self) -> dict[str, object]:
        """What ``--json`` prints; digest, size and framework are the fields of a registration."""
        return {**asdict(self), "warnings": [warning.document() for warning in self.warnings]}


def package(
    source: Path, artifact: Path | None = None, *, framework: str | None = None, allow_code: bool = False, overwrite: bool = False
) -> Package:
    """Pack the model at ``source``, inspect the result, and only then let it appear at ``artifact``.

    Args:
        source: the model's file, or its folder (TensorFlow, Triton, ONNX with external data, a folder that is packed as it is).
        artifact: the file to write; default: the source's name with ``.tar.gz``, in the current folder.
        framework: one of `FRAMEWORKS`; default: told by the file's suffix, or by what the folder holds.
        allow_code: whether formats that carry code are taken.
        overwrite: whether an existing file is replaced.

    Raises:
        CommandError: the model cannot be read or would not be admitted, or the artifact cannot be written.
    """
    if not source.exists():
        raise CommandError(f"{str(source)!r} does not exist: name a model's file or folder")
    framework = framework or _guess(source)
    if framework not in FRAMEWORKS:
        raise CommandError(f"framework {framework!r} is unknown: use one of {', '.join(FRAMEWORKS)}")
    target = artifact or Path(f"{source.stem if source.is_file() else source.resolve().name}.tar.gz")
    if target.exists() and not overwrite:
        raise CommandError(f"{str(target)!r} exists already: name another file with --output, or replace it with --overwrite")
    left_out: list[str] = []
    files = sorted(_files(source, framework, left_out.append))
    if not files:
        raise CommandError(f"folder {str(source)!r} holds no files: name a model's file or folder")
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise CommandError(f"{str(target)!r} cannot be written: {error.strerror}; name another file with --output") from None
    unfinished = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write(file, files)
        result = _inspected(unfinished, target, framework, allow_code, [member for member, _ in files], left_out)
        unfinished.chmod(0o666 & ~_umask())
        unfinished.replace(target)
    except OSError as error:
        raise CommandError(f"{str(error.filename or target)!r} cannot be packed: {error.strerror or error}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return result


def _guess(source: Path) -> str:
    if source.is_file():
        if source.name == XGBOOST_MODEL:
            return "xgboost"
        if (found := SUFFIXES.get(source.suffix.lower())) is not None:
            return found
    elif any(source.glob("saved_model.pb")) or any(source.glob("*/saved_model.pb")):
        return "tensorflow"
    elif any(source.glob("config.pbtxt")) or any(source.glob("*/config.pbtxt")):
        return "triton"
    elif (names := {SUFFIXES.get(path.suffix.lower()) for path in source.iterdir()} - {None, "xgboost"}) and len(names) == 1:
        return str(names.pop())
    elif (source / XGBOOST_MODEL).is_file():
        return "xgboost"
    raise CommandError(f"{str(source)!r} does not tell its framework: name it with --framework ({', '.join(FRAMEWORKS)})")


def _files(source: Path, framework: str, left_out: Callable[[str], None]) -> Iterator[tuple[str, Path]]:
    """Member names and the files they come from."""
    if source.is_file():
        if framework in {"tensorflow", "triton"}:
            raise CommandError(f"{str(source)!r} is a file: a model of {framework} is a folder; name that")
        yield (XGBOOST_MODEL if framework == "xgboost" else f"model{source.suffix.lower()}"), source
        return
    prefix = ""
    if framework == "tensorflow" and (source / "saved_model.pb").is_file():
        version = source.resolve().name
        prefix = f"{version if is_version(version) else 1}/"
    elif framework == "triton" and (source / "config.pbtxt").is_file():
        prefix = f"{source.resolve().name}/"
    for folder, folders, names in os.walk(source):
        here = Path(folder)
        for name in sorted([*folders, *names]):
            path = here / name
            inner = path.relative_to(source).as_posix()
            if name in _LEFT_OUT or name.startswith(_APPLE_DOUBLE):
                left_out(inner)
            elif name in folders:
                if path.is_symlink():
                    raise CommandError(f"{str(path)!r} is a link to a folder: put the folder itself there")
                if not any(path.iterdir()):
                    yield f"{prefix}{inner}/", path
            elif path.is_file():
                yield f"{prefix}{inner}", path
            else:
                raise CommandError(f"{str(path)!r} is no plain file: remove it from the model's folder")
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT)


def _write(file: BinaryIO, files: Sequence[tuple[str, Path]]) -> None:
    """The archive without times, owners, and the machine's modes: the same model is the same artifact."""
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in files:
            member = tarfile.TarInfo(name.rstrip("/"))
            if path.is_dir():
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(member)
                continue
            with path.open("rb") as content:
                member.size, member.mode = os.fstat(content.fileno()).st_size, 0o644
                archive.addfile(member, content)


def _inspected(
    unfinished: Path, target: Path, framework: str, allow_code: bool, members: Sequence[str], left_out: Sequence[str]
) -> Package:
    size_bytes = unfinished.stat().st_size
    digest = hashlib.sha256()
    for chunk in _chunks(unfinished):
        digest.update(chunk)
    found = inspect_artifact(
        _chunks(unfinished), sha256=digest.hexdigest(), size_bytes=size_bytes, framework=framework, allow_code=allow_code
    )
    if found.findings:
        told = "; ".join(f"{finding.member}: {finding.detail} ({finding.rule}; {finding.fix})" for finding in found.findings)
        hint = " or pass --allow-code" if any(finding.rule == "code-format" for finding in found.findings) and not allow_code else ""
        raise CommandError(f"the model would not be admitted as {framework}: {told}{hint}")
    return Package(
        str(target), framework, digest.hexdigest(), size_bytes, found.unpacked_bytes, tuple(members), tuple(left_out), found.warnings
    )


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
