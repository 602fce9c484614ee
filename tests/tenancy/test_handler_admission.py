from __future__ import annotations

import hashlib
import json

import pytest

from mme_facts.metrics import metric
from mme_tenancy.admission import Admission, AdmissionDelayedError
from mme_tenancy.handlers.admission import Admissions
from mme_tenancy.invocation import Invoker, ModelReply
from mme_tenancy.registry import Change
from mme_tenancy.retries import RuntimeFault
from mme_tenancy.routes import Model
from mme_tenancy.testing import MemoryArtifacts, MemoryRegistry, ScriptedRuntime
from mme_tenancy.versions import State

NOW = "2026-11-29T12:00:00.000Z"


class World:
    def __init__(self, clock, pool):
        self.clock, self.pool = clock, pool
        self.registry, self.artifacts = MemoryRegistry(), MemoryArtifacts()

    def function(self, *script):
        invoker = Invoker(ScriptedRuntime(*(script or (ModelReply(b"1.0"),))), self.clock, lambda: 0.5)
        admission = Admission(self.registry, self.artifacts, invoker, [self.pool], self.clock)
        return Admissions(admission, "artifacts", self.clock, "admission-a")


@pytest.fixture
def world(clock, pool):
    return World(clock, pool)


@pytest.fixture
def event(world, load_event, make_version, artifact):
    """The event of a right artifact's upload."""
    version = make_version(artifact=artifact)
    world.registry.write(Change(None, Model("acme", "iris", 1, NOW, NOW)), Change(None, version))
    world.artifacts.put(version.name, artifact)
    event = load_event("object_created")
    event["detail"]["object"] |= {
        "key": version.name.incoming_key,
        "size": len(artifact),
        "etag": hashlib.sha256(artifact).hexdigest(),
    }
    return event


def test_an_uploaded_artifact_is_admitted(world, event, context, log_lines):
    outcome = world.function()(event, context)
    assert outcome["state"] == "active"
    assert outcome["steps"][0] == "awaiting_upload"
    (entry,) = log_lines("admission")
    assert (entry["message"], entry["tenant"], entry["state"]) == ("admitted", "acme", "active")
    assert set(entry["timings"]) == {"inspect_seconds", "copy_seconds", "first_invocation_seconds"}


def test_admitted_and_rejected_uploads_are_counted_under_names_of_the_catalogue(world, event, context, capsys):
    world.function()(event, context)
    world.function()(event, context)
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["function"], line["admitted"], line["rejected"]) == ("admission-a", 1, 0)
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Dimensions"] == [["function"]]
    for counted in directive["Metrics"]:
        row = metric(directive["Namespace"], counted["Name"])
        assert (row.unit, row.dimensions) == (counted["Unit"], (("function",),))


def test_a_rejected_upload_is_counted(world, event, context, capsys):
    rejected = RuntimeFault("ModelError", 424, 400)
    assert world.function(rejected)(event, context)["state"] == "rejected"
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["admitted"], line["rejected"]) == (0, 1)


def test_an_etag_in_quotes_is_the_same(world, event, context):
    event["detail"]["object"]["etag"] = f'"{event["detail"]["object"]["etag"]}"'
    assert world.function()(event, context)["state"] == "active"


@pytest.mark.parametrize(
    "key",
    [
        "models/acme/iris/v1-0123456789ab.tar.gz",
        "incoming/",
        "incoming/acme/iris/model.tar.gz",
        "incoming/a/b/c/d.tar.gz",
        "incoming/../x",
        "",
    ],
)
def test_a_foreign_key_is_ignored_and_logged(world, event, context, log_lines, key):
    event["detail"]["object"]["key"] = key
    assert "ignored" in world.function()(event, context)
    (entry,) = log_lines("admission")
    assert (entry["message"], entry["key"]) == ("ignored", key)
    assert world.registry.version("acme", "iris", 1).state is State.AWAITING_UPLOAD


def test_the_event_of_another_bucket_is_ignored(world, event, context):
    event["detail"]["bucket"]["name"] = "other"
    assert "bucket" in world.function()(event, context)["ignored"]
    assert world.registry.version("acme", "iris", 1).state is State.AWAITING_UPLOAD


def test_an_event_without_an_object_is_ignored(world, context):
    assert "ignored" in world.function()({}, context)


def test_a_second_event_is_ignored(world, event, context):
    world.function()(event, context)
    assert world.function()(event, context) == {"ignored": "nothing is left to do"}


def test_trouble_of_the_endpoint_is_raised_so_that_the_event_comes_again(world, event, context):
    with pytest.raises(AdmissionDelayedError):
        world.function(RuntimeFault("ServiceUnavailable", 503))(event, context)
    assert world.function()(event, context)["state"] == "active"


def test_the_first_invocation_ends_in_time_for_the_writes_behind_it(world, event, context, clock):
    context.seconds, started = 60, clock.now
    with pytest.raises(AdmissionDelayedError):
        world.function(RuntimeFault("ModelNotReadyException", 429))(event, context)
    assert 45 < clock.now - started <= 55
