"""How updates move to new instances, and what is refused."""

from __future__ import annotations

import pytest
from aws_cdk import aws_cloudwatch as cloudwatch

from mme_constructs import (
    AllAtOnceDeployment,
    CanaryDeployment,
    CapacitySize,
    LinearDeployment,
    ModelArtifactStore,
    MultiModelContainer,
    MultiModelEndpoint,
    ProductionVariant,
    RollingDeployment,
)
from mme_constructs.errors import DeploymentError


def _endpoint(stack, **props):
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    return MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, **props)


def _config(synthesize_stack, deployment):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, deployment=deployment))
    return synthesized.only("AWS::SageMaker::Endpoint")["Properties"]["DeploymentConfig"]


def test_without_a_policy_the_service_decides(synthesize_stack):
    assert "DeploymentConfig" not in synthesize_stack(_endpoint).only("AWS::SageMaker::Endpoint")["Properties"]


def test_all_at_once_renders_the_wait_that_the_api_demands(synthesize_stack):
    assert _config(synthesize_stack, AllAtOnceDeployment(wait_seconds=0, timeout_seconds=600)) == {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0},
            "TerminationWaitInSeconds": 0,
            "MaximumExecutionTimeoutInSeconds": 600,
        }
    }


def test_a_canary_is_a_tenth_by_default(synthesize_stack):
    assert _config(synthesize_stack, CanaryDeployment(wait_seconds=600, termination_wait_seconds=120)) == {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": {
                "Type": "CANARY",
                "WaitIntervalInSeconds": 600,
                "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 10},
            },
            "TerminationWaitInSeconds": 120,
        }
    }


def test_linear_steps_may_be_instances(synthesize_stack):
    routing = _config(synthesize_stack, LinearDeployment(step=CapacitySize.of_instances(2)))["BlueGreenUpdatePolicy"]
    assert routing["TrafficRoutingConfiguration"] == {
        "Type": "LINEAR",
        "WaitIntervalInSeconds": 300,
        "LinearStepSize": {"Type": "INSTANCE_COUNT", "Value": 2},
    }


def test_rolling_replaces_batches_and_may_go_back_faster(synthesize_stack):
    deployment = RollingDeployment(
        batch=CapacitySize.of_percent(20), rollback_batch=CapacitySize.of_percent(100), wait_seconds=60, timeout_seconds=3600
    )
    assert _config(synthesize_stack, deployment) == {
        "RollingUpdatePolicy": {
            "MaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 20},
            "RollbackMaximumBatchSize": {"Type": "CAPACITY_PERCENT", "Value": 100},
            "WaitIntervalInSeconds": 60,
            "MaximumExecutionTimeoutInSeconds": 3600,
        }
    }


def test_an_alarm_on_the_endpoints_own_metric_rolls_back_without_a_circle(synthesize_stack):
    def build(stack):
        endpoint = _endpoint(stack, deployment=CanaryDeployment())
        alarm = endpoint.metric_invocation_5xx_errors().create_alarm(stack, "Errors", threshold=5, evaluation_periods=3)
        endpoint.add_rollback_alarms(alarm)

    synthesized = synthesize_stack(build)
    (alarm_id, alarm), *_ = synthesized.resources("AWS::CloudWatch::Alarm").items()
    assert "Fn::GetAtt" not in str(alarm["Properties"]["Dimensions"])
    config = synthesized.only("AWS::SageMaker::Endpoint")["Properties"]["DeploymentConfig"]
    assert config["AutoRollbackConfiguration"] == {"Alarms": [{"AlarmName": {"Ref": alarm_id}}]}
    statements = synthesized.only("AWS::IAM::Policy")["Properties"]["PolicyDocument"]["Statement"]
    (watching,) = [item for item in statements if item["Action"] == "cloudwatch:DescribeAlarms"]
    assert watching["Resource"] == {"Fn::GetAtt": [alarm_id, "Arn"]}


def test_a_policys_own_alarms_are_rendered_and_granted(synthesize_stack):
    def build(stack):
        alarm = cloudwatch.Alarm.from_alarm_arn(stack, "Alarm", "arn:aws:cloudwatch:eu-central-1:111122223333:alarm:slow")
        _endpoint(stack, deployment=RollingDeployment(alarms=[alarm]))

    synthesized = synthesize_stack(build)
    config = synthesized.only("AWS::SageMaker::Endpoint")["Properties"]["DeploymentConfig"]
    assert config["AutoRollbackConfiguration"] == {"Alarms": [{"AlarmName": "slow"}]}
    assert "alarm:slow" in str(synthesized.only("AWS::IAM::Policy"))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: CanaryDeployment(wait_seconds=3601), "wait_seconds is out of range: got 3601; allowed: 0 to 3,600 seconds"),
        (lambda: CanaryDeployment(termination_wait_seconds=-1), "termination_wait_seconds is out of range"),
        (lambda: CanaryDeployment(timeout_seconds=599), "600 to 28,800 seconds"),
        (lambda: CanaryDeployment(timeout_seconds=28_801), "600 to 28,800 seconds"),
        (lambda: CanaryDeployment(size=CapacitySize.of_percent(51)), "The canary is out of range: got '51 %'"),
        (lambda: LinearDeployment(step=CapacitySize.of_percent(9)), "10 to 50 %"),
        (lambda: RollingDeployment(batch=CapacitySize.of_percent(4)), "5 to 50 %"),
        (lambda: CapacitySize.of_instances(0), "1 instance or more"),
        (lambda: CapacitySize.of_percent(101), "1 to 100 percent"),
        (lambda: AllAtOnceDeployment(wait_seconds=500, termination_wait_seconds=100, timeout_seconds=600), "got '600 s of waits'"),
        (lambda: LinearDeployment(wait_seconds=300, timeout_seconds=1200), "4 times wait_seconds"),
        (lambda: RollingDeployment(wait_seconds=300, timeout_seconds=1200), "4 times wait_seconds"),
    ],
)
def test_rejects_numbers_that_the_service_refuses(make, text):
    with pytest.raises(DeploymentError) as caught:
        make()
    assert text in str(caught.value)


def test_one_second_more_than_all_waits_is_enough():
    assert LinearDeployment(wait_seconds=300, timeout_seconds=1201).timeout_seconds == 1201


@pytest.mark.parametrize(
    ("deployment", "fleet", "text"),
    [
        (
            CanaryDeployment(size=CapacitySize.of_instances(3)),
            (2, 4),
            "for every size of the fleet: got '3 of 2 to 4 instances'",
        ),
        (LinearDeployment(step=CapacitySize.of_instances(1)), (11, 20), "got '1 of 11 to 20 instances'; allowed: 10 to 50 %"),
        (RollingDeployment(batch=CapacitySize.of_instances(1)), (21, 40), "got '1 of 21 to 40 instances'; allowed: 5 to 50 %"),
    ],
)
def test_rejects_a_step_that_fits_no_size_of_the_fleet(stack, deployment, fleet, text):
    with pytest.raises(DeploymentError) as caught:
        _endpoint(stack, deployment=deployment, min_instances=fleet[0], max_instances=fleet[1])
    assert text in str(caught.value)


def test_a_step_that_fits_some_size_of_the_fleet_passes(synthesize_stack):
    deployment = LinearDeployment(step=CapacitySize.of_instances(1))
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, deployment=deployment, min_instances=10, max_instances=20))
    assert synthesized.only("AWS::SageMaker::Endpoint")["Properties"]["DeploymentConfig"]


def test_rejects_waits_that_do_not_fit_the_steps_of_the_largest_fleet(stack):
    deployment = LinearDeployment(step=CapacitySize.of_instances(1), wait_seconds=300, timeout_seconds=1200)
    with pytest.raises(DeploymentError, match="4 times wait_seconds"):
        _endpoint(stack, deployment=deployment)


def test_rejects_rolling_with_several_variants(stack):
    with pytest.raises(DeploymentError, match="excludes endpoints of several variants: got '2 variants'"):
        _endpoint(stack, deployment=RollingDeployment(), variants=[ProductionVariant(name="A"), ProductionVariant(name="B")])


def test_rejects_alarms_without_a_policy_and_more_than_ten(stack):
    alarms = [
        cloudwatch.Alarm.from_alarm_arn(stack, f"A{n}", f"arn:aws:cloudwatch:eu-central-1:111122223333:alarm:a{n}") for n in range(11)
    ]
    endpoint = _endpoint(stack)
    with pytest.raises(DeploymentError, match="got 'no deployment'"):
        endpoint.add_rollback_alarms(alarms[0])
    with pytest.raises(DeploymentError, match="got 11; allowed: up to 10"):
        CanaryDeployment(alarms=alarms)
