"""``mme up``, ``deploy``, the README's curl lines, ``cdk diff``, ``destroy``, deploy again, Ctrl-C: as the README tells it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from mme_cli.local_state import LocalState
from mme_cli.platform import LocalPlatform
from tests.e2e.support import PROJECT, wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture
def checkout(tmp_path):
    """A copy of the checkout with this environment in the place of its own."""
    copy = tmp_path / "checkout"
    leave = shutil.ignore_patterns(".venv", ".git", ".mme", "cdk.out", "build", "dist", ".*_cache", "__pycache__", "tests")
    shutil.copytree(PROJECT, copy, ignore=leave)
    (copy / ".venv").symlink_to(Path(sys.prefix))
    return copy


@pytest.fixture
def scratch():
    """A temporary folder of the cloud's own, with a short path for its sockets."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        yield Path(folder)


def readme_block(language):
    (block,) = re.findall(rf"```{language}\n(.*?)```", (PROJECT / "README.md").read_text("utf-8"), re.DOTALL)
    return block


def run(command, checkout, **options):
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False, timeout=200, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_readmes_story_from_up_to_ctrl_c(checkout, scratch):
    mme = [sys.executable, "-m", "mme_cli.main"]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    up = subprocess.Popen([*mme, "up"], cwd=checkout, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_until((checkout / ".mme" / "local.json").exists, what="the local cloud")
        run([*mme, "deploy"], checkout)

        shown = run(["bash", "-euo", "pipefail", "-c", readme_block("bash")], checkout)
        (probabilities,) = json.loads(shown.strip().splitlines()[-1])
        assert sum(probabilities) == pytest.approx(1)
        assert max(probabilities) == probabilities[0]  # a setosa

        endpoints = json.loads(run([*mme, "status", "--json"], checkout))["endpoints"]
        assert sum(endpoint["requests"] for endpoint in endpoints) > 0

        run([*mme, "cdk", "diff", "--fail", "-c", "environment=local"], checkout)

        platform = LocalPlatform(LocalState.read(checkout / ".mme"))
        cloudformation = platform.client("cloudformation")
        stacks = {
            stack["StackName"]: stack["StackId"]
            for stack in cloudformation.describe_stacks()["Stacks"]
            if "CDKToolkit" not in stack["StackName"]
        }
        assert set(stacks) == {"MmeStorage", "MmePlatform"}
        run([*mme, "destroy"], checkout)
        for stack_id in stacks.values():
            (stack,) = cloudformation.describe_stacks(StackName=stack_id)["Stacks"]
            assert stack["StackStatus"] == "DELETE_COMPLETE", stack

        run([*mme, "deploy"], checkout)
        LocalPlatform(LocalState.read(checkout / ".mme")).admin_client().expect((201,), "PUT", "/tenants/again", {})

        children = psutil.Process(up.pid).children(recursive=True)
        assert children
        up.send_signal(signal.SIGINT)
        output, errors = up.communicate(timeout=60)
        assert up.returncode == 0, errors
        assert "Traceback" not in output + errors
        assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
        assert not (checkout / ".mme").exists()
        assert not list(scratch.iterdir())
    finally:
        if up.poll() is None:
            os.kill(up.pid, signal.SIGINT)
            up.communicate(timeout=60)
