"""The reference app as users run it: flags, outputs, validation, rule packs, cfn-lint, environments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3
from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks

from mme_local.toolchain import node
from stacks.reference import build

CHECKOUT = Path(__file__).parents[2]
PACKS = {"AwsSolutions", "NIST.800.53.R5"}


def _with_packs(app):
    build(app)
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True), NIST80053R5Checks(app, verbose=True))


def _report(folder):
    report = json.loads((folder / "validation-report.json").read_text("utf-8"))
    return {plugin["pluginName"]: plugin for plugin in report["pluginReports"]}


def test_cdk_json_carries_the_recommended_flags_of_this_cdk():
    (archive,) = (Path(cdk.__file__).parent / "_jsii").glob("aws-cdk-lib@*.tgz")
    with tarfile.open(archive) as tar:
        recommended = json.load(tar.extractfile("package/recommended-feature-flags.json"))
    document = json.loads((CHECKOUT / "cdk.json").read_text("utf-8"))
    assert document["app"] == "python3 app.py"
    assert document["context"] == recommended


def test_the_app_passes_the_default_validation_and_asked_to_the_rule_packs(tmp_path, flags):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CDK_")}
    environment |= {"CDK_OUTDIR": str(tmp_path), "CDK_CONTEXT_JSON": json.dumps(flags | {"nag": "true"}), "JSII_NODE": str(node())}
    result = subprocess.run([sys.executable, "app.py"], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    # A plugin with a finding, CloudFormation Validate and the annotations included, would have a report of its own.
    reports = _report(tmp_path)
    assert set(reports) == PACKS
    assert [report["violations"] for report in reports.values()] == [[], []]
    assert {path.name.partition(".")[0] for path in tmp_path.glob("*.template.json")} == {"MmePlatform", "MmeStorage"}


def test_the_rule_packs_find_nothing_that_is_not_acknowledged(synthesize):
    reports = _report(synthesize(_with_packs).folder)
    assert set(reports) == PACKS
    for report in reports.values():
        assert report["conclusion"] == "success"
        assert report["violations"] == []


def test_every_acknowledgement_is_used_and_says_why(synthesize):
    synthesized = synthesize(_with_packs)
    suppressed = [item for report in _report(synthesized.folder).values() for item in report["suppressedViolations"]]
    assert len(suppressed) > 20
    used = {item["ruleName"] for item in suppressed}
    acknowledged = {}
    for metadata in _metadata(synthesized):
        acknowledged |= metadata
    assert {rule.split("::", 1)[1] for rule in acknowledged} - used == set()
    assert min(len(reason) for reason in acknowledged.values()) >= 30


def _metadata(synthesized):
    for path in synthesized.folder.glob("*.metadata.json"):
        for entries in json.loads(path.read_text("utf-8")).values():
            for entry in entries:
                if entry["type"] == "aws:cdk:acknowledged-rules":
                    yield {rule: reason for rule, reason in entry["data"].items() if not rule.startswith("Annotation::")}


def test_a_resource_without_acknowledgement_fails_the_packs(synthesize):
    def build_with_a_bare_bucket(app):
        _with_packs(app)
        s3.Bucket(app.node.find_child("MmeStorage"), "Bare")

    with pytest.raises(RuntimeError, match="AwsSolutions-S1"):
        synthesize(build_with_a_bare_bucket)


@pytest.mark.parametrize("variant", ["reference", "reference_concrete"])
def test_cfn_lint_finds_neither_error_nor_warning(request, variant):
    from cfnlint.api import ManualArgs, lint_file

    # W3005: CDK lets a function depend on its role besides the policy; the role alone is implied by a reference.
    config = ManualArgs(regions=["eu-central-1"], ignore_checks=["W3005"])
    for path in sorted(request.getfixturevalue(variant).folder.glob("*.template.json")):
        assert [str(match) for match in lint_file(path, config)] == [], path.name


def test_the_outputs_stand_in_the_stack_that_owns_the_thing(reference):
    outputs = {
        name: sorted(output for output in template.get("Outputs", {}) if not output.startswith("PublishOutput"))
        for name, template in reference.templates.items()
    }
    assert outputs == {
        "MmeStorage": ["BucketName", "TableName"],
        "MmePlatform": [
            "AlarmTopicArn",
            "ApiUrl",
            "EndpointName",
            "InvocationLogGroup",
            "PlatformAdminRoleArn",
            "TenantAccessRoleArn",
            "WarmUpFunction",
        ],
    }


def test_no_stack_holds_a_custom_resource(reference):
    types = {resource["Type"] for template in reference.templates.values() for resource in template["Resources"].values()}
    assert not [name for name in types if name.startswith("Custom::") or name == "AWS::CloudFormation::CustomResource"]
    assert len(reference.resources("AWS::Lambda::Function")) == 7


def test_the_functions_reserve_their_concurrency(reference):
    reserved = [item["Properties"]["ReservedConcurrentExecutions"] for item in reference.resources("AWS::Lambda::Function").values()]
    assert sorted(reserved) == [1, 1, 3, 3, 15, 50, 150]


def _differences(left, right, path=()):
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            yield from _differences(left.get(key), right.get(key), (*path, key))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _differences(one, other, (*path, index))
    elif left != right:
        yield path


def test_the_local_environment_differs_in_deletion_only(reference, reference_local):
    paths = list(_differences(reference.templates, reference_local.templates))
    assert {path[-1] for path in paths} == {"DeletionPolicy", "UpdateReplacePolicy", "DeletionProtectionEnabled"}
    kept = {
        resource["Type"]
        for template in reference_local.templates.values()
        for resource in template["Resources"].values()
        if resource.get("DeletionPolicy", "Delete") != "Delete"
    }
    assert kept == set()


def test_on_aws_data_outlives_the_stacks(reference):
    for resource_type in ("AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::Logs::LogGroup"):
        assert {resource["DeletionPolicy"] for resource in reference.resources(resource_type).values()} == {"Retain"}


def test_an_unknown_environment_is_refused_with_those_that_exist(synthesize):
    with pytest.raises(ValueError, match="environment=prod is not allowed: use one of aws, local"):
        synthesize(build, environment="prod")


def test_a_concrete_environment_resolves_image_and_arns(reference_concrete):
    image = reference_concrete.only("AWS::SageMaker::Model")["Properties"]["PrimaryContainer"]["Image"]
    assert image == "492215442770.dkr.ecr.eu-central-1.amazonaws.com/sagemaker-xgboost:1.7-1"
    assert "Mappings" not in reference_concrete.templates["MmePlatform"]


@pytest.mark.parametrize(("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")])
def test_arns_carry_the_partition_of_the_region(synthesize, region, partition):
    synthesized = synthesize(lambda app: build(app, env=cdk.Environment(account="111122223333", region=region)))
    text = json.dumps(synthesized.templates)
    assert f"arn:{partition}:sagemaker:{region}:" in text or '"AWS::Partition"' in text
    assert '"arn:aws:' not in text
