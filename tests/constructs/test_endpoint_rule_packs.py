"""Endpoints with everything on: rule packs, cfn-lint and the policy linter find nothing but the stack's decisions."""

from __future__ import annotations

import json

import aws_cdk as cdk
import pytest
from aws_cdk import aws_applicationautoscaling as appscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks

from mme_constructs import (
    CacheScaling,
    CanaryDeployment,
    ComponentScaling,
    ComputeRequirements,
    CpuScaling,
    DataCapture,
    EndpointNetwork,
    InferenceComponentEndpoint,
    InferencePipeline,
    ModelArtifactStore,
    MultiModelContainer,
    MultiModelEndpoint,
    PipelineStep,
    ProductionVariant,
    RollingDeployment,
    ScheduledScaling,
)
from tests.constructs.policy_documents import documents, lint

DECISIONS = {
    "NIST.800.53.R5-IAMNoInlinePolicy",
    "NIST.800.53.R5-SageMakerEndpointConfigurationKMSKeyConfigured",
    "NIST.800.53.R5-S3BucketReplicationEnabled",
    "NIST.800.53.R5-S3DefaultEncryptionKMS",
    "NIST.800.53.R5-S3BucketLoggingEnabled",
    "AwsSolutions-S1",
}
"""What a stack decides: keys, replicas, access logs, how policies are attached."""


def _build(app, region="eu-central-1"):
    stack = cdk.Stack(app, "Test", env=None if region is None else cdk.Environment(account="111122223333", region=region))
    store = ModelArtifactStore(stack, "Store")
    xgboost = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    features = MultiModelContainer.from_framework("scikit-learn", version="1.2-1", multi_model=False)
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-01234567",
        availability_zones=["eu-central-1a", "eu-central-1b"],
        isolated_subnet_ids=["subnet-01234567", "subnet-89abcdef"],
    )
    records = s3.Bucket.from_bucket_name(stack, "Records", "records")
    endpoint = MultiModelEndpoint(
        stack,
        "Shared",
        store=store,
        container=InferencePipeline([PipelineStep(container=features, artifact_key="features/v1.tar.gz"), PipelineStep(container=xgboost)]),
        variants=[
            ProductionVariant(name="Champion", weight=9),
            ProductionVariant(name="Challenger", container=xgboost, scaling=CpuScaling()),
        ],
        cache_enabled=False,
        network=EndpointNetwork(vpc=vpc),
        volume_size_gb=100,
        container_startup_timeout_seconds=600,
        model_download_timeout_seconds=600,
        data_capture=DataCapture(bucket=records, sampling_percent=1),
        deployment=CanaryDeployment(timeout_seconds=3600),
        tags={"team": "ranking"},
    )
    endpoint.auto_scale(
        CacheScaling(), ScheduledScaling(name="morning", schedule=appscaling.Schedule.cron(hour="7", minute="0"), min_instances=4)
    )
    rolling = MultiModelEndpoint(stack, "Rolling", store=store, container=xgboost, deployment=RollingDeployment(timeout_seconds=7200))
    dedicated = InferenceComponentEndpoint(
        stack, "Dedicated", store=store, endpoint_name="dedicated", min_instances=0, network=EndpointNetwork(vpc=vpc)
    )
    dedicated.add_component(
        "acme",
        "ranking",
        container=xgboost,
        version="v1-0123456789ab",
        compute=ComputeRequirements(memory_mb=2048, max_memory_mb=4096, cpus=0.5),
        scaling=ComponentScaling(min_copies=0, concurrent_requests_per_copy=5),
        model_download_timeout_seconds=600,
        deployment=RollingDeployment(timeout_seconds=7200),
    )
    caller = iam.Role(stack, "Caller", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    dedicated.grant_invoke(caller)
    dedicated.grant_invoke_tenant(caller, "acme")
    rolling.grant_invoke_tenant(caller, "acme")


@pytest.fixture(scope="module")
def everything(synthesize):
    return synthesize(_build)


def test_the_rule_packs_find_nothing_but_the_stacks_decisions(flags, tmp_path):
    app = cdk.App(context=flags, outdir=str(tmp_path), analytics_reporting=False)
    _build(app)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True), NIST80053R5Checks(app, verbose=True))
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()
    report = json.loads((tmp_path / "validation-report.json").read_text("utf-8"))
    found = {
        f"{violation['ruleName']} {construct['constructPath']}"
        for plugin in report["pluginReports"]
        if plugin["pluginName"] in ("AwsSolutions", "NIST.800.53.R5")
        for violation in plugin["violations"]
        for construct in violation["violatingConstructs"]
    }
    assert {text for text in found if text.partition(" ")[0] not in DECISIONS} == set()


def test_cfn_lint_finds_neither_error_nor_warning(everything):
    from cfnlint.api import ManualArgs, lint_file

    (path,) = everything.folder.glob("*.template.json")
    assert [str(match) for match in lint_file(path, ManualArgs(regions=["eu-central-1"], ignore_checks=["W3005"]))] == []


def test_the_policy_linter_finds_nothing_but_grants_of_components_alone(everything):
    # The linter takes the endpoint for the action's only resource; the Service Authorization Reference lists the component beside it.
    findings = [finding for finding in lint(list(documents(everything.templates))) if finding[1:3] != ("LOW", "RESOURCE_STAR")]
    assert [(name, issue) for name, _, issue, _ in findings] == [(findings[0][0], "RESOURCE_MISMATCH")]
    assert findings[0][0].startswith("Test/Caller")


@pytest.mark.parametrize(
    ("region", "partition"), [("cn-north-1", "arn:aws-cn:"), ("us-gov-west-1", "arn:aws-us-gov:"), (None, "AWS::Partition")]
)
def test_arns_carry_the_partition_of_the_region(synthesize, region, partition):
    text = json.dumps(synthesize(lambda app: _build(app, region)).templates)
    assert "arn:aws:" not in text
    assert text.count(partition) > 20
