"""The functions' code as one asset: a zip of installed packages. No Docker, no network, the same hash every time."""

from __future__ import annotations

import hashlib
import io
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from mme_constructs.errors import LambdaCodeError
from mme_constructs.stack_of import stack_of

__all__ = ["PACKAGES", "LambdaCode", "collect", "write_zip"]

PACKAGES = ("mme_tenancy", "mme_facts", "aws_lambda_powertools", "jmespath", "typing_extensions", "picklescan")
"""Top-level packages and modules of the asset, all pure Python. Lambda's runtime brings boto3."""

_SUFFIXES = frozenset({".py", ".json"})
"""What code needs at run time: no byte code, stubs, markers or editor's leftovers, so that a checkout and a wheel give the same files."""


_KEPT_AS = "_mme_lambda_code"
_CODE_KEPT_AS = "_mme_code"


class LambdaCode:
    """The one asset of a stack, shared by its functions."""

    @staticmethod
    def prepare() -> None:
        """Collect and pack the code beside what the caller does next: it mostly waits for CDK's process. `of` takes the result."""
        if not _prepared:
            _prepared.append(_Packing())

    @staticmethod
    def of(scope: Construct) -> s3_assets.Asset:
        """The asset in ``scope``'s stack, collected on first use.

        Raises:
            LambdaCodeError: a package of `PACKAGES` is not installed.
        """
        stack = stack_of(scope)
        # Kept with the stack's own object: asking CDK for the child is a call to another process.
        known = vars(stack).get(_KEPT_AS) or stack.node.try_find_child("MmeLambdaCode")
        if isinstance(known, s3_assets.Asset):
            return known
        packing = _prepared.pop() if _prepared else _Packing()
        with tempfile.TemporaryDirectory(prefix="mme-lambda-code-") as folder:
            # CDK copies the file into the cloud assembly while the asset is constructed, so it may go afterwards. One file instead of
            # hundreds: CDK hashes and copies each.
            archive = Path(folder) / "code.zip"
            digest, packed = packing.result()
            archive.write_bytes(packed)
            asset = s3_assets.Asset(
                stack,
                "MmeLambdaCode",
                path=str(archive),
                # Of the files, not of the zip: compressors differ from machine to machine.
                asset_hash=digest,
                display_name="mme-constructs functions",
            )
        cdk.Annotations.of(asset).acknowledge_warning(
            "@aws-cdk/aws-lambda:codeFromBucketObjectVersionNotSpecified", "The key is the hash of the content: other code has another key."
        )
        vars(stack)[_KEPT_AS] = asset
        return asset

    @staticmethod
    def code(scope: Construct) -> lambda_.Code:
        """The asset as the code of a function in ``scope``'s stack; raises `LambdaCodeError`."""
        asset = LambdaCode.of(scope)
        code = vars(asset).get(_CODE_KEPT_AS)
        if not isinstance(code, lambda_.Code):
            code = vars(asset)[_CODE_KEPT_AS] = lambda_.Code.from_bucket(asset.bucket, asset.s3_object_key)
        return code


class _Packing:
    """The code, being collected and packed by a thread of its own."""

    def __init__(self) -> None:
        self._outcome: tuple[str, bytes] | Exception | None = None
        self._thread = threading.Thread(target=self._pack, name="mme-lambda-code", daemon=True)
        self._thread.start()

    def result(self) -> tuple[str, bytes]:
        """The hash of the files, and the zip; waits, and raises what packing raised."""
        self._thread.join()
        assert self._outcome is not None
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def _pack(self) -> None:
        try:
            content = collect()
            archive = io.BytesIO()
            write_zip(content, archive)
            self._outcome = _hash(content), archive.getvalue()
        except Exception as error:
            self._outcome = error


_prepared: list[_Packing] = []


def collect() -> dict[str, bytes]:
    """The files of the packages: path as Lambda unpacks them -> content, in the order of their paths.

    Packages are located, never imported: importing ours would load boto3.

    Raises:
        LambdaCodeError: a package is not installed.
    """
    return dict(sorted((relative.as_posix(), source.read_bytes()) for name in PACKAGES for source, relative in _files(name)))


def write_zip(content: Mapping[str, bytes], archive: IO[bytes]) -> None:
    """Write files into a new zip, readable by everybody and without times: Lambda runs the code as another user.

    Args:
        content: what `collect` returned.
        archive: takes the zip.
    """
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for name, data in content.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, data, compresslevel=1)


def _hash(content: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in content.items():
        digest.update(f"{len(name)}:{name}:{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def _files(name: str) -> Iterator[tuple[Path, Path]]:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise LambdaCodeError(
            "A package of the functions' code is not installed",
            value=name,
            allowed=", ".join(PACKAGES),
            fix="Install mme-constructs with its dependencies",
        )
    origin = Path(spec.origin)
    if spec.submodule_search_locations is None:
        yield origin, Path(origin.name)
        return
    root = origin.parent
    for path in sorted(root.rglob("*")):
        if path.suffix in _SUFFIXES and path.is_file():
            yield path, Path(name) / path.relative_to(root)
