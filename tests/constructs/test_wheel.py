"""The wheel, installed outside the checkout, synthesizes an app whose functions' code is complete."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import aws_cdk as cdk
import pytest

from mme_constructs.lambda_code import LambdaCode, collect
from mme_local.toolchain import node

pytestmark = pytest.mark.xdist_group("wheel")

CHECKOUT = Path(__file__).parents[2]

(APP,) = re.findall(r"```python\n(.*?)```", (CHECKOUT / "README.md").read_text("utf-8"), re.DOTALL)
"""The README's example."""


def _run(*command, cwd, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CDK_", "VIRTUAL_ENV"))}
    result = subprocess.run([str(part) for part in command], cwd=cwd, env=clean | environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Python of an environment with the wheel in it, third-party packages from ours, and nothing of the checkout."""
    base = tmp_path_factory.mktemp("wheel")
    # Built from a copy: a build inside the checkout would see files of other tests.
    source = base / "source"
    shutil.copytree(
        CHECKOUT,
        source,
        ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "cdk.out", "build", "dist", ".mme", "tests", "docs"),
    )
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", base / "dist", source, cwd=base)
    (wheel,) = (base / "dist").glob("*.whl")
    home = base / "env"
    venv.EnvBuilder(with_pip=False, symlinks=True).create(home)
    python = home / "bin" / "python"
    site = Path(_run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=base).strip())
    _run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--no-compile", wheel, cwd=base)
    # A line that is a folder only adds the folder: the .pth files in it, our editable install among them, are not read.
    (site / "third_party.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    (base / "app.py").write_text(APP, "utf-8")
    return base, python, site


def test_our_packages_come_from_the_wheel(installed):
    base, python, site = installed
    packages = ["mme_facts", "mme_constructs", "mme_tenancy", "mme_fleet", "mme_local", "mme_cli"]
    script = f"import importlib.util as u, json; print(json.dumps([u.find_spec(name).origin for name in {packages}]))"
    origins = json.loads(_run(python, "-c", script, cwd=base))
    assert [origin for origin in origins if not origin.startswith(str(site))] == []


def test_the_wheel_carries_types_data_and_no_stacks(installed):
    _, _, site = installed
    for package in ("mme_facts", "mme_constructs", "mme_tenancy"):
        assert (site / package / "py.typed").is_file()
    assert (site / "mme_facts" / "images.json").is_file()
    pages = Path("mme_local", "console", "static")
    assert {page.name for page in (site / pages).iterdir()} == {page.name for page in (CHECKOUT / pages).iterdir()}
    assert not (site / "stacks").exists()
    assert not (site / "tests").exists()


def test_a_ten_line_app_outside_the_checkout_synthesizes_with_complete_functions(installed, tmp_path):
    base, python, _ = installed
    outdir = tmp_path / "cdk.out"
    _run(python, "app.py", cwd=base, CDK_OUTDIR=str(outdir), CDK_VALIDATION="false", JSII_NODE=str(node()))
    template = json.loads((outdir / "Ten.template.json").read_text("utf-8"))
    assert sum(resource["Type"] == "AWS::Lambda::Function" for resource in template["Resources"].values()) == 2
    (packed,) = outdir.glob("asset.*.zip")
    asset = tmp_path / "asset"
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(asset)
    assert _contents(asset) == collect(), "the wheel's code is the checkout's"
    assert packed.name == f"asset.{LambdaCode.of(cdk.Stack(cdk.App(), 'Test')).asset_hash}.zip", "and so is its hash"
    for handler in ("onboarding", "admission", "invocation"):
        script = f"import sys; sys.path.insert(0, {str(asset)!r}); from mme_tenancy.handlers import {handler} as m; print(m.__file__)"
        found = _run(python, "-c", script, cwd=tmp_path, AWS_DEFAULT_REGION="us-east-1", PYTHONDONTWRITEBYTECODE="1")
        assert found.startswith(str(asset))


def _contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
