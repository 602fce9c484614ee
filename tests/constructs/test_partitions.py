"""ARNs, service principals, host names and VPC endpoint names of every partition, and of apps that do not know theirs."""

from __future__ import annotations

import json
import re

import aws_cdk as cdk
import pytest

from mme_constructs import (
    ModelAdmission,
    ModelArtifactStore,
    ModelPool,
    MultiModelContainer,
    MultiModelEndpoint,
    PlatformAdmin,
    PrivateAccess,
    TenantAccess,
    TenantApi,
    TenantRegistry,
)
from stacks.reference import build as build_reference

ENVIRONMENTS = {
    "agnostic": None,
    "commercial": cdk.Environment(account="111122223333", region="eu-central-1"),
    "GovCloud": cdk.Environment(account="111122223333", region="us-gov-west-1"),
    "China": cdk.Environment(account="111122223333", region="cn-north-1"),
}
PARTITIONS = {"commercial": "aws", "GovCloud": "aws-us-gov", "China": "aws-cn"}
INTERFACES = ("sagemaker.runtime", "sagemaker.api", "logs", "sts", "events", "execute-api", "monitoring", "ecr.api", "ecr.dkr")
CHINESE = ("sagemaker.runtime", "sagemaker.api", "sts", "execute-api", "monitoring", "ecr.api", "ecr.dkr")
"""What PrivateLink calls ``cn.com.amazonaws...`` in China; the rest is called as everywhere (Amazon VPC User Guide of China)."""
PRINCIPALS = {
    "apigateway.amazonaws.com",
    "cloudwatch.amazonaws.com",
    "events.amazonaws.com",
    "lambda.amazonaws.com",
    "logging.s3.amazonaws.com",
    "sagemaker.amazonaws.com",
}
"""Services that roles and resources of the platform trust; their names are the same in every partition (CDK's region facts)."""


def _platform(app, env):
    stack = cdk.Stack(app, "Platform", env=env)
    store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
    private = PrivateAccess(stack, "Private", store=store, registry=registry)
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    endpoint = MultiModelEndpoint(stack, "Shared", store=store, container=container)
    private.allow_invoke(endpoint, components=True)
    pools = [ModelPool(framework="xgboost", endpoint=endpoint)]
    settings = private.function_settings()
    api = TenantApi(
        stack,
        "Api",
        store=store,
        registry=registry,
        pools=pools,
        private_endpoint=private.execute_api,
        invocation_settings=settings,
        account_logging=True,
    )
    ModelAdmission(stack, "Admission", store=store, registry=registry, pools=pools)
    admin = PlatformAdmin(stack, "Admin", api=api)
    access = TenantAccess(stack, "Access", api=api, trusted=[admin.role], store=store, endpoints=[endpoint], dedicated_endpoints=[endpoint])
    admin.allow_tenant_sessions(access)
    cdk.CfnOutput(stack, "Url", value=api.url)


@pytest.fixture(scope="module", params=ENVIRONMENTS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def platform(name, synthesize):
    return synthesize(lambda app: _platform(app, ENVIRONMENTS[name]))


@pytest.fixture(scope="module")
def reference_there(name, synthesize):
    return synthesize(lambda app: build_reference(app, env=ENVIRONMENTS[name]))


def _texts(node):
    """Every text of a template, with references as ``{Name}`` and joins joined."""
    match node:
        case str():
            yield node
        case {"Fn::Join": [delimiter, parts]}:
            yield delimiter.join("".join(_texts(part)) for part in parts)
        case {"Ref": reference}:
            yield f"{{{reference}}}"
        case {"Fn::GetAtt": [logical_id, attribute]}:
            yield f"{{{logical_id}.{attribute}}}"
        case dict():
            for value in node.values():
                yield from _texts(value)
        case list():
            for item in node:
                yield from _texts(item)


def _arns(synthesized):
    return {text for template in synthesized.templates.values() for text in _texts(template["Resources"]) if text.startswith("arn:")}


@pytest.mark.parametrize("app", ["platform", "reference_there"])
def test_every_arn_carries_the_partition_or_refers_to_it(request, name, app):
    arns = _arns(request.getfixturevalue(app))
    assert len(arns) > 5
    allowed = {"{AWS::Partition}", PARTITIONS.get(name, "{AWS::Partition}")}
    assert {arn.split(":")[1] if not arn.startswith("arn:{") else "{AWS::Partition}" for arn in arns} <= allowed


@pytest.mark.parametrize("app", ["platform", "reference_there"])
def test_roles_trust_services_by_the_partitions_names(request, name, app):
    synthesized = request.getfixturevalue(app)
    trusted = {
        service
        for role in synthesized.resources("AWS::IAM::Role").values()
        for statement in role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        for service in _texts(statement["Principal"].get("Service", []))
    }
    assert {"sagemaker.amazonaws.com", "lambda.amazonaws.com"} <= trusted <= PRINCIPALS


def test_permissions_of_functions_name_services_by_the_partitions_names(platform):
    assert {item["Properties"]["Principal"] for item in platform.resources("AWS::Lambda::Permission").values()} <= PRINCIPALS


def test_interface_endpoints_have_the_names_of_the_partition(name, platform):
    region = "{AWS::Region}" if name == "agnostic" else ENVIRONMENTS[name].region
    names = {
        "".join(_texts(item["Properties"]["ServiceName"]))
        for item in platform.resources("AWS::EC2::VPCEndpoint").values()
        if item["Properties"]["VpcEndpointType"] == "Interface"
    }
    prefixes = dict.fromkeys(INTERFACES, "com.amazonaws") | (dict.fromkeys(CHINESE, "cn.com.amazonaws") if name == "China" else {})
    assert names == {f"{prefixes[service]}.{region}.{service}" for service in INTERFACES}


def test_gateway_endpoints_have_the_same_names_everywhere(platform):
    names = {
        "".join(_texts(item["Properties"]["ServiceName"]))
        for item in platform.resources("AWS::EC2::VPCEndpoint").values()
        if item["Properties"]["VpcEndpointType"] == "Gateway"
    }
    assert names == {"com.amazonaws.{AWS::Region}.s3", "com.amazonaws.{AWS::Region}.dynamodb"}


def test_image_layers_are_read_from_the_regions_bucket(name, platform):
    (gateway,) = [item for key, item in platform.resources("AWS::EC2::VPCEndpoint").items() if key.startswith("PrivateS3")]
    (layers,) = [text for text in _texts(gateway["Properties"]["PolicyDocument"]) if "starport" in text]
    region = "{AWS::Region}" if name == "agnostic" else ENVIRONMENTS[name].region
    partition = PARTITIONS.get(name, "{AWS::Partition}")
    assert layers in {f"arn:{known}:s3:::prod-{region}-starport-layer-bucket/*" for known in (partition, "{AWS::Partition}")}


def test_the_images_host_is_the_partitions(name, platform):
    (model,) = platform.resources("AWS::SageMaker::Model").values()
    containers = model["Properties"].get("Containers") or [model["Properties"]["PrimaryContainer"]]
    (image,) = {json.dumps(container["Image"]) for container in containers}
    if name == "agnostic":
        assert "AWS::URLSuffix" in image
        assert "Fn::FindInMap" in image
    else:
        suffix = "amazonaws.com.cn" if name == "China" else "amazonaws.com"
        literal = re.fullmatch(rf'"\d{{12}}\.dkr\.ecr\.{ENVIRONMENTS[name].region}\.{re.escape(suffix)}/sagemaker-xgboost:1\.7-1"', image)
        assert literal or "AWS::URLSuffix" in image, image


def test_the_apis_host_is_the_partitions(platform):
    url = "".join(_texts(platform.templates["Platform"]["Outputs"]["Url"]["Value"]))
    assert re.fullmatch(r"https://\{Api\w+\}\.execute-api\.[^/]+\.\{AWS::URLSuffix\}/\{Api\w+\}/", url), url


@pytest.mark.parametrize("name", ["China"], indirect=True)
def test_in_china_no_host_of_another_partition_is_written_down(platform, reference_there):
    hosts = {
        text
        for synthesized in (platform, reference_there)
        for template in synthesized.templates.values()
        for text in _texts(template["Resources"])
        if re.search(r"amazonaws\.com(?!\.cn)", text)
    }
    assert {"lambda.amazonaws.com"} <= hosts <= PRINCIPALS
