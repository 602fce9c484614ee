"""The sweep's function: one line with counts and metrics, the same as its answer; wired on the local cloud."""

from __future__ import annotations

import importlib
import json

import pytest

from mme_facts import environment as variables
from mme_facts.environment import SweepTimes, dump_sweep_times
from mme_facts.metrics import metric
from mme_tenancy.aws.clients import dynamodb_client, s3_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.clock import SystemClock, timestamp
from mme_tenancy.handlers.sweep import Sweep
from mme_tenancy.registry import Change
from mme_tenancy.routes import Model
from mme_tenancy.sweep import Sweeper
from mme_tenancy.testing import MemoryArtifacts, MemoryRegistry
from mme_tenancy.testing_sweep import MemoryAdmissions, MemorySweepIndex, MemorySweepObjects
from mme_tenancy.versions import State


@pytest.fixture
def sweep(clock):
    """The function over fakes, with one version to expire and one that nobody can resume."""

    class Down(MemoryAdmissions):
        def resume(self, upload):
            raise ConnectionError("down")

    registry, artifacts = MemoryRegistry(), MemoryArtifacts()
    sweeper = Sweeper(registry, MemorySweepIndex(registry), MemorySweepObjects(artifacts), Down(), clock)
    return Sweep(sweeper, clock, "sweeper-1"), registry, artifacts


def test_the_line_is_the_answer_with_metrics_of_the_catalogue(sweep, clock, context, make_version, capsys):
    function, registry, artifacts = sweep
    long_ago = timestamp(clock.time() - 48 * 3600)
    stuck = make_version(State.WARMING, number=2, updated_at=long_ago)
    registry.write(Change(None, make_version(updated_at=long_ago)), Change(None, stuck))
    artifacts.admitted[stuck.name.artifact_key()] = b"artifact"
    answer = function(context)
    line = json.loads(capsys.readouterr().out)
    assert (answer["expired"], answer["failed"], answer["oldest_stuck_seconds"]) == (1, 1, 48 * 3600)
    assert answer["failures"] == [{"what": "acme/iris/v2", "error": "ConnectionError: down"}]
    assert line | answer == line
    assert (line["message"], line["function"]) == ("swept", "sweeper-1")
    assert line["_aws"]["Timestamp"] == int(clock.time() * 1000)
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    names = {item["Name"] for item in directive["Metrics"]}
    assert names == set(answer) - {"deletions", "foreign", "examined", "conflicts", "failures"}
    for item in directive["Metrics"]:
        row = metric(directive["Namespace"], item["Name"])
        assert (row.unit, [list(names) for names in row.dimensions]) == (item["Unit"], directive["Dimensions"])


def test_nothing_is_begun_when_the_functions_time_is_nearly_over(sweep, clock, context, make_version):
    function, registry, _ = sweep
    registry.write(Change(None, make_version(updated_at=timestamp(clock.time() - 48 * 3600))))
    context.seconds = 15
    assert function(context)["expired"] == 0
    context.seconds = 30
    assert function(context)["expired"] == 1


def test_the_wired_function_sweeps_table_and_bucket(
    cloud_session, table_name, bucket_name, load_event, context, make_version, monkeypatch, capsys
):
    settings = {
        variables.TABLE_NAME: table_name,
        variables.BUCKET_NAME: bucket_name,
        variables.MODELS_PREFIX: "models/",
        variables.SWEEP_TIMES: dump_sweep_times(SweepTimes(orphan_seconds=0)),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    registry, s3 = DynamoRegistry(dynamodb_client(cloud_session), table_name), s3_client(cloud_session)
    now = SystemClock().time()
    long_ago = timestamp(now - 48 * 3600)
    fields = {"updated_at": long_ago, "created_at": long_ago}
    awaited = make_version(State.AWAITING_UPLOAD, number=1, artifact=b"1", **fields)
    stuck = make_version(State.WARMING, number=2, artifact=b"2", **fields)
    retired = make_version(State.RETIRED, number=3, artifact=b"3", moving=False, purge_after=timestamp(now - 1), **fields)
    ready = make_version(State.READY, number=4, artifact=b"4", moving=False, **fields)
    rejected = make_version(State.REJECTED, number=5, artifact=b"5", moving=False, **fields)
    registry.write(Change(None, Model("acme", "iris", 5, long_ago, long_ago)))
    for version in (awaited, stuck, retired, ready, rejected):
        registry.write(Change(None, version))
    for version in (stuck, retired, ready, rejected):
        s3.put_object(Bucket=bucket_name, Key=version.name.artifact_key(), Body=b"artifact")
    module = importlib.import_module("mme_tenancy.handlers.sweep")
    module._application.cache_clear()
    first = module.handler({}, context)
    second = module.handler({}, context)
    assert capsys.readouterr().out.count('"message":"swept"') == 2
    assert {name: first[name] for name in ("expired", "resumed", "purged", "deleted_artifacts", "failed")} == {
        "expired": 1,
        "resumed": 1,
        "purged": 1,
        "deleted_artifacts": 1,
        "failed": 0,
    }, first
    assert (second["expired"], second["purged"], second["resumed"], second["failed"]) == (0, 0, 0, 0)
    states = {number: registry.version("acme", "iris", number).state.value for number in range(1, 6)}
    assert states == {1: "expired", 2: "warming", 3: "purged", 4: "ready", 5: "rejected"}
    left = [item["Key"] for item in s3.list_objects_v2(Bucket=bucket_name)["Contents"]]
    assert left == [stuck.name.artifact_key(), ready.name.artifact_key()]
    module._application.cache_clear()
