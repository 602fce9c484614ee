"""The reference app through the real CDK CLI: bootstrap, deploy, diff, destroy, deploy again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mme_local import LocalCloud

ROOT = Path(__file__).parents[2]
STACKS = {"MmeStorage", "MmePlatform"}


@pytest.fixture
def cdk(local_cloud: LocalCloud, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # Node and the CLI come from Python packages alone
    environment = {"HOME": str(tmp_path), **local_cloud.environment()}

    def run(*arguments: str) -> str:
        command = ["cdk", "--app", f"{sys.executable} app.py", "--output", str(tmp_path / "cdk.out"), "-c", "environment=local", *arguments]
        ran = subprocess.run(["/usr/bin/env", *command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
        return ran.stdout + ran.stderr

    return run


def statuses(cloud):
    stacks = cloud.client("cloudformation").list_stacks()["StackSummaries"]
    return {(stack["StackName"], stack["StackStatus"]) for stack in stacks if stack["StackName"] in STACKS}


@pytest.mark.e2e
def test_the_reference_app_deploys_without_differences_goes_completely_and_deploys_again(cdk, local_cloud):
    cdk("bootstrap", f"aws://{local_cloud.account}/{local_cloud.region}")
    cdk("deploy", "--all", "--require-approval", "never")
    assert statuses(local_cloud) == {(name, "CREATE_COMPLETE") for name in STACKS}
    assert [endpoint["status"] for endpoint in local_cloud.status()["endpoints"]] == ["InService"]
    assert "Number of stacks with differences: 0" in cdk("diff", "--fail")
    cdk("destroy", "--all", "--force")
    assert statuses(local_cloud) == {(name, "DELETE_COMPLETE") for name in STACKS}
    assert local_cloud.status() == {"endpoints": []}
    assert local_cloud.client("s3").list_buckets()["Buckets"] != [], "the bootstrap bucket stays"
    cdk("deploy", "--all", "--require-approval", "never")
    assert [endpoint["status"] for endpoint in local_cloud.status()["endpoints"]] == ["InService"]
