"""Warming by hand: a version before it gets requests, and a fleet by ``mme warm-up``, with real servers on a local cloud."""

import json
import subprocess
import sys
import time

import pytest

from mme_facts.api import ACTIVATION_SECONDS
from mme_facts.grammar import ArtifactName, HeatKey
from mme_local import FaultsClient, KillInstance, SlowLoad
from mme_tenancy.aws.heat import S3Heat
from mme_tenancy.heat import Counts, ModelHeat, PoolHeat
from tests.e2e.support import onboard_model, only_endpoint, problem, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

TENANT, MODEL = "acme", "two-versions"
PATH = f"/tenants/{TENANT}/models/{MODEL}"
LOAD_SECONDS = ACTIVATION_SECONDS + 6.0
WINDOW = 300


@pytest.fixture(scope="module")
def faults(own_platform):
    """The local cloud's faults."""
    client = FaultsClient(lambda: own_platform.state.endpoint_url)
    yield client
    client.clear()


@pytest.fixture(scope="module")
def versions(own_platform, demo_models):
    """Two versions of one model, the second one active."""
    folder, prepared = demo_models
    own_platform.admin_client().expect((200, 201), "PUT", f"/tenants/{TENANT}", {})
    client, known = own_platform.tenant_client(TENANT), {each.model: each for each in prepared}
    chosen = [known["iris"], known["iris-deep"]]
    return [onboard_model(client, TENANT, MODEL, (folder / each.artifact).read_bytes(), each.rows[0]) for each in chosen]


@pytest.fixture(scope="module")
def mme(own_platform, tmp_path_factory):
    """Runs a command in a folder in which the local cloud runs; its exit status and document."""
    folder = tmp_path_factory.mktemp("here")
    own_platform.state.write(folder / ".mme")

    def mme(*arguments):
        command = [sys.executable, "-m", "mme_cli.main", *arguments, "--json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr

    return mme


def empty_memories(platform, faults):
    """Every instance starts again, with nothing loaded."""
    before = {instance["id"]: instance["restarts"] for instance in only_endpoint(platform)["instances"]}
    faults.put(KillInstance(endpoint="*"))

    def back():
        instances = only_endpoint(platform)["instances"]
        return all(each["state"] == "up" and each["restarts"] > before[each["id"]] for each in instances)

    wait_until(back, what="the instances with empty memories")


def loads_of(platform, version):
    """How often a version was loaded so far."""
    name = f"{TENANT}/{MODEL}/{version}.tar.gz"
    return sum(count for model, count in only_endpoint(platform)["loads_by_model"].items() if model.endswith(name))


def test_requests_are_switched_to_a_version_only_once_it_is_loaded_or_at_once_if_that_is_wanted(own_platform, versions, faults):
    client, (first, second) = own_platform.tenant_client(TENANT), versions
    empty_memories(own_platform, faults)
    faults.put(SlowLoad(model=f"{TENANT}/*", seconds=LOAD_SECONDS))
    loads = loads_of(own_platform, first)

    def activate(version, **wish):
        began = time.monotonic()
        body = json.dumps({"version": version, **wish}).encode()
        answer = client.call("POST", f"{PATH}/activate", body, {"content-type": "application/json"})
        return answer, time.monotonic() - began

    refused, seconds = activate(first)
    problem(refused, 503, "not-warmed")
    assert int(refused.headers["retry-after"]) >= 1
    assert ACTIVATION_SECONDS - 2 < seconds < ACTIVATION_SECONDS + 5
    assert client.expect((200,), "GET", PATH).json()["active_version"] == second
    answer = wait_until(lambda: (tried := activate(first)[0]).status == 200 and tried, what="the version, loaded meanwhile")
    assert answer.json()["active_version"] == first
    assert loads_of(own_platform, first) == loads + 1
    answer, seconds = activate(second, warm=False)
    assert (answer.status, answer.json()["active_version"]) == (200, second)
    assert seconds < 10
    faults.clear()


def test_a_fleet_is_planned_warmed_and_told_of_by_the_command(own_platform, versions, faults, mme):
    empty_memories(own_platform, faults)
    status, planned = mme("warm-up", "--dry-run")
    assert (status, planned["steps"]) == (0, []), "nobody is known to use anything"

    row = ModelHeat(TENANT, MODEL, versions[1], Counts(requests=30, served_ms=300.0))
    unknown = ModelHeat(TENANT, "no-model", versions[1], Counts(requests=30))
    end = int(time.time()) // WINDOW * WINDOW
    heat = PoolHeat(HeatKey(planned["pool"], end - WINDOW, WINDOW), (planned["endpoint"],), (row, unknown))
    assert S3Heat(own_platform.client("s3"), own_platform.state.output("BucketName")).create(heat)
    _, planned = mme("warm-up", planned["pool"], "--dry-run")
    (step,) = planned["steps"]
    active = ArtifactName.parse(step["target_model"])
    assert (active.tenant, active.model, str(active.version)) == (TENANT, MODEL, versions[1])
    assert step["requests_per_second"] > 0
    assert (planned["heat"]["windows"], planned["heat"]["unknown"]) == (1, 1)

    before = own_platform.client("logs").filter_log_events(logGroupName=own_platform.state.output("InvocationLogGroup"))["events"]
    loads = loads_of(own_platform, versions[1])
    status, done = mme("warm-up", "--now")
    assert (status, done["warm_up"]["state"]) == (0, "done"), done
    summary = done["warm_up"]["summary"]
    assert (summary["planned"], summary["warmed"], summary["failed"]) == (1, 1, [])
    assert loads_of(own_platform, versions[1]) >= loads
    _, shown = mme("warm-up")
    assert shown[0]["warm_up"] == done["warm_up"]
    after = own_platform.client("logs").filter_log_events(logGroupName=own_platform.state.output("InvocationLogGroup"))["events"]
    assert len(after) == len(before), "nobody's line tells of it"

    number = done["warm_up"]["change"]["number"]
    _, again = mme("warm-up", planned["endpoint"], "--now")
    assert again["warm_up"]["change"]["number"] > number
    assert again["warm_up"]["summary"]["loaded"] == 0, "it was there already"
