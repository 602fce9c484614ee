"""The embedded metric format: which metrics an event makes."""

import json

import pytest

from mme_local.cloudwatch.emf import embedded_metrics, put_embedded_metrics
from mme_local.cloudwatch.store import MetricStore
from mme_tenancy.telemetry import fleet_line, invocation_line

NOW = 1_800_000_000.0


def message(root=None, **directive):
    given = {"Namespace": "Platform", "Dimensions": [["endpoint"]], "Metrics": [{"Name": "latency", "Unit": "Milliseconds"}], **directive}
    metadata = {"Timestamp": int(NOW * 1000), "CloudWatchMetrics": [{name: value for name, value in given.items() if value is not None}]}
    return json.dumps({"_aws": metadata, "endpoint": "ours", "tenant": "acme", "latency": 12.5, **(root or {})})


def made(text):
    metrics, errors = embedded_metrics(text)
    assert errors == 0
    return [(metric.namespace, metric.name, dict(metric.dimensions), metric.values, metric.unit, metric.timestamp) for metric in metrics]


def test_an_event_makes_its_metrics():
    assert made(message()) == [("Platform", "latency", {"endpoint": "ours"}, (12.5,), "Milliseconds", NOW)]


def test_every_set_of_dimensions_is_a_metric_and_an_empty_one_has_none():
    sets = [["endpoint"], ["endpoint", "tenant"], []]
    assert [dimensions for _, _, dimensions, *_ in made(message(Dimensions=sets))] == [
        {"endpoint": "ours"},
        {"endpoint": "ours", "tenant": "acme"},
        {},
    ]


def test_arrays_are_many_values_and_the_unit_may_be_left_out():
    ((_, _, _, values, unit, _),) = made(message({"latency": [1, 2.5, 3]}, Metrics=[{"Name": "latency"}]))
    assert (values, unit) == ((1.0, 2.5, 3.0), "None")


def test_a_metric_without_a_value_is_left_out_alone():
    metrics = made(message(Metrics=[{"Name": "latency"}, {"Name": "missing"}]))
    assert [name for _, name, *_ in metrics] == ["latency"]


def test_a_resolution_of_a_second_is_kept():
    (metric,), _ = embedded_metrics(message(Metrics=[{"Name": "latency", "StorageResolution": 1}]))
    assert metric.resolution == 1


@pytest.mark.parametrize(
    "text", ["plain", "{", "[]", '{"a": 1}', '{"_aws": 1}', '{"_aws": {}}', "2027-01-15 " + message(), message() + " more", '"_aws"']
)
def test_what_is_not_in_the_format_makes_nothing_and_is_no_error(text):
    assert embedded_metrics(text) == ([], 0)


@pytest.mark.parametrize(
    "text",
    [
        message(Namespace=None),
        message(Namespace=""),
        message(Dimensions=None),
        message(Dimensions=[]),
        message(Dimensions=["endpoint"]),
        message(Dimensions=[["missing"]]),
        message(Dimensions=[["latency"]]),
        message(Dimensions=[[f"d{number}" for number in range(31)]], root={f"d{number}": "x" for number in range(31)}),
        message(Metrics=None),
        message(Metrics=[{"Unit": "Count"}]),
        message(Metrics=[{"Name": "latency", "Unit": "Furlongs"}]),
        message(Metrics=[{"Name": "latency", "StorageResolution": 5}]),
        message(Metrics=[{"Name": f"m{number}"} for number in range(101)]),
        message({"latency": "12"}),
        message({"latency": True}),
        message({"latency": [1.0] * 101}),
        message({"latency": float("nan")}),
        message().replace(str(int(NOW * 1000)), '"now"'),
        '{"_aws": {"Timestamp": 1, "CloudWatchMetrics": {}}}',
        '{"_aws": {"Timestamp": 1, "CloudWatchMetrics": [1]}}',
        '{"_aws": {"CloudWatchMetrics": []}}',
    ],
)
def test_what_breaks_the_format_makes_nothing_and_counts_as_an_error(text):
    assert embedded_metrics(text) == ([], 1)


def test_one_bad_directive_leaves_the_others():
    document = json.loads(message())
    document["_aws"]["CloudWatchMetrics"].append({"Namespace": "Bad"})
    metrics, errors = embedded_metrics(json.dumps(document))
    assert ([metric.namespace for metric in metrics], errors) == (["Platform"], 1)


def test_the_lines_of_our_functions_are_in_the_format():
    fields = {"endpoint": "ours", "tenant": "acme", "latency_ms": 3.0, "attempts": 1, "cold": 1, "failed": 0, "throttled": 0, "status": 200}
    names = {name for _, name, *_ in made(invocation_line(fields, epoch_seconds=NOW))}
    assert {"latency_ms", "cold", "failed", "throttled"} <= names
    assert embedded_metrics(invocation_line({"tenant": "acme", "status": 404}, epoch_seconds=NOW)) == ([], 0)
    assert len(made(fleet_line("ours", updating_seconds=0.0, instances=2, status="InService", epoch_seconds=NOW))) == 2


def test_metrics_are_put_at_the_events_own_time_and_errors_are_counted():
    store = MetricStore(lambda: NOW)
    old = message().replace(str(int(NOW * 1000)), str(int((NOW - 15 * 86400) * 1000)))
    put_embedded_metrics(store, "/aws/lambda/f", [message(), message(Namespace=""), old], NOW)
    span = {"start": NOW - 60, "end": NOW + 60, "period": 60}
    (point,) = store.statistics("Platform", "latency", {"endpoint": "ours"}, statistics=["Sum"], unit="Milliseconds", **span)
    assert (point.timestamp, point.values["Sum"]) == (NOW, 12.5)
    (errors,) = store.statistics("AWS/Logs", "EMFValidationErrors", {"LogGroupName": "/aws/lambda/f"}, statistics=["Sum"], **span)
    assert errors.values["Sum"] == 2.0
