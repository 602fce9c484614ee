"""Every CloudFormation type that the reference app and the examples emit can be provisioned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from mme_local.toolchain import node

ROOT = Path(__file__).parents[2]
APPS = [ROOT, *sorted(path.parent for path in (ROOT / "examples").glob("*/app.py"))]


@cache
def provisioned():
    """The types, asked of another process: the emulator stays out of this one."""
    command = [sys.executable, "-m", "mme_local.cloudformation.types"]
    return frozenset(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def emitted(app, outdir):
    """The types in all templates of an app, those of nested stages too."""
    context = json.loads((app / "cdk.json").read_text("utf-8")).get("context", {})
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CDK_")}
    environment |= {"CDK_OUTDIR": str(outdir), "CDK_CONTEXT_JSON": json.dumps(context), "CDK_VALIDATION": "false", "JSII_NODE": str(node())}
    done = subprocess.run([sys.executable, "app.py"], cwd=app, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    templates = [json.loads(path.read_text("utf-8")) for path in outdir.rglob("*.template.json")]
    return {resource["Type"] for template in templates for resource in template.get("Resources", {}).values()}


@pytest.mark.parametrize("app", APPS, ids=lambda path: path.name if path != ROOT else "reference")
def test_every_type_of_an_app_has_a_provisioner(app, tmp_path):
    types = emitted(app, tmp_path / "cdk.out")
    assert types >= {"AWS::SageMaker::Endpoint"}
    assert {name for name in types if not name.startswith("Custom::")} - provisioned() == set()


def test_a_type_that_nobody_provisions_is_not_listed():
    assert "AWS::SageMaker::Endpoint" in provisioned()
    assert "AWS::SageMaker::NotebookInstance" not in provisioned()
