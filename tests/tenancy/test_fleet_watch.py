"""The fleet watch: what it publishes about endpoints, and what it does about endpoints that are gone."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from mme_facts.metrics import metric
from mme_tenancy.aws.clients import sagemaker_client
from mme_tenancy.aws.endpoints import SageMakerFleets
from mme_tenancy.fleet_watch import EndpointState, watch
from mme_tenancy.handlers.fleet_watch import FleetWatch

NOW = 1_800_000_000.0


class KnownFleets:
    def __init__(self, **states):
        self.states = states

    def state(self, endpoint):
        return self.states.get(endpoint)


def lines(**states):
    return [json.loads(line) for line in watch(KnownFleets(**states), states, NOW)]


@pytest.mark.parametrize(("status", "seconds"), [("InService", 0), ("Updating", 600), ("RollingBack", 600), ("Creating", 600)])
def test_time_counts_from_the_last_change_while_out_of_service(status, seconds):
    (line,) = lines(a=EndpointState(status, NOW - 600, 3))
    assert (line["endpoint"], line["updating_seconds"], line["instances"], line["status"]) == ("a", seconds, 3, status)


def test_a_clock_that_is_behind_never_counts_backwards():
    assert lines(a=EndpointState("Updating", NOW + 5, 1))[0]["updating_seconds"] == 0


def test_the_line_takes_names_units_and_dimensions_from_the_catalogue():
    (line,) = lines(a=EndpointState("InService", NOW, 1))
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

    fleets = Troubled(a=EndpointState("Updating", NOW, 2), c=EndpointState("InService", NOW, 2))
    with pytest.raises(ConnectionError, match="b"):
        FleetWatch(fleets, clock)({"endpoints": ["a", "b", "c"]})
    assert [json.loads(line)["endpoint"] for line in capsys.readouterr().out.splitlines()] == ["a", "c"]


def test_an_endpoint_that_is_gone_has_no_line(clock, capsys):
    fleets = KnownFleets(a=EndpointState("InService", NOW, 2))
    assert FleetWatch(fleets, clock)({"endpoints": ["a", "gone"]}) == {"watched": 1}
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["endpoint"] == "a"


@pytest.fixture
def stubbed():
    client = sagemaker_client(boto3.Session("AKIA", "secret", region_name="eu-central-1"))
    with Stubber(client) as stubber:
        yield SageMakerFleets(client), stubber


def test_the_state_is_read_from_the_description(stubbed):
    fleets, stubber = stubbed
    modified = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
    variants = [{"VariantName": "AllTraffic", "CurrentInstanceCount": 3}, {"VariantName": "Canary", "CurrentInstanceCount": 1}]
    described = {
        "EndpointName": "a",
        "EndpointArn": "arn:aws:sagemaker:eu-central-1:111122223333:endpoint/a",
        "EndpointStatus": "Updating",
        "CreationTime": modified,
        "LastModifiedTime": modified,
        "ProductionVariants": variants,
    }
    stubber.add_response("describe_endpoint", described, {"EndpointName": "a"})
    assert fleets.state("a") == EndpointState("Updating", modified.timestamp(), 4)


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
