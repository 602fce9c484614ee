"""Minutes of an endpoint's metrics, as the local cloud's CloudWatch gives them, and the line of a warm-up that goes there."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from botocore.stub import Stubber

from mme_facts.metrics_own import WARM_UP_METRICS, WARM_UP_NAMESPACE
from mme_tenancy.aws.clients import cloudwatch_client
from mme_tenancy.aws.warm_up_readings import CloudWatchReadings
from mme_tenancy.telemetry import warm_up_line
from mme_tenancy.warm_up.execute import Minute
from mme_tenancy.warm_up.plan import Skip
from mme_tenancy.warm_up.run import End, FailedStep, WarmUpSummary

START = 1_796_000_040  # a whole minute


def moment(minute):
    return datetime.fromtimestamp(START + 60 * minute, UTC)


def result(name, *values):
    return {
        "Id": name,
        "StatusCode": "Complete",
        "Timestamps": [moment(minute) for minute, _value in values],
        "Values": [value for _minute, value in values],
    }


def test_values_of_one_minute_come_together_and_what_is_not_told_is_missing(cloud_session):
    client = cloudwatch_client(cloud_session)
    answer = {
        "MetricDataResults": [
            result("invocations", (0, 60.0), (1, 70.0)),
            result("cache_hits", (1, 50.0)),
            result("cache_asked", (1, 70.0)),
            result("least_loaded_models"),
            result("most_loaded_models", (2, 9.0)),
        ]
    }
    with Stubber(client) as stub:
        stub.add_response("get_metric_data", answer)
        found = CloudWatchReadings(client).minutes("one", "AllTraffic", start=START, end=START + 180)
    assert found == [
        Minute(START, 60.0),
        Minute(START + 60, 70.0, 50.0, 70.0),
        Minute(START + 120, most_loaded_models=9.0),
    ]


def put(client, namespace, name, variant, minute, *values):
    dimensions = [{"Name": "EndpointName", "Value": "one"}, {"Name": "VariantName", "Value": variant}]
    data = {"MetricName": name, "Dimensions": dimensions, "Timestamp": moment(minute), "Values": list(values)}
    client.put_metric_data(Namespace=namespace, MetricData=[data])


def test_the_local_cloud_answers_the_query_with_minutes_of_this_endpoint_and_variant(cloud_session):
    client = cloudwatch_client(cloud_session)
    readings = CloudWatchReadings(client)
    assert readings.minutes("one", "AllTraffic", start=START, end=START + 120) == []
    for minute in (0, 1, 2):
        put(client, "AWS/SageMaker", "Invocations", "AllTraffic", minute, *[1.0] * (10 + minute))
    put(client, "AWS/SageMaker", "Invocations", "Other", 1, 1.0)
    put(client, "AWS/SageMaker", "ModelCacheHit", "AllTraffic", 1, 1.0, 1.0, 0.0, 1.0)
    put(client, "/aws/sagemaker/Endpoints", "LoadedModelCount", "AllTraffic", 1, 3.0, 8.0)
    assert readings.minutes("one", "AllTraffic", start=START, end=START + 120) == [
        Minute(START, 10.0),
        Minute(START + 60, 11.0, 3.0, 4.0, 3.0, 8.0),
    ]


def summary(**changes):
    fields = {
        "end": End.DONE,
        "detail": "",
        "seconds": 12.3456,
        "planned": 5,
        "calls": 7,
        "warmed": 4,
        "loaded": 3,
        "bytes": 400,
        "loaded_bytes": 300,
        "failed": (),
        "skipped": {Skip.RETIRED: 2},
        "throttled": 1,
        "not_ready": 0,
        "repeated": 1,
        "cold_requests_avoided": 17.25,
    }
    return WarmUpSummary(**(fields | changes))


def test_the_line_of_a_warm_up_has_every_metric_of_the_catalogue_and_no_tenant_among_its_dimensions():
    line = json.loads(warm_up_line("one", summary(), why="scale-out 3", failed=False, epoch_seconds=START))
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == WARM_UP_NAMESPACE
    assert directive["Dimensions"] == [["endpoint"]]
    assert {metric["Name"] for metric in directive["Metrics"]} == {row.name for row in WARM_UP_METRICS}
    values = {row.name: line[row.name] for row in WARM_UP_METRICS}
    assert values == {
        "models_warmed": 4,
        "calls": 7,
        "bytes_warmed": 400,
        "seconds": 12.346,
        "cold_requests_avoided": 17.2,
        "failed": 0,
        "overrun": 0,
    }
    assert (line["endpoint"], line["why"], line["end"], line["skipped"]) == ("one", "scale-out 3", "done", {"retired": 2})


@pytest.mark.parametrize(("end", "failed", "overrun"), [(End.TIME, False, 1), (End.THROTTLED, True, 0), (End.DONE, False, 0)])
def test_a_warm_up_that_failed_or_took_too_long_counts_as_such(end, failed, overrun):
    line = json.loads(warm_up_line("one", summary(end=end), why="update 1", failed=failed, epoch_seconds=START))
    assert (line["failed"], line["overrun"]) == (int(failed), overrun)


def test_the_line_names_the_first_models_that_failed_and_counts_all():
    failed = tuple(FailedStep(f"acme/m{number}/v1-0.tar.gz", "input rejected", 1) for number in range(30))
    problems = {"checkpoint: ConnectionError: no": 2}
    line = json.loads(warm_up_line("one", summary(failed=failed), why="by hand", failed=False, epoch_seconds=START, problems=problems))
    assert line["failed_models"] == 30
    assert line["first_failed"][0] == {"target_model": "acme/m0/v1-0.tar.gz", "error": "input rejected", "attempts": 1}
    assert len(line["first_failed"]) == 20
    assert line["problems"] == problems
