"""Copies of a component by Application Auto Scaling: from zero by a step policy, to more by target tracking, back to zero."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from mme_local import LocalCloud, LocalSettings
from mme_local.dataplane import DataPlaneSettings
from tests.local.conftest import Workbench, allow
from tests.local.scripted_endpoint import IMAGE, artifact

SCALE = 240.0
RESOURCE = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "inference-component/acme",
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}
DIMENSIONS = [{"Name": "InferenceComponentName", "Value": "acme"}]


@pytest.fixture
def bench() -> Iterator[Workbench]:
    """An endpoint that hosts one component with one copy, on simulated servers."""
    settings = LocalSettings(clock_scale=SCALE, data_plane=DataPlaneSettings(servers={"*": "simulated"}))
    with LocalCloud(settings=settings) as cloud, closing(Workbench(cloud)) as workbench:
        bucket, sagemaker = workbench.bucket(), workbench.client("sagemaker")
        workbench.client("s3").put_object(Bucket=bucket, Key="models/a.tar.gz", Body=artifact())
        role = workbench.service_role("sagemaker.amazonaws.com", allow(["s3:GetObject", "s3:ListBucket"], "*"))
        container = {"Image": IMAGE, "ModelDataUrl": f"s3://{bucket}/models/a.tar.gz"}
        sagemaker.create_model(ModelName="single", ExecutionRoleArn=role, PrimaryContainer=container)
        variant = {"VariantName": "AllTraffic", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
        sagemaker.create_endpoint_config(EndpointConfigName="hosting", ExecutionRoleArn=role, ProductionVariants=[variant])
        sagemaker.create_endpoint(EndpointName="dedicated", EndpointConfigName="hosting")
        workbench.wait_for(lambda: sagemaker.describe_endpoint(EndpointName="dedicated")["EndpointStatus"] == "InService", seconds=60)
        needs = {"MinMemoryRequiredInMb": 512, "NumberOfCpuCoresRequired": 1}
        sagemaker.create_inference_component(
            InferenceComponentName="acme",
            EndpointName="dedicated",
            VariantName="AllTraffic",
            Specification={"ModelName": "single", "ComputeResourceRequirements": needs},
            RuntimeConfig={"CopyCount": 1},
        )
        until_copies(workbench, 1)
        yield workbench


def until_copies(bench: Workbench, count: int) -> None:
    def there() -> bool:
        described = bench.client("sagemaker").describe_inference_component(InferenceComponentName="acme")
        copies = described["RuntimeConfig"]
        assert described["InferenceComponentStatus"] != "Failed", described
        return (copies["CurrentCopyCount"], described["InferenceComponentStatus"]) == (count, "InService")

    bench.wait_for(there, seconds=120)


def test_a_component_goes_to_zero_and_comes_back_when_it_is_asked(bench):
    scaling = bench.client("application-autoscaling")
    scaling.register_scalable_target(**RESOURCE, MinCapacity=0, MaxCapacity=2)
    policy = scaling.put_scaling_policy(
        **RESOURCE,
        PolicyName="from-zero",
        PolicyType="StepScaling",
        StepScalingPolicyConfiguration={
            "AdjustmentType": "ChangeInCapacity",
            "StepAdjustments": [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}],
            "MetricAggregationType": "Maximum",
            "Cooldown": 60,
        },
    )
    bench.client("cloudwatch").put_metric_alarm(
        AlarmName="nobody-answers",
        Namespace="AWS/SageMaker",
        MetricName="NoCapacityInvocationFailures",
        Dimensions=DIMENSIONS,
        Statistic="Sum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1.0,
        ComparisonOperator="GreaterThanOrEqualToThreshold",
        TreatMissingData="notBreaching",
        AlarmActions=[policy["PolicyARN"]],
    )
    tracking = {
        "TargetValue": 5.0,
        "PredefinedMetricSpecification": {"PredefinedMetricType": "SageMakerInferenceComponentInvocationsPerCopy"},
        "ScaleInCooldown": 60,
    }
    scaling.put_scaling_policy(
        **RESOURCE, PolicyName="track", PolicyType="TargetTrackingScaling", TargetTrackingScalingPolicyConfiguration=tracking
    )

    # Nobody asks: fifteen minutes later the copy goes.
    until_copies(bench, 0)

    # Somebody asks: refused, but a copy comes. It may become idle and go again, so whoever wants an answer goes on asking.
    refused = 0
    with closing(bench.cloud.client("sagemaker-runtime", config=Config(retries={"total_max_attempts": 1}))) as runtime:

        def ask() -> bool:
            nonlocal refused
            try:
                answer = runtime.invoke_endpoint(EndpointName="dedicated", InferenceComponentName="acme", Body=b"x")
            except ClientError as error:
                refused += "no capacity" in str(error)
                return False
            return int(answer["ResponseMetadata"]["HTTPStatusCode"]) == 200

        assert not ask()
        assert refused == 1
        bench.wait_for(ask, seconds=120)

    def oldest_two() -> list[dict[str, Any]]:
        return scaling.describe_scaling_activities(**RESOURCE)["ScalingActivities"][:-3:-1]

    bench.wait_for(lambda: {activity["StatusCode"] for activity in oldest_two()} == {"Successful"})
    activities = oldest_two()
    assert [activity["Description"] for activity in activities] == ["Setting desired copy count to 0.", "Setting desired copy count to 1."]
    assert activities[1]["Cause"] == "monitor alarm nobody-answers in state ALARM triggered policy from-zero"
    bench.wait_for(lambda: failures_of_the_last_hour(bench) == refused)


def failures_of_the_last_hour(bench: Workbench) -> float:
    now = bench.cloud.status()["clock"]["now"]
    (point,) = bench.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName="NoCapacityInvocationFailures",
        Dimensions=DIMENSIONS,
        StartTime=datetime.fromtimestamp(now // 3600 * 3600 - 3600, UTC),
        EndTime=datetime.fromtimestamp(now // 3600 * 3600 + 3600, UTC),
        Period=7200,
        Statistics=["Sum"],
    )["Datapoints"]
    return float(point["Sum"])
