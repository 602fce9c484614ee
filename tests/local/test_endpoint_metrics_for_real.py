"""The metrics of a real endpoint in CloudWatch are what its callers saw."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from mme_local import LocalCloud
from tests.local.conftest import Workbench
from tests.local.scripted_endpoint import artifact, deploy, settings

USED = ("LoadedModelCount", "CPUUtilization", "MemoryUtilization", "DiskUtilization")
DIMENSIONS = [{"Name": "EndpointName", "Value": "measured"}, {"Name": "VariantName", "Value": "AllTraffic"}]


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    """An endpoint, of whose one model four answers were asked, before one of a model that dies and two of one that is missing."""
    with LocalCloud(settings=settings(clock_scale=60.0)) as cloud, closing(Workbench(cloud)) as workbench:
        deploy(workbench, "measured", {"m.tar.gz": artifact(), "mortal.tar.gz": artifact(invoke="die")})
        yield workbench


@pytest.fixture(scope="module")
def called(bench: Workbench) -> dict[str, Any]:
    runtime = bench.cloud.client("sagemaker-runtime", config=Config(retries={"total_max_attempts": 1}))
    statuses, seconds = [], []
    for model in ("m", "m", "m", "m", "mortal", "missing", "missing"):
        began = time.monotonic()
        try:
            runtime.invoke_endpoint(EndpointName="measured", TargetModel=f"{model}.tar.gz", Body=b"x")["Body"].read()
            statuses.append(200)
        except ClientError as error:
            statuses.append(error.response.get("OriginalStatusCode") or error.response["ResponseMetadata"]["HTTPStatusCode"])
        seconds.append(time.monotonic() - began)
    runtime.close()
    seen = {"statuses": statuses, "seconds": seconds, "until": float(bench.cloud.status()["clock"]["now"])}
    # All of a minute's requests come at once, what instances use a little later.
    bench.wait_for(lambda: total(bench, seen, "Invocations", "Sum") >= len(statuses), seconds=60)
    bench.wait_for(lambda: all(total(bench, seen, name, "Maximum", "/aws/sagemaker/Endpoints") > 0 for name in USED), seconds=60)
    return seen


def total(bench: Workbench, called: dict[str, Any], name: str, statistic: str, namespace: str = "AWS/SageMaker") -> float:
    """A statistic of everything that was called and is published."""
    answer = bench.client("cloudwatch").get_metric_statistics(
        Namespace=namespace,
        MetricName=name,
        Dimensions=DIMENSIONS,
        StartTime=datetime.fromtimestamp(called["until"] // 3600 * 3600 - 3600, UTC),
        EndTime=datetime.fromtimestamp(called["until"] // 3600 * 3600 + 10 * 3600, UTC),
        Period=11 * 3600,
        Statistics=[statistic],
    )
    return sum(point[statistic] for point in answer["Datapoints"])


def test_every_request_is_counted_once(bench, called):
    assert called["statuses"][:4] == [200] * 4
    assert total(bench, called, "Invocations", "Sum") == len(called["statuses"])
    assert total(bench, called, "InvocationsPerInstance", "Sum") == len(called["statuses"])


def test_errors_are_those_that_the_caller_got(bench, called):
    client = sum(400 <= status < 500 for status in called["statuses"])
    server = sum(status >= 500 for status in called["statuses"])
    assert (client, server) == (2, 1)
    assert total(bench, called, "Invocation4XXErrors", "Sum") == client
    assert total(bench, called, "Invocation5XXErrors", "Sum") == server
    assert total(bench, called, "InvocationModelErrors", "Sum") == 1


def test_hits_and_loads_are_those_of_the_status(bench, called):
    (endpoint,) = bench.cloud.status()["endpoints"]
    assert total(bench, called, "ModelCacheHit", "Sum") == endpoint["hits"] == 3
    assert total(bench, called, "ModelLoadingTime", "SampleCount") == endpoint["cold_loads"] == 2
    assert total(bench, called, "ModelDownloadingTime", "SampleCount") == 2
    assert total(bench, called, "ModelLoadingWaitTime", "SampleCount") == 4


def test_latencies_are_real_microseconds_within_what_the_caller_waited(bench, called):
    model, overhead = (total(bench, called, name, "Sum") for name in ("ModelLatency", "OverheadLatency"))
    assert 0 < model + overhead <= sum(called["seconds"]) * 1e6
    waited = total(bench, called, "ModelLoadingWaitTime", "Sum")
    assert total(bench, called, "ModelLoadingTime", "Sum") < waited <= overhead + 1


def test_instances_publish_what_they_use(bench, called):
    for name, least, most in (("CPUUtilization", 0, 400), ("MemoryUtilization", 0, 100), ("DiskUtilization", 0, 100)):
        assert total(bench, called, name, "Minimum", "/aws/sagemaker/Endpoints") >= least
        assert 0 < total(bench, called, name, "Maximum", "/aws/sagemaker/Endpoints") <= most
    assert total(bench, called, "LoadedModelCount", "Maximum", "/aws/sagemaker/Endpoints") >= 1
