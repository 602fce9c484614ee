"""The fleet watch: what it publishes about endpoints, and what it does about endpoints that are gone."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from mme_facts.metrics import metric
from mme_tenancy.aws.clients import sagemaker_client
from mme_tenancy.aws.endpoints import SageMakerFleets
from mme_tenancy.fleet_state import FleetState, PendingFleet, Shift
from mme_tenancy.fleet_watch import watch
from mme_tenancy.handlers.fleet_watch import FleetWatch

NOW = 1_800_000_000.0


def fleet(status, modified_at, count):
    return FleetState("a", status, "config-1", NOW - 86_400, modified_at, instances={"AllTraffic": count}, desired={"AllTraffic": count})


class KnownFleets:
    def __init__(self, **states):
        self.states = states

    def state(self, endpoint):
        return self.states.get(endpoint)


def lines(**states):
    return [json.loads(line) for line in watch(KnownFleets(**states), states, NOW)]


@pytest.mark.parametrize(("status", "seconds"), [("InService", 0), ("Updating", 600), ("RollingBack", 600), ("Creating", 600)])
def test_time_counts_from_the_last_change_while_out_of_service(status, seconds):
    (line,) = lines(a=fleet(status, NOW - 600, 3))
    assert (line["endpoint"], line["updating_seconds"], line["instances"], line["status"]) == ("a", seconds, 3, status)


def test_a_clock_that_is_behind_never_counts_backwards():
    assert lines(a=fleet("Updating", NOW + 5, 1))[0]["updating_seconds"] == 0


def test_the_line_takes_names_units_and_dimensions_from_the_catalogue():
    (line,) = lines(a=fleet("InService", NOW, 1))
    assert line["_aws"]["Timestamp"] == int(NOW * 1000)
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert {item["Name"] for item in directive["Metrics"]} == {"updating_seconds", "instances"} <= set(line)
    for item in directive["Metrics"]:
        row = metric(directive["Namespace"], item["Name"])
        assert (row.unit, [list(names) for names in row.dimensions]) == (item["Unit"], directive["Dimensions"])


def test_an_endpoint_that_cannot_be_described_keeps_no_other_from_its_line(clock, capsys):
    class Troubled(KnownFleets):
        def state(self, endpoint):
            if endpoint == "b":
                raise ConnectionError(endpoint)
            return super().state(endpoint)

    fleets = Troubled(a=fleet("Updating", NOW, 2), c=fleet("InService", NOW, 2))
    with pytest.raises(ConnectionError, match="b"):
        FleetWatch(fleets, clock)({"endpoints": ["a", "b", "c"]})
    assert [json.loads(line)["endpoint"] for line in capsys.readouterr().out.splitlines()] == ["a", "c"]


def test_an_endpoint_that_is_gone_has_no_line(clock, capsys):
    fleets = KnownFleets(a=fleet("InService", NOW, 2))
    assert FleetWatch(fleets, clock)({"endpoints": ["a", "gone"]}) == {"watched": 1}
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["endpoint"] == "a"


@pytest.fixture
def stubbed():
    client = sagemaker_client(boto3.Session("AKIA", "secret", region_name="eu-central-1"))
    with Stubber(client) as stubber:
        yield SageMakerFleets(client), stubber


MOMENT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def described(status="Updating", *variants, pending=None, **more):
    summary = {} if pending is None else {"PendingDeploymentSummary": {"EndpointConfigName": "config-2", **pending}}
    return {
        "EndpointName": "a",
        "EndpointArn": "arn:aws:sagemaker:eu-central-1:111122223333:endpoint/a",
        "EndpointConfigName": "config-1",
        "EndpointStatus": status,
        "CreationTime": MOMENT - timedelta(days=1),
        "LastModifiedTime": MOMENT,
        "ProductionVariants": list(variants),
        **summary,
        **more,
    }


def variant(name="AllTraffic", current=3, desired=3, *stages):
    statuses = [{"Status": stage, "StartTime": MOMENT + timedelta(minutes=1)} for stage in stages]
    return {"VariantName": name, "CurrentInstanceCount": current, "DesiredInstanceCount": desired, "VariantStatus": statuses}


def test_the_state_is_read_from_the_description(stubbed):
    fleets, stubber = stubbed
    answer = described("Updating", variant(current=3, desired=5), variant("Canary", 1, 1) | {"DesiredWeight": 0.5}, FailureReason="full")
    stubber.add_response("describe_endpoint", answer, {"EndpointName": "a"})
    state = fleets.state("a")
    at = MOMENT.timestamp()
    assert state == FleetState(
        "a",
        "Updating",
        "config-1",
        at - 86_400,
        at,
        instances={"AllTraffic": 3, "Canary": 1},
        desired={"AllTraffic": 5, "Canary": 1},
        weights={"AllTraffic": 1.0, "Canary": 0.5},
        failure="full",
    )
    assert state.count == 4


@pytest.mark.parametrize(
    ("stages", "shifted"), [((), None), (("Creating",), None), (("ActivatingTraffic",), 60), (("Baking",), 60), (("Deleting",), None)]
)
def test_the_stage_of_an_update_tells_whether_its_fleet_takes_requests(stubbed, stages, shifted):
    fleets, stubber = stubbed
    pending = {"ProductionVariants": [variant("AllTraffic", 2, 4, *stages)], "StartTime": MOMENT}
    stubber.add_response("describe_endpoint", described("Updating", variant(), pending=pending), {"EndpointName": "a"})
    at = MOMENT.timestamp()
    expected = PendingFleet("config-2", {"AllTraffic": 2}, at, {"AllTraffic": 4}, shifted_at=None if shifted is None else at + shifted)
    assert fleets.state("a").pending == expected


def policy(kind, wait, **size):
    routing = {"Type": kind, "WaitIntervalInSeconds": wait, **size}
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing}}


ROLLING = {"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}, "WaitIntervalInSeconds": 60}}


@pytest.mark.parametrize(
    ("config", "shift"),
    [
        (policy("ALL_AT_ONCE", 600), Shift()),
        (policy("CANARY", 300, CanarySize={"Type": "CAPACITY_PERCENT", "Value": 10}), Shift(300)),
        (policy("LINEAR", 60, LinearStepSize={"Type": "CAPACITY_PERCENT", "Value": 30}), Shift(180)),
        (policy("LINEAR", 60, LinearStepSize={"Type": "INSTANCE_COUNT", "Value": 2}), Shift(60)),
        (ROLLING, Shift(rolling=True)),
    ],
    ids=["all at once", "canary", "linear by share", "linear by count", "rolling"],
)
def test_the_policy_of_an_update_tells_when_the_new_fleet_has_all_requests(stubbed, config, shift):
    fleets, stubber = stubbed
    pending = {"ProductionVariants": [variant("AllTraffic", 4, 4, "ActivatingTraffic")]}
    old = variant("AllTraffic", 3, 4, "Deleting")
    answer = described("Updating", old, pending=pending, LastDeploymentConfig=config)
    stubber.add_response("describe_endpoint", answer, {"EndpointName": "a"})
    found = fleets.state("a").pending
    assert found.shift == shift
    assert found.all_shifted is not shift.rolling


def test_a_missing_endpoint_is_none_and_another_refusal_is_raised(stubbed):
    fleets, stubber = stubbed
    stubber.add_client_error("describe_endpoint", "ValidationException", 'Could not find endpoint "arn:...".')
    assert fleets.state("gone") is None
    stubber.add_client_error("describe_endpoint", "AccessDeniedException", "not authorized")
    with pytest.raises(ClientError, match="AccessDenied"):
        fleets.state("a")


def test_the_entry_point_describes_a_real_endpoint_of_the_local_cloud(cloud_session, module_cloud, capsys):
    from mme_tenancy.handlers import fleet_watch

    fleet_watch._application.cache_clear()
    try:
        assert fleet_watch.handler({"endpoints": ["nowhere"]}, None) == {"watched": 0}
    finally:
        fleet_watch._application.cache_clear()
    assert capsys.readouterr().out == ""
