"""What CloudFormation replaces when one setting changes: model and configuration, never endpoint, bucket or table.

A change replaces a resource if it touches one of its type's create-only properties. A replaced resource changes every property that refers
to it, so the walk goes on until nothing more is replaced. The properties come from CloudFormation's own schemas, as cfn-lint ships them.
"""

from __future__ import annotations

import json

import aws_cdk as cdk
import pytest
from aws_cdk import aws_kms as kms
from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

from mme_constructs import (
    ComputeRequirements,
    InferenceComponentEndpoint,
    ModelArtifactStore,
    MultiModelContainer,
    MultiModelEndpoint,
    TenantRegistry,
)

KEY = "arn:aws:kms:eu-central-1:111122223333:key/11111111-2222-3333-4444-555555555555"
MODEL, CONFIG, ENDPOINT = (f"AWS::SageMaker::{name}" for name in ("Model", "EndpointConfig", "Endpoint"))
KEPT = {
    ENDPOINT,
    "AWS::S3::Bucket",
    "AWS::DynamoDB::Table",
    "AWS::IAM::Role",
    "AWS::ApplicationAutoScaling::ScalableTarget",
    "AWS::SageMaker::InferenceComponent",
}
"""Types that no change may replace: data, names that callers know, what would reset the instance count."""


def _xgboost(version="1.7-1", **environment):
    return MultiModelContainer.from_framework("xgboost", version=version, environment=environment)


def _key(stack):
    return kms.Key.from_key_arn(stack, "Key", KEY)


CHANGES = {
    "image": (lambda stack: {"container": _xgboost("3.0-5")}, {MODEL, CONFIG}),
    "environment": (lambda stack: {"container": _xgboost(SAGEMAKER_NUM_MODEL_WORKERS="2")}, {MODEL, CONFIG}),
    "cache mode": (lambda stack: {"cache_enabled": False}, {MODEL, CONFIG}),
    "network isolation": (lambda stack: {"network_isolation": False}, {MODEL, CONFIG}),
    "instance type": (lambda stack: {"instance_type": "ml.c5.2xlarge"}, {CONFIG}),
    "KMS key": (lambda stack: {"encryption_key": _key(stack)}, {CONFIG}),
    "volume": (lambda stack: {"volume_size_gb": 200}, {CONFIG}),
    "smallest fleet": (lambda stack: {"min_instances": 3, "max_instances": 4}, {CONFIG}),
    "greatest fleet": (lambda stack: {"max_instances": 9}, set()),
    "tags": (lambda stack: {"tags": {"team": "ranking"}}, set()),
}
"""What changes -> the endpoint's settings with it, and the types that are replaced."""


def _template(synthesize, change=lambda stack: {}):
    def build(app):
        stack = cdk.Stack(app, "Test", env=cdk.Environment(account="111122223333", region="eu-central-1"))
        store = ModelArtifactStore(stack, "Store")
        TenantRegistry(stack, "Registry")
        MultiModelEndpoint(stack, "Endpoint", **({"store": store, "container": _xgboost()} | change(stack)))

    return synthesize(build).templates["Test"]["Resources"]


def _create_only(resource_type):
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", resource_type).schema
    return {path.split("/")[2] for path in schema.get("createOnlyProperties", ())}


def _refers(value, names):
    text = json.dumps(value)
    return any(f'"{name}"' in text or f"${{{name}" in text for name in names)


def replaced(before, after):
    """Logical ids of ``before`` that an update to ``after`` replaces or deletes."""
    found = {name for name in before if name not in after or after[name]["Type"] != before[name]["Type"]}
    while True:
        more = set()
        for name in before.keys() - found:
            old, new = before[name].get("Properties", {}), after[name].get("Properties", {})
            for key in _create_only(before[name]["Type"]):
                if old.get(key) != new.get(key) or _refers(new.get(key), found):
                    more.add(name)
        if not more:
            return found
        found |= more


@pytest.fixture(scope="module")
def before(synthesize):
    return _template(synthesize)


@pytest.mark.parametrize("name", CHANGES)
def test_one_change_replaces_model_and_configuration_at_most(synthesize, before, name):
    change, expected = CHANGES[name]
    after = _template(synthesize, change)
    assert after != before
    assert {before[resource]["Type"] for resource in replaced(before, after)} == expected
    assert not expected & KEPT


def test_the_walk_sees_a_replaced_endpoint_and_what_hangs_on_it(synthesize, before):
    after = _template(synthesize, lambda stack: {"endpoint_name": "another"})
    types = {before[resource]["Type"] for resource in replaced(before, after)}
    assert types == {ENDPOINT, "AWS::ApplicationAutoScaling::ScalableTarget", "AWS::ApplicationAutoScaling::ScalingPolicy"}


def test_the_walk_sees_a_replaced_bucket_and_a_lost_resource(before):
    bucket = next(name for name, resource in before.items() if resource["Type"] == "AWS::S3::Bucket")
    after = json.loads(json.dumps(before))
    after[bucket]["Properties"]["BucketName"] = "another"
    assert bucket in replaced(before, after)
    del after[bucket]
    assert bucket in replaced(before, after)


DEDICATED_CHANGES = {
    "image": ({}, {"container": _xgboost("3.0-5")}, set()),
    "version": ({}, {"version": "v2-0123456789ab"}, set()),
    "memory": ({}, {"compute": ComputeRequirements(memory_mb=4096)}, set()),
    "instance type": ({"instance_type": "ml.c5.4xlarge"}, {}, {CONFIG}),
    "bounds": ({"max_instances": 9}, {}, {CONFIG}),
}
"""What changes -> the endpoint's and the component's settings with it, and the types that are replaced."""


@pytest.mark.parametrize("name", DEDICATED_CHANGES)
def test_one_change_of_a_dedicated_endpoint_replaces_its_configuration_at_most(synthesize, name):
    def template(endpoint_settings, component_settings):
        def build(app):
            stack = cdk.Stack(app, "Test", env=cdk.Environment(account="111122223333", region="eu-central-1"))
            endpoint = InferenceComponentEndpoint(stack, "Dedicated", store=ModelArtifactStore(stack, "Store"), **endpoint_settings)
            settings = {"container": _xgboost(), "version": "v1-0123456789ab", "compute": ComputeRequirements(memory_mb=2048)}
            endpoint.add_component("acme", "ranking", **(settings | component_settings))

        return synthesize(build).templates["Test"]["Resources"]

    endpoint_settings, component_settings, expected = DEDICATED_CHANGES[name]
    old, new = template({}, {}), template(endpoint_settings, component_settings)
    assert new != old
    assert {old[resource]["Type"] for resource in replaced(old, new)} == expected
