"""``mme onboard`` and its sisters against the reference app on a local cloud with simulated servers: single models, parts, and a thousand
models by manifest with three Ctrl-C on the way."""

import csv
import gzip
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.bulk import small_artifact
from mme_cli.cdk import deploy
from mme_cli.local_state import LocalState
from mme_cli.platform import LocalPlatform
from mme_local import LocalCloud, LocalSettings
from mme_local.dataplane import DataPlaneSettings
from tests.e2e.support import PROJECT, wait_until

pytestmark = pytest.mark.e2e

TENANTS = [f"tenant-{number}" for number in range(7)]
COMMAND = [sys.executable, "-m", "mme_cli.main"]


@pytest.fixture(scope="module")
def cloud():
    with LocalCloud(settings=LocalSettings(data_plane=DataPlaneSettings(servers={"*": "simulated"}))) as running:
        yield running


@pytest.fixture(scope="module")
def here(cloud, tmp_path_factory):
    """A folder in which the local cloud runs, with the reference app deployed and its tenants."""
    folder = tmp_path_factory.mktemp("here")
    state = LocalState(cloud.endpoint_url, cloud.region, cloud.account, os.getpid(), cloud.admin, cloud.environment())
    deploy(state, PROJECT, print, "--output", str(tmp_path_factory.mktemp("cdk.out"))).write(folder / ".mme")
    for tenant in TENANTS:
        mme(folder, "tenants", "set", tenant)
    (folder / "row.csv").write_text("5.1,3.5,1.4,0.2\n")
    return folder


def mme(folder, *arguments, status=0):
    """What a command prints."""
    done = subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == status, f"{arguments}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout if status == 0 else done.stdout + done.stderr


def large_artifact(size_bytes):
    """A right artifact of at least so many bytes, in parts above 8 MiB."""
    plain, noise = io.BytesIO(), random.Random(1).randbytes(size_bytes)
    with tarfile.open(fileobj=plain, mode="w") as archive:
        member = gzip.decompress(small_artifact(0))
        with tarfile.open(fileobj=io.BytesIO(member)) as small:
            (model,) = small.getmembers()
            content = small.extractfile(model).read()
        for name, data in (("xgboost-model", content), ("docs/noise.txt", noise)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), 1, mtime=0)


def test_a_model_from_its_artifact_to_its_retirement(cloud, here):
    (here / "first.tar.gz").write_bytes(small_artifact(1))
    (here / "second.tar.gz").write_bytes(large_artifact(20 << 20))
    acme = TENANTS[0]
    first = json.loads(mme(here, "onboard", acme, "iris", "first.tar.gz", "--sample", "row.csv", "--json"))
    assert (first["state"], first["admitted"]) == ("active", True)
    before = cloud.calls()["calls"]["s3"]
    second = json.loads(mme(here, "onboard", acme, "iris", "second.tar.gz", "--sample", "row.csv", "--notes", "in parts", "--json"))
    assert (second["state"], second["version"][:3]) == ("active", "v2-")
    after = cloud.calls()["calls"]["s3"]
    assert after["UploadPart"] - before.get("UploadPart", 0) == 3
    again = json.loads(mme(here, "onboard", acme, "iris", "second.tar.gz", "--sample", "row.csv", "--json"))
    assert again["version"] == second["version"]

    assert f"{second['version']} is active" in mme(here, "models", acme, "iris")
    assert "notes: in parts" in mme(here, "models", acme, "iris", second["version"])
    assert f"{first['version']} is active" in mme(here, "activate", acme, "iris", first["version"])
    canary = json.loads(mme(here, "activate", acme, "iris", second["version"], "--canary", "10", "--json"))
    assert (canary["active_version"], canary["canary"]["version"]) == (first["version"], second["version"])
    assert "10 %" in mme(here, "models", acme)
    mme(here, "retire", acme, "iris", second["version"], "--yes")
    assert "retired" in mme(here, "models", acme, "iris", second["version"])
    assert "retired" in mme(here, "retire", acme, "iris", "--yes")
    assert json.loads(mme(here, "models", acme, "--json"))["models"] == []


def test_a_rejected_artifact_is_told_by_member_rule_and_fix(here):
    (here / "broken.tar.gz").write_bytes(small_artifact(2)[:-4] + b"\0\0\0\1")
    output = mme(here, "onboard", TENANTS[0], "broken", "broken.tar.gz", "--framework", "xgboost", "--sample", "row.csv", status=1)
    assert "rejected: gzip" in output
    assert "fix: " in output
    assert "is rejected" in output


def page_blocks(language):
    return re.findall(
        rf"^```{language}\n(.*?)^```", (PROJECT / "docs" / "tasks" / "onboard.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )


def test_the_tenants_page_runs_as_it_stands_with_curl_and_with_python(here, tmp_path):
    shutil.copytree(here / ".mme", tmp_path / ".mme")
    mme(here, "tenants", "set", "acme")
    (tmp_path / "row.csv").write_text("5.1,3.5,1.4,0.2\n")
    (tmp_path / "iris.tar.gz").write_bytes(small_artifact(3))
    (tmp_path / "wine.tar.gz").write_bytes(large_artifact(18 << 20))
    binaries = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    script = "\n".join(["set -euo pipefail", *page_blocks("bash")])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env={**os.environ, **binaries}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "5.1,3.5,1.4,0.2" in done.stdout, "the simulated server answers with the request"
    assert '"percent": 10' in done.stdout
    assert "cached_copies" in done.stdout.splitlines()[-1]

    variables = json.loads(mme(here, "credentials", "--tenant", "acme", "--json"))
    (block,) = page_blocks("python")
    environment = {**os.environ, **variables, "AWS_DEFAULT_REGION": variables["AWS_REGION"]}
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.count("'active'") == 2
    assert "5.1,3.5,1.4,0.2" in done.stdout


def test_quotas_are_set_and_hold(here):
    small = TENANTS[1]
    mme(here, "tenants", "set", small, "--models", "1")
    shown = json.loads(mme(here, "tenants", "show", small, "--json"))["tenants"][0]
    assert shown["quotas"]["models"] == 1
    lines = ["tenant,model,artifact,sample", f"{small},one,first.tar.gz,row.csv", f"{small},two,first.tar.gz,row.csv"]
    (here / "first.tar.gz").write_bytes(small_artifact(1))
    (here / "quota.csv").write_text("\n".join(lines))
    output = mme(here, "onboard", "--manifest", "quota.csv", "--concurrency", "1", status=1)
    assert "1 of 2 models admitted" in output
    assert "quota" in output
    mme(here, "tenants", "set", small, "--models", "5000")
    mme(here, "onboard", "--manifest", "quota.failed.csv")
    mme(here, "tenants", "delete", small, "--yes")
    assert "deleted" in mme(here, "tenants", "show", small)
    assert "answered 410" in mme(here, "onboard", small, "three", "first.tar.gz", "--sample", "row.csv", status=1)
    mme(here, "tenants", "set", small)  # begins anew


def test_the_api_is_called_by_its_address_with_ones_own_credentials(cloud, here):
    platform = LocalPlatform(LocalState.read(here / ".mme"))
    keys = platform.tenant_keys(TENANTS[2])
    variables = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": keys.access_key_id,
        "AWS_SECRET_ACCESS_KEY": keys.secret_access_key,
        "AWS_SESSION_TOKEN": keys.session_token,
        "AWS_REGION": cloud.region,
    }
    address = ["--api-url", platform.state.output("ApiUrl"), "--json"]
    done = subprocess.run([*COMMAND, "models", TENANTS[2], *address], env=variables, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"tenant": TENANTS[2], "models": []}
    other = subprocess.run([*COMMAND, "models", TENANTS[3], *address], env=variables, capture_output=True, text=True, check=False, cwd="/")
    assert (other.returncode, "answered 403" in other.stderr) == (1, True)


def test_the_api_is_found_by_the_stack_that_made_it(cloud, here):
    state = LocalState.read(here / ".mme")
    variables = {**os.environ, **state.client_variables}
    del variables["AWS_SESSION_TOKEN"]
    done = subprocess.run(
        [*COMMAND, "models", TENANTS[2], "--stack", "MmeStorage"], env=variables, capture_output=True, text=True, check=False, cwd="/"
    )
    assert (done.returncode, "has no output ApiUrl" in done.stderr) == (1, True)
    none = subprocess.run([*COMMAND, "models", TENANTS[2], "--stack", "No"], env=variables, capture_output=True, text=True, check=False)
    assert (none.returncode, "cannot be read" in none.stderr) == (1, True)


def test_a_thousand_models_with_three_interruptions_are_active_and_none_twice(cloud, here):
    names = [(TENANTS[number % len(TENANTS)], f"bulk-{number}") for number in range(1000)]
    folder = here / "bulk"
    folder.mkdir()
    with (here / "bulk.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["tenant", "model", "artifact", "sample"])
        for number, (tenant, model) in enumerate(names):
            (folder / f"{number}.tar.gz").write_bytes(small_artifact(1000 + number))
            lines.writerow([tenant, model, f"bulk/{number}.tar.gz", "row.csv"])
    command = [*COMMAND, "onboard", "--manifest", "bulk.csv", "--json"]

    def uploads():
        return cloud.calls()["calls"]["s3"].get("PutObject", 0)

    before = uploads()
    for reached in (150, 450, 800):
        process = subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_until(lambda at=reached: uploads() - before >= at, seconds=280, what=f"{reached} uploads")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        assert (process.returncode, output) == (130, ""), errors
        assert "interrupted: what was done is in 'bulk.csv.journal'" in errors
        assert "Traceback" not in errors
        assert (here / "bulk.csv.journal").exists()
    report = json.loads(mme(here, *command[3:]))
    assert (report["models"], report["admitted"], report["failed"]) == (1000, 1000, 0)
    assert not (here / "bulk.csv.journal").exists()

    listed = {
        (tenant, model["model"]): model
        for tenant in TENANTS
        for model in json.loads(mme(here, "models", tenant, "--json"))["models"]
        if model["model"].startswith("bulk-")
    }
    assert listed.keys() == set(names)
    assert {(model["last_version"], model["active_version"][:3]) for model in listed.values()} == {(1, "v1-")}
    s3, bucket = cloud.client("s3"), LocalState.read(here / ".mme").output("BucketName")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="models/")
    stored = [item["Key"] for page in pages for item in page.get("Contents", []) if "/bulk-" in item["Key"]]
    assert len(stored) == 1000
    assert cloud.calls()["by_services"]["s3"]["GetObject"] >= 1000, "each was loaded by SageMaker itself"
