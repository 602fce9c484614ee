"""The functions' code as one asset: a copy of installed packages. No Docker, no network, the same hash every time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from mme_constructs.errors import LambdaCodeError

__all__ = ["PACKAGES", "LambdaCode", "copy_packages"]

PACKAGES = ("mme_tenancy", "mme_facts", "aws_lambda_powertools", "jmespath", "typing_extensions")
"""Top-level packages and modules of the asset, all pure Python. Lambda's runtime brings boto3."""

_SUFFIXES = frozenset({".py", ".json"})
"""What code needs at run time: no byte code, stubs, markers or editor's leftovers, so that a checkout and a wheel give the same files."""


class LambdaCode:
    """The one asset of a stack, shared by its functions."""

    @staticmethod
    def of(scope: Construct) -> s3_assets.Asset:
        """The asset in ``scope``'s stack, collected on first use.

        Raises:
            LambdaCodeError: a package of `PACKAGES` is not installed.
        """
        stack = cdk.Stack.of(scope)
        found = stack.node.try_find_child("MmeLambdaCode")
        if isinstance(found, s3_assets.Asset):
            return found
        with tempfile.TemporaryDirectory(prefix="mme-lambda-code-") as folder:
            # CDK copies the folder into the cloud assembly while the asset is constructed, so it may go afterwards.
            copy_packages(Path(folder))
            asset = s3_assets.Asset(stack, "MmeLambdaCode", path=folder, display_name="mme-constructs functions")
        cdk.Annotations.of(asset).acknowledge_warning(
            "@aws-cdk/aws-lambda:codeFromBucketObjectVersionNotSpecified", "The key is the hash of the content: other code has another key."
        )
        return asset

    @staticmethod
    def code(scope: Construct) -> lambda_.Code:
        """The asset as the code of a function in ``scope``'s stack; raises `LambdaCodeError`."""
        asset = LambdaCode.of(scope)
        return lambda_.Code.from_bucket(asset.bucket, asset.s3_object_key)


def copy_packages(folder: Path) -> None:
    """Copy the packages into ``folder`` as Lambda unpacks them.

    Packages are located, never imported: importing ours would load boto3.

    Args:
        folder: an existing folder.

    Raises:
        LambdaCodeError: a package is not installed.
    """
    for name in PACKAGES:
        for source, relative in _files(name):
            target = folder / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for path in folder.rglob("*"):
        # Lambda runs the code as another user: a checkout under a strict umask must not produce files that it cannot read.
        path.chmod(0o755 if path.is_dir() else 0o644)


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
