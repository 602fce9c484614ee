"""`mme doctor` against a running local cloud: real clients, real answers, no data until somebody publishes some."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from mme_cli.doctor import Target, blind_text, examine
from mme_cli.errors import CommandError

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
TRUST = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
READ = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}


def policy(statement):
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@pytest.fixture
def asked(local_cloud):
    """The local cloud with one endpoint, as the command asks it."""
    local_cloud.client("s3").create_bucket(Bucket="doctor-models")
    iam, sagemaker = local_cloud.client("iam"), local_cloud.client("sagemaker")
    role = iam.create_role(RoleName="doctor-execution", AssumeRolePolicyDocument=policy(TRUST))["Role"]["Arn"]
    iam.put_role_policy(RoleName="doctor-execution", PolicyName="read", PolicyDocument=policy(READ))
    container = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": "s3://doctor-models/models/"}
    sagemaker.create_model(ModelName="doctor", ExecutionRoleArn=role, PrimaryContainer=container)
    variant = {"VariantName": "AllTraffic", "ModelName": "doctor", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName="doctor", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="doctor", EndpointConfigName="doctor")
    yield Target(f"the local cloud at {local_cloud.endpoint_url}", True, sagemaker, local_cloud.client("cloudwatch"))
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="doctor", WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    sagemaker.delete_endpoint(EndpointName="doctor")


def look(asked, endpoint="doctor"):
    return examine(asked, endpoint, variant=None, instance_type=None, hours=1)


def test_it_says_that_there_are_no_metrics_until_there_are_and_then_what_they_mean(local_cloud, asked):
    report = look(asked)
    assert report.diagnosis.blind
    assert (report.readings.instance.name, report.readings.cache_enabled) == ("ml.m5.xlarge", True)
    assert "publishes no CloudWatch metrics yet" in blind_text(report)
    with pytest.raises(CommandError, match="has no endpoint 'nowhere'"):
        look(asked, "nowhere")

    dimensions = [{"Name": "EndpointName", "Value": "doctor"}, {"Name": "VariantName", "Value": "AllTraffic"}]
    now = datetime.now(UTC)
    for name, value in (("Invocations", 100.0), ("Invocation5XXErrors", 10.0)):
        data = [
            {"MetricName": name, "Dimensions": dimensions, "Timestamp": now - timedelta(minutes=minute), "Value": value}
            for minute in range(1, 11)
        ]
        local_cloud.client("cloudwatch").put_metric_data(Namespace="AWS/SageMaker", MetricData=data)
    report = look(asked)
    assert not report.diagnosis.blind
    (finding,) = report.diagnosis.findings
    assert (finding.rule.id, finding.now, finding.worst) == ("server-errors", True, "10 %")
