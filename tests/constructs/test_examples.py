"""Every example: it synthesizes as a program of its own, the rule packs find nothing unacknowledged, cfn-lint neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mme_local.toolchain import node

EXAMPLES = sorted(path.parent for path in (Path(__file__).parents[2] / "examples").glob("*/app.py"))
PACKS = {"AwsSolutions", "NIST.800.53.R5"}


@pytest.fixture(scope="module", params=EXAMPLES, ids=lambda path: path.name)
def synthesized(request, tmp_path_factory):
    """The cloud assembly of an example, synthesized with both rule packs."""
    example, outdir = request.param, tmp_path_factory.mktemp(request.param.name)
    context = json.loads((example / "cdk.json").read_text("utf-8")).get("context", {})
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CDK_")}
    environment |= {"CDK_OUTDIR": str(outdir), "CDK_CONTEXT_JSON": json.dumps(context), "JSII_NODE": str(node())}
    environment |= {"CDK_VALIDATION": "false", "CDK_DEFAULT_ACCOUNT": "123456789012", "CDK_DEFAULT_REGION": "eu-central-1"}
    runner = Path(__file__).with_name("run_with_rule_packs.py")
    done = subprocess.run([sys.executable, runner, "app.py"], cwd=example, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return outdir


def test_the_rule_packs_find_nothing_that_is_not_acknowledged(synthesized):
    reports = {
        report["pluginName"]: report for report in json.loads((synthesized / "validation-report.json").read_text("utf-8"))["pluginReports"]
    }
    assert set(reports) >= PACKS
    assert [report["violations"] for report in reports.values()] == [[] for _ in reports]


def test_cfn_lint_finds_neither_error_nor_warning(synthesized):
    from cfnlint.api import ManualArgs, lint_file

    # W3005: CDK lets a function depend on its role besides the policy; the role alone is implied by a reference.
    config = ManualArgs(regions=["eu-central-1"], ignore_checks=["W3005"])
    templates = sorted(synthesized.glob("*.template.json"))
    assert templates
    for path in templates:
        assert [str(match) for match in lint_file(path, config)] == [], path.name
