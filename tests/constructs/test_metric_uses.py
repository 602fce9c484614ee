"""Every metric that a construct of ours uses, wherever it stands in a template, is in the catalogue as it is used."""

from __future__ import annotations

import json

import aws_cdk as cdk
import pytest

from mme_facts.metrics import MetricUseError, check_use
from tests.constructs.guard_rails import table

PERIOD = 60


def uses(node):
    """(namespace, name, dimension names, statistic, period, unit) of every metric below ``node``: alarms, scaling policies, dashboards."""
    if isinstance(node, list):
        for item in node:
            yield from uses(item)
    elif isinstance(node, dict):
        if "MetricName" in node and "Namespace" in node:
            statistic = node.get("Statistic") or node.get("ExtendedStatistic")
            if statistic is not None:
                yield use_of(node, statistic, node.get("Period", PERIOD), node.get("Unit"))
        if "Metric" in node and "Stat" in node:
            yield use_of(node["Metric"], node["Stat"], node.get("Period", PERIOD), node.get("Unit"))
        if "DashboardBody" in node:
            yield from dashboard_uses(node["DashboardBody"])
        for item in node.values():
            yield from uses(item)


def use_of(metric, statistic, period, unit):
    names = tuple(dimension["Name"] for dimension in metric.get("Dimensions", ()))
    return metric["Namespace"], metric["MetricName"], names, statistic, period, unit


def dashboard_uses(body):
    parts = body["Fn::Join"][1] if isinstance(body, dict) else [body]
    for widget in json.loads("".join(part if isinstance(part, str) else "token" for part in parts))["widgets"]:
        for row in widget["properties"].get("metrics", ()):
            *names, options = row if isinstance(row[-1], dict) else (*row, {})
            if names:
                yield names[0], names[1], tuple(names[2::2]), options.get("stat", "Average"), options.get("period", 300), None


def wrong(templates):
    """What the catalogue does not know, in words, and how many uses were looked at."""
    found, looked_at = set(), 0
    for namespace, name, dimensions, statistic, period, unit in uses(templates):
        looked_at += 1
        try:
            check_use(namespace, name, dimensions=dimensions, statistic=statistic, period_seconds=period, unit=unit)
        except MetricUseError as error:
            found.add(str(error))
    return found, looked_at


def test_the_reference_app_uses_metrics_as_they_are_published(reference):
    found, looked_at = wrong(list(reference.templates.values()))
    assert found == set()
    assert looked_at >= 30


@pytest.mark.parametrize("rail", table.RAILS, ids=lambda rail: rail.name)
def test_every_fixed_configuration_uses_metrics_as_they_are_published(rail, flags, tmp_path):
    app = cdk.App(context=flags, outdir=str(tmp_path))
    rail.fixed(cdk.Stack(app, "Stack", env=cdk.Environment(account="123456789012", region="eu-central-1")))
    assert wrong([stack.template for stack in app.synth().stacks])[0] == set()


@pytest.mark.parametrize(
    "metric",
    [
        {"Namespace": "AWS/SageMaker", "MetricName": "ModelCacheHit", "Dimensions": [{"Name": "EndpointName"}], "Statistic": "Average"},
        {"Metric": {"Namespace": "AWS/SageMaker", "MetricName": "Loads", "Dimensions": []}, "Stat": "Sum"},
        {"DashboardBody": '{"widgets":[{"properties":{"metrics":[["AWS/SageMaker","ModelCacheHit",{"stat":"p99"}]]}}]}'},
    ],
)
def test_a_wrong_use_would_be_found(metric):
    found, looked_at = wrong({"Resources": {"A": {"Properties": metric}}})
    assert (len(found), looked_at) == (1, 1)
