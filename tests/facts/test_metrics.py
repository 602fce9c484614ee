"""The metric catalogue: whole, consistent, and strict about how a metric may be used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mme_facts import metrics, telemetry
from mme_facts.metrics import CATALOGUE, COMPONENT_METRICS, DEDICATED_ENDPOINT_METRICS, ENDPOINT_METRICS, MetricUseError, check_use
from mme_facts.metrics_aws import AWS_METRICS
from mme_facts.metrics_own import OWN_METRICS

UNITS = {"None", "Count", "Percent", "Microseconds", "Milliseconds", "Seconds", "Bytes"}
STATISTICS = {"Average", "Sum", "Minimum", "Maximum", "SampleCount"}


def use(**changed):
    right = {
        "namespace": "AWS/SageMaker",
        "name": "ModelCacheHit",
        "dimensions": ("EndpointName", "VariantName"),
        "statistic": "Average",
        "period_seconds": 60,
    }
    return check_use(**right | changed)


def test_a_name_is_unique_in_its_namespace():
    assert len(CATALOGUE) == len(AWS_METRICS) + len(OWN_METRICS)


@pytest.mark.parametrize("row", CATALOGUE.values(), ids=lambda row: f"{row.namespace}-{row.name}")
def test_every_row_is_complete(row):
    assert row.unit in UNITS
    assert row.statistics
    assert set(row.statistics) <= STATISTICS
    assert row.default_statistic == row.statistics[0]
    assert row.dimensions
    assert all(row.dimensions)
    assert row.emitter
    assert len(row.source) > 10


def test_no_metric_of_ours_has_an_unbounded_dimension():
    names = {name for row in OWN_METRICS for dimensions in row.dimensions for name in dimensions}
    assert names == {"endpoint", "function", "tenant"}
    assert {row.namespace for row in OWN_METRICS if ("endpoint", "tenant") in row.dimensions} == {"MME/Invocations"}


def test_endpoints_and_components_have_their_own_metrics():
    assert {"ModelCacheHit", "LoadedModelCount", "CPUUtilization", "Invocations"} <= set(ENDPOINT_METRICS)
    assert not set(ENDPOINT_METRICS) & set(DEDICATED_ENDPOINT_METRICS)
    assert {"Invocations", "InvocationsPerCopy", "NoCapacityInvocationFailures"} <= set(COMPONENT_METRICS)
    assert COMPONENT_METRICS["CPUUtilizationNormalized"].namespace == "/aws/sagemaker/InferenceComponents"
    assert DEDICATED_ENDPOINT_METRICS["CPUUtilizationNormalized"].namespace == "/aws/sagemaker/Endpoints"


def test_the_invocation_line_takes_names_and_units_from_the_catalogue():
    assert {telemetry.NAMESPACE: dict(telemetry.METRICS)} == {
        "MME/Invocations": {name: CATALOGUE[telemetry.NAMESPACE, name].unit for name in telemetry.METRICS}
    }
    assert all(telemetry.DIMENSIONS in CATALOGUE[telemetry.NAMESPACE, name].dimensions for name in telemetry.METRICS)


def test_a_right_use_gives_the_row():
    assert use() is CATALOGUE["AWS/SageMaker", "ModelCacheHit"]
    assert use(dimensions=("VariantName", "EndpointName"), period_seconds=300, unit="None").unit == "None"
    assert use(name="ModelLatency", statistic="p99.9").percentiles


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"name": "CacheHits"}, "AWS/SageMaker has no such metric: got 'CacheHits'; allowed: Invocations, "),
        ({"namespace": "AWS/Sagemaker"}, "allowed: namespaces /aws/sagemaker/Endpoints, "),
        ({"statistic": "p99"}, "ModelCacheHit has no such statistic: got 'p99'; allowed: Average, Sum, SampleCount"),
        ({"name": "ModelLatency", "statistic": "p101"}, "allowed: Average, Sum, Minimum, Maximum, SampleCount, percentiles"),
        ({"name": "ModelLoadingWaitTime", "statistic": "p99"}, "got 'p99'"),
        ({"dimensions": ("EndpointName",)}, "got 'EndpointName'; allowed: EndpointName with VariantName"),
        ({"dimensions": ()}, "got 'none'"),
        ({"dimensions": ("EndpointName", "ModelName")}, "got 'EndpointName, ModelName'"),
        ({"unit": "Count"}, "ModelCacheHit has another unit: got 'Count'; allowed: None"),
        ({"period_seconds": 10}, "got 10; allowed: multiples of 60 seconds from 60"),
        ({"period_seconds": 90}, "got 90"),
        ({"period_seconds": 0}, "got 0"),
    ],
)
def test_rejects_a_use_that_would_show_nothing(changed, text):
    with pytest.raises(MetricUseError) as caught:
        use(**changed)
    assert text in str(caught.value)


def test_the_catalogue_needs_nothing_but_the_standard_library():
    code = "import sys; sys.path.insert(0, sys.argv[1]); import mme_facts.metrics as m; print(len(m.CATALOGUE), len(m.namespaces()))"
    root = metrics.__file__.rpartition("/mme_facts/")[0]
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, root], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(CATALOGUE)), str(len(metrics.namespaces()))]
