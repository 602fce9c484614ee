"""The functions' code: complete on its own, the same every time, nothing in it that Lambda does not run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import aws_cdk as cdk
import boto3
import pytest
from constructs import Construct

from mme_constructs import lambda_code
from mme_constructs.errors import LambdaCodeError
from mme_constructs.lambda_code import PACKAGES, LambdaCode, collect, write_zip
from mme_local.toolchain import node

HANDLERS = ("onboarding", "admission", "invocation")


@pytest.fixture(scope="module")
def asset(tmp_path_factory):
    base = tmp_path_factory.mktemp("asset")
    with (base / "code.zip").open("wb") as archive:
        write_zip(collect(), archive)
    with zipfile.ZipFile(base / "code.zip") as archive:
        archive.extractall(base / "code")
    return base / "code"


def test_the_asset_holds_its_packages_and_nothing_but_code(asset):
    assert {path.name.removesuffix(".py") for path in asset.iterdir()} == set(PACKAGES)
    files = [path for path in asset.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".py", ".json"}
    assert [path for path in asset.rglob("*") if path.name == "__pycache__" or path.name.endswith(".dist-info")] == []


def test_the_asset_brings_the_document_that_the_api_serves_and_not_what_writes_it(asset):
    assert json.loads((asset / "mme_tenancy" / "openapi.json").read_text("utf-8"))["openapi"].startswith("3.1")
    assert not {"mme_cli", "pydantic", "jsonschema_rs"} & {path.name for path in asset.iterdir()}


def test_the_asset_stays_far_below_lambdas_limit(asset):
    assert sum(path.stat().st_size for path in asset.rglob("*") if path.is_file()) < 10_000_000


def test_every_file_can_be_read_by_lambdas_user_whatever_the_umask_and_carries_no_time(tmp_path):
    before = os.umask(0o077)
    try:
        with (tmp_path / "code.zip").open("wb") as archive:
            write_zip(collect(), archive)
    finally:
        os.umask(before)
    with zipfile.ZipFile(tmp_path / "code.zip") as archive:
        assert {entry.external_attr >> 16 for entry in archive.infolist()} == {0o100644}
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_handler_imports_from_the_asset_and_boto3_alone(asset, handler):
    """A module missing from the asset would otherwise come from the developer's environment, silently."""
    boto3_home = Path(boto3.__file__).parents[1]
    script = (
        "import sys\n"
        f"asset, site = {str(asset)!r}, {str(boto3_home)!r}\n"
        "class OnlyBoto3:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        from importlib.machinery import PathFinder\n"
        "        if name.partition('.')[0] in ('boto3', 'botocore', 's3transfer', 'dateutil', 'six', 'urllib3', 'jmespath'):\n"
        "            return PathFinder.find_spec(name, path or [site])\n"
        "sys.path.insert(0, asset)\n"
        "sys.meta_path.append(OnlyBoto3())\n"
        "sys.dont_write_bytecode = True\n"
        "import importlib\n"
        f"module = importlib.import_module('mme_tenancy.handlers.{handler}')\n"
        "assert callable(module.handler)\n"
        "for name in ('mme_tenancy', 'mme_facts', 'aws_lambda_powertools', 'jmespath'):\n"
        "    assert name not in sys.modules or sys.modules[name].__file__.startswith(asset), name\n"
    )
    environment = {"AWS_DEFAULT_REGION": "us-east-1", "PATH": ""}
    result = subprocess.run([sys.executable, "-I", "-S", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def _hash_in_a_fresh_process() -> str:
    script = "import aws_cdk\nfrom mme_constructs import LambdaCode\nprint(LambdaCode.of(aws_cdk.Stack(aws_cdk.App(), 'Test')).asset_hash)"
    environment = os.environ | {"JSII_NODE": str(node()), "PYTHONHASHSEED": "random"}
    return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_the_hash_is_the_same_in_every_process():
    here = LambdaCode.of(cdk.Stack(cdk.App(), "Test")).asset_hash
    assert _hash_in_a_fresh_process() == here
    assert len(here) == 64


def test_a_stack_has_one_asset_and_no_folder_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stack = cdk.Stack(cdk.App(outdir=str(tmp_path / "cdk.out")), "Test")
    assert LambdaCode.of(stack).node.path == LambdaCode.of(Construct(stack, "Below")).node.path
    assert [path.name for path in tmp_path.iterdir()] == ["cdk.out"]
    assert len(list((tmp_path / "cdk.out").glob("asset.*"))) == 1


def test_changed_code_has_another_hash(tmp_path, monkeypatch):
    package = tmp_path / "marked_package"
    package.mkdir()
    (package / "__init__.py").write_text("MARK = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(lambda_code, "PACKAGES", ("marked_package",))
    hashes = []
    for mark in ("MARK = 1\n", "MARK = 2\n", "MARK = 1\n"):
        (package / "__init__.py").write_text(mark)
        hashes.append(LambdaCode.of(cdk.Stack(cdk.App(), "Test")).asset_hash)
    assert hashes[0] == hashes[2] != hashes[1]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(lambda_code, "PACKAGES", ("no_such_package",))
    with pytest.raises(LambdaCodeError, match="not installed: got 'no_such_package'"):
        collect()
