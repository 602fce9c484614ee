from __future__ import annotations

import aws_cdk as cdk
import pytest

from mme_constructs import MultiModelContainer
from mme_constructs.errors import ContainerError
from mme_facts.images import framework_image

XGBOOST = framework_image("xgboost", "1.7-1")


def _locate(synthesize_stack, container, env=None):
    def build(stack):
        location = container.locate(stack)
        cdk.CfnOutput(stack, "Uri", value=location.uri)
        cdk.CfnOutput(stack, "Repository", value=location.repository_arn)

    template = synthesize_stack(build, env=env).templates["Test"]
    return template["Outputs"]["Uri"]["Value"], template["Outputs"]["Repository"]["Value"], template.get("Mappings")


@pytest.mark.parametrize(
    ("region", "suffix"),
    [
        ("eu-central-1", "amazonaws.com"),
        ("cn-north-1", "amazonaws.com.cn"),
        ("us-gov-west-1", "amazonaws.com"),
        ("us-iso-east-1", "c2s.ic.gov"),
    ],
)
def test_in_a_concrete_region_the_uri_is_resolved_with_the_partitions_suffix(synthesize_stack, region, suffix):
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    uri, repository, mappings = _locate(synthesize_stack, container, cdk.Environment(account="111122223333", region=region))
    account = XGBOOST.accounts[region]
    assert uri == f"{account}.dkr.ecr.{region}.{suffix}/sagemaker-xgboost:1.7-1"
    assert f":ecr:{region}:{account}:repository/sagemaker-xgboost" in str(repository)
    assert mappings is None


def test_without_a_region_the_account_comes_from_one_mapping_over_all_regions(synthesize_stack):
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    uri, repository, mappings = _locate(synthesize_stack, container)
    ((name, mapping),) = mappings.items()
    assert mapping == {region: {"account": account} for region, account in sorted(XGBOOST.accounts.items())}
    find = {"Fn::FindInMap": [name, {"Ref": "AWS::Region"}, "account"]}
    assert uri["Fn::Join"][1] == [
        find,
        ".dkr.ecr.",
        {"Ref": "AWS::Region"},
        ".",
        {"Ref": "AWS::URLSuffix"},
        "/sagemaker-xgboost:1.7-1",
    ]
    assert find in repository["Fn::Join"][1]


def test_two_versions_have_a_mapping_each(synthesize_stack):
    def build(stack):
        for version in ("1.7-1", "1.5-1"):
            cdk.CfnOutput(stack, f"V{version[2]}", value=MultiModelContainer.from_framework("xgboost", version=version).locate(stack).uri)

    assert len(synthesize_stack(build).templates["Test"]["Mappings"]) == 2


@pytest.mark.parametrize(
    ("framework", "version", "named"), [("catboost", "1.7-1", "xgboost"), ("xgboost", "9.9-9", "1.7-1")], ids=["framework", "version"]
)
def test_rejects_what_sagemaker_does_not_publish_and_names_what_it_does(framework, version, named):
    with pytest.raises(ContainerError) as caught:
        MultiModelContainer.from_framework(framework, version=version)
    assert f"{framework} {version}" in str(caught.value)
    assert named in str(caught.value)


def test_rejects_a_region_without_the_image(flags):
    stack = cdk.Stack(cdk.App(context=flags), "Test", env=cdk.Environment(account="111122223333", region="mx-central-1"))
    with pytest.raises(ContainerError, match=r"does not publish xgboost 1\.7-1 in the stack's region: got 'mx-central-1'"):
        MultiModelContainer.from_framework("xgboost", version="1.7-1").locate(stack)


@pytest.mark.parametrize("reference", [":v3", "@sha256:" + "a" * 64], ids=["tag", "digest"])
def test_any_ecr_image_knows_its_own_repository(synthesize_stack, reference):
    image = f"444455556666.dkr.ecr.eu-west-1.amazonaws.com/team/server{reference}"
    uri, repository, _ = _locate(
        synthesize_stack, MultiModelContainer.from_image_uri(image), cdk.Environment(account="111122223333", region="eu-west-1")
    )
    assert uri == image
    assert ":ecr:eu-west-1:444455556666:repository/team/server" in str(repository)


@pytest.mark.parametrize(
    "uri",
    [
        "docker.io/library/python:3.13",
        "444455556666.dkr.ecr.eu-west-1.amazonaws.com/team/server",
        "4444.dkr.ecr.eu-west-1.amazonaws.com/server:v1",
        "",
    ],
)
def test_rejects_an_image_outside_ecr_or_without_a_tag(uri):
    with pytest.raises(ContainerError, match="Push it to ECR in the endpoint's region"):
        MultiModelContainer.from_image_uri(uri)


def test_rejects_an_image_of_another_region(flags):
    stack = cdk.Stack(cdk.App(context=flags), "Test", env=cdk.Environment(account="111122223333", region="eu-west-1"))
    container = MultiModelContainer.from_image_uri("444455556666.dkr.ecr.us-east-1.amazonaws.com/server:v1")
    with pytest.raises(ContainerError, match="another region"):
        container.locate(stack)


def test_a_token_needs_its_repository(stack):
    uri = cdk.CfnParameter(stack, "Image").value_as_string
    with pytest.raises(ContainerError, match="Pass repository_arn"):
        MultiModelContainer.from_image_uri(uri)
    arn = "arn:aws:ecr:eu-west-1:444455556666:repository/server"
    assert MultiModelContainer.from_image_uri(uri, repository_arn=arn).locate(stack).repository_arn == arn


def test_rejects_variables_beyond_sagemakers_limits():
    with pytest.raises(ContainerError, match="at most 100"):
        MultiModelContainer.from_framework("xgboost", version="1.7-1", environment={f"V{n}": "x" for n in range(101)})
    with pytest.raises(ContainerError, match="1,024 bytes"):
        MultiModelContainer.from_framework("xgboost", version="1.7-1", environment={"V": "x" * 1025})
