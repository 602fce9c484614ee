"""``mme demo`` as a newcomer runs it, with an artifact that someone tampered with, and without."""

import json
import shutil
import subprocess
import sys

import pytest

from mme_cli.demo import models
from tests.e2e.support import PROJECT


def run_demo(folder):
    return subprocess.run(
        [sys.executable, "-m", "mme_cli.main", "demo", "--json", "--project", str(PROJECT), "--models", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


@pytest.fixture
def prepared(demo_models, tmp_path):
    shutil.copytree(demo_models[0], tmp_path / "models")
    return tmp_path / "models"


def test_the_demo_fails_when_one_artifact_was_tampered_with(prepared):
    shutil.copy(prepared / "initech-iris-deep.tar.gz", prepared / "acme-iris.tar.gz")  # it answers, but not what iris answers
    done = run_demo(prepared)
    assert done.returncode == 1, done.stderr
    assert "acme/iris (by " in done.stderr
    assert "Traceback" not in done.stderr
    report = json.loads(done.stdout)
    assert report["holds"] is False
    assert [row["model"] for row in report["rows"] if not row["difference"] <= report["tolerance"]] == ["iris"]


@pytest.mark.e2e
def test_the_demo_holds(prepared):
    done = run_demo(prepared)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["holds"] is True
    assert report["evictions"] > 0
    assert 0 < report["hit_ratio"] < 1
    assert len(report["rows"]) == len(models.DEMO_MODELS)
    assert all(row["cold_loads"] >= 1 and row["warm_ms"] > 0 for row in report["rows"])
