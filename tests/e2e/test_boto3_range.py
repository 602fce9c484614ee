"""The retry table with the oldest and the newest boto3 that we support: each has an environment of its own."""

import os
import re
import subprocess

import pytest

from tests.e2e.foreign import LOCKS, environment
from tests.e2e.support import PROJECT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROWS = "tests/tenancy/test_retries_on_the_wire.py"


def locked(name, package="botocore"):
    """The version that the environment's lock names."""
    return re.search(rf"^{package}==(\S+)", (LOCKS / f"{name}.lock").read_text(), re.MULTILINE)[1]


def test_the_range_begins_where_the_project_says():
    oldest = locked("boto3-oldest", "boto3")
    assert oldest == locked("boto3-oldest")
    assert f'"boto3>={oldest.removesuffix(".0")},<2"' in (PROJECT / "pyproject.toml").read_text()


@pytest.mark.parametrize("name", ["boto3-oldest", "boto3-newest"])
def test_each_row_of_the_retry_table_holds(name):
    python = environment(name) / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", "-o", "addopts=--import-mode=importlib", ROWS],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "lambda")]), "MME_TESTED_BOTOCORE": locked(name)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
