"""Application Auto Scaling over HTTP. It knows no endpoint here, so targets are tested on the model in process."""

from __future__ import annotations

from datetime import UTC, datetime

import botocore.session
import pytest
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator

from mme_local.autoscaling.activities import Activities
from mme_local.autoscaling.models import AutoScaling
from mme_local.autoscaling.responses import AutoScalingApi
from mme_local.wire import AwsError

KEY = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/shared/variant/AllTraffic",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
COPIES = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "inference-component/acme",
    "ScalableDimension": "sagemaker:inference-component:DesiredCopyCount",
}
STEPS = {"AdjustmentType": "ChangeInCapacity", "StepAdjustments": [{"MetricIntervalLowerBound": 0.0, "ScalingAdjustment": 1}]}
TRACKING = {
    "TargetValue": 70.0,
    "PredefinedMetricSpecification": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"},
    "ScaleInCooldown": 600,
    "ScaleOutCooldown": 300,
}


@pytest.fixture
def autoscaling():
    return AutoScaling(
        region="us-east-1",
        account="000000000000",
        variant_exists=lambda endpoint, variant: (endpoint, variant) == ("shared", "AllTraffic"),
        component_exists=lambda name: name == "acme",
        now=lambda: datetime.now(UTC),
    )


def policy(**values):
    return {**KEY, "PolicyName": "p", "PolicyType": "TargetTrackingScaling", "TargetTrackingScalingPolicyConfiguration": TRACKING, **values}


def action(**values):
    bounds = {"MinCapacity": 2, "MaxCapacity": 4}
    return {**KEY, "ScheduledActionName": "morning", "Schedule": "cron(0 7 * * ? *)", "ScalableTargetAction": bounds, **values}


class TestTargets:
    def test_a_target_is_registered_and_changed(self, autoscaling):
        first = autoscaling.register({**KEY, "MinCapacity": 2, "MaxCapacity": 4})
        second = autoscaling.register({**KEY, "MaxCapacity": 8})
        assert (second.arn, second.min_capacity, second.max_capacity) == (first.arn, 2, 8)

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"MinCapacity": 5, "MaxCapacity": 4}, "Maximum capacity cannot be less than minimum capacity"),
            ({"MinCapacity": 0, "MaxCapacity": 4}, "at least 1 instance"),
            ({"MinCapacity": 1}, "MinCapacity and MaxCapacity are required"),
            ({"MinCapacity": 1, "MaxCapacity": 2, "ResourceId": "endpoint/other/variant/AllTraffic"}, "no such variant"),
            ({"MinCapacity": 1, "MaxCapacity": 2, "ResourceId": "endpoint/shared"}, "must be endpoint/NAME/variant/NAME"),
            ({"MinCapacity": 0, "MaxCapacity": 2, **COPIES, "ResourceId": "inference-component/other"}, "no such component"),
            ({"MinCapacity": 0, "MaxCapacity": 2, **COPIES, "ResourceId": KEY["ResourceId"]}, "must be inference-component/NAME"),
            ({"MinCapacity": -1, "MaxCapacity": 2, **COPIES}, "it is 0 or more"),
            ({"MinCapacity": 1, "MaxCapacity": 2, "ServiceNamespace": "ecs"}, "namespace ecs is not supported"),
            ({"MinCapacity": 1, "MaxCapacity": 2, "ScalableDimension": "ecs:service:DesiredCount"}, "dimension ecs:service"),
        ],
    )
    def test_bad_targets_are_refused(self, autoscaling, change, text):
        with pytest.raises(AwsError, match=text):
            autoscaling.register({**KEY, **change})

    def test_tags_come_with_the_first_registration(self, autoscaling):
        target = autoscaling.register({**KEY, "MinCapacity": 1, "MaxCapacity": 2, "Tags": {"team": "ml"}})
        autoscaling.register({**KEY, "MaxCapacity": 3, "Tags": {"team": "other"}})
        assert autoscaling.tags_of(target.arn) == {"team": "ml"}
        with pytest.raises(AwsError, match="is not a scalable target") as caught:
            autoscaling.tags_of(target.arn + "0")
        assert caught.value.code == "ResourceNotFoundException"

    def test_copies_of_a_component_may_go_to_zero(self, autoscaling):
        assert autoscaling.register({**COPIES, "MinCapacity": 0, "MaxCapacity": 2}).min_capacity == 0

    def test_deregistering_takes_policies_and_actions_along(self, autoscaling):
        autoscaling.register({**KEY, "MinCapacity": 1, "MaxCapacity": 2})
        autoscaling.put_policy(policy())
        autoscaling.put_scheduled_action(action())
        autoscaling.deregister(KEY)
        assert (autoscaling.targets, autoscaling.policies, autoscaling.scheduled_actions) == ({}, {}, {})
        with pytest.raises(AwsError) as caught:
            autoscaling.deregister(KEY)
        assert caught.value.code == "ObjectNotFoundException"


class TestPolicies:
    def test_a_policy_needs_its_target(self, autoscaling):
        with pytest.raises(AwsError, match="No scalable target found") as caught:
            autoscaling.put_policy(policy())
        assert caught.value.code == "ObjectNotFoundException"

    @pytest.mark.parametrize(
        ("configuration", "text"),
        [
            ({**TRACKING, "TargetValue": 0.0}, "must be greater than 0"),
            ({"TargetValue": 1.0}, "Exactly one of"),
            (
                {**TRACKING, "PredefinedMetricSpecification": {"PredefinedMetricType": "ECSServiceAverageCPUUtilization"}},
                "does not fit sagemaker:variant:DesiredInstanceCount",
            ),
        ],
    )
    def test_bad_tracking_is_refused(self, autoscaling, configuration, text):
        autoscaling.register({**KEY, "MinCapacity": 1, "MaxCapacity": 2})
        with pytest.raises(AwsError, match=text):
            autoscaling.put_policy(policy(TargetTrackingScalingPolicyConfiguration=configuration))

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"PolicyType": "PredictiveScaling"}, "PredictiveScaling is not supported"),
            ({"PolicyType": "StepScaling"}, "requires StepScalingPolicyConfiguration and no other"),
        ],
    )
    def test_a_policy_of_another_kind_than_its_configuration_is_refused(self, autoscaling, change, text):
        autoscaling.register({**KEY, "MinCapacity": 1, "MaxCapacity": 2})
        with pytest.raises(AwsError, match=text):
            autoscaling.put_policy(policy(**change))

    def test_putting_it_again_keeps_its_arn(self, autoscaling):
        autoscaling.register({**KEY, "MinCapacity": 1, "MaxCapacity": 2})
        first = autoscaling.put_policy(policy())
        second = autoscaling.put_policy(policy(TargetTrackingScalingPolicyConfiguration={**TRACKING, "TargetValue": 90.0}))
        assert second.arn == first.arn
        assert second.request["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] == 90.0

    @pytest.mark.parametrize(
        ("configuration", "text"),
        [
            ({"StepAdjustments": STEPS["StepAdjustments"]}, "requires AdjustmentType and StepAdjustments"),
            ({"AdjustmentType": "ChangeInCapacity"}, "requires AdjustmentType and StepAdjustments"),
            (
                {**STEPS, "StepAdjustments": [{"MetricIntervalLowerBound": 5.0, "MetricIntervalUpperBound": 5.0, "ScalingAdjustment": 1}]},
                "must be less than its upper bound",
            ),
            (
                {
                    **STEPS,
                    "StepAdjustments": [
                        {"MetricIntervalLowerBound": 0.0, "MetricIntervalUpperBound": 5.0, "ScalingAdjustment": 1},
                        {"MetricIntervalLowerBound": 6.0, "ScalingAdjustment": 2},
                    ],
                },
                "neither overlap nor leave gaps",
            ),
        ],
    )
    def test_bad_steps_are_refused(self, autoscaling, configuration, text):
        autoscaling.register({**KEY, "MinCapacity": 1, "MaxCapacity": 2})
        given = {**KEY, "PolicyName": "p", "PolicyType": "StepScaling", "StepScalingPolicyConfiguration": configuration}
        with pytest.raises(AwsError, match=text):
            autoscaling.put_policy(given)

    def test_each_dimension_has_metrics_of_its_own(self, autoscaling):
        autoscaling.register({**COPIES, "MinCapacity": 0, "MaxCapacity": 2})
        with pytest.raises(AwsError, match="does not fit sagemaker:inference-component:DesiredCopyCount"):
            autoscaling.put_policy(policy(**COPIES))
        metric = {"PredefinedMetricType": "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"}
        tracking = {**TRACKING, "PredefinedMetricSpecification": metric}
        assert autoscaling.put_policy(policy(**COPIES, TargetTrackingScalingPolicyConfiguration=tracking)).key[1] == COPIES["ResourceId"]

    @pytest.mark.parametrize(
        ("metric", "text"),
        [
            ({"MetricName": "CPUUtilization"}, "needs Namespace and Statistic"),
            ({}, "either MetricName, Namespace and Statistic or Metrics"),
            ({"MetricName": "m", "Namespace": "n", "Statistic": "Average", "Metrics": []}, "or Metrics"),
        ],
    )
    def test_bad_metrics_of_ones_own_are_refused(self, autoscaling, metric, text):
        autoscaling.register({**KEY, "MinCapacity": 1, "MaxCapacity": 2})
        with pytest.raises(AwsError, match=text):
            autoscaling.put_policy(
                policy(TargetTrackingScalingPolicyConfiguration={"TargetValue": 1.0, "CustomizedMetricSpecification": metric})
            )


class TestScheduledActions:
    def test_an_action_needs_its_target_and_keeps_its_arn(self, autoscaling):
        with pytest.raises(AwsError, match="No scalable target found"):
            autoscaling.put_scheduled_action(action())
        autoscaling.register({**KEY, "MinCapacity": 1, "MaxCapacity": 4})
        first = autoscaling.put_scheduled_action(action())
        second = autoscaling.put_scheduled_action({**KEY, "ScheduledActionName": "morning", "Schedule": "rate(1 day)"})
        assert (second.arn, second.request["ScalableTargetAction"]) == (first.arn, first.request["ScalableTargetAction"])
        autoscaling.delete_scheduled_action(action())
        with pytest.raises(AwsError, match="No scheduled action morning"):
            autoscaling.delete_scheduled_action(action())

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"Schedule": "every morning"}, "not an at, rate or cron expression"),
            ({"ScalableTargetAction": {}}, "needs ScalableTargetAction"),
            ({"ScalableTargetAction": {"MinCapacity": 0}}, "it is 1 or more"),
            ({"ScalableTargetAction": {"MinCapacity": 3, "MaxCapacity": 2}}, "cannot be less than minimum"),
        ],
    )
    def test_bad_actions_are_refused(self, autoscaling, change, text):
        autoscaling.register({**KEY, "MinCapacity": 1, "MaxCapacity": 4})
        with pytest.raises(AwsError, match=text):
            autoscaling.put_scheduled_action(action(**change))


def test_answers_have_the_shapes_of_the_service(autoscaling, monkeypatch):
    monkeypatch.setattr("mme_local.autoscaling.responses.authorize", lambda *given: None)
    activities = Activities(lambda: 1000.0)
    key = tuple(KEY.values())
    activities.change(activities.begin(key, "Setting desired instance count to 2.", "minimum capacity was set to 2"), "Successful", "Done.")
    activities.note(key, "an alarm", {"Code": "AlreadyAtMaxCapacity", "MaxCapacity": 2})
    api, service = AutoScalingApi(autoscaling, activities), botocore.session.Session().get_service_model("application-autoscaling")
    for operation, parameters in (
        ("RegisterScalableTarget", {**KEY, "MinCapacity": 1, "MaxCapacity": 2}),
        ("PutScalingPolicy", policy()),
        ("DescribeScalableTargets", {"ServiceNamespace": "sagemaker"}),
        ("DescribeScalingActivities", {"ServiceNamespace": "sagemaker", "IncludeNotScaledActivities": True}),
        ("ListTagsForResource", {"ResourceARN": autoscaling.register({**COPIES, "MinCapacity": 0, "MaxCapacity": 1}).arn}),
        ("DescribeScalingPolicies", {"ServiceNamespace": "sagemaker", "ResourceId": KEY["ResourceId"]}),
        ("PutScheduledAction", action()),
        ("DescribeScheduledActions", {"ServiceNamespace": "sagemaker", "ScheduledActionNames": ["morning"]}),
        ("DeleteScheduledAction", {**KEY, "ScheduledActionName": "morning"}),
        ("DeleteScalingPolicy", {**KEY, "PolicyName": "p"}),
        ("DeregisterScalableTarget", KEY),
    ):
        answer = api.serve(None, operation, parameters)
        report = ParamValidator().validate(answer, service.operation_model(operation).output_shape)
        assert not report.has_errors(), report.generate_report()


class TestActivities:
    @pytest.fixture
    def api(self, autoscaling, monkeypatch):
        monkeypatch.setattr("mme_local.autoscaling.responses.authorize", lambda *given: None)
        activities = Activities(lambda: 1000.0)
        for number in range(60):
            activities.begin(tuple((KEY if number % 2 else COPIES).values()), f"number {number}", "a test")
        activities.note(tuple(KEY.values()), "an alarm", {"Code": "AlreadyAtMaxCapacity", "MaxCapacity": 2})
        return AutoScalingApi(autoscaling, activities)

    def test_they_come_newest_first_in_pages(self, api):
        first = api.serve(None, "DescribeScalingActivities", {"ServiceNamespace": "sagemaker"})
        assert [activity["Description"] for activity in first["ScalingActivities"][:2]] == ["number 59", "number 58"]
        rest = api.serve(None, "DescribeScalingActivities", {"ServiceNamespace": "sagemaker", "NextToken": first["NextToken"]})
        assert (len(first["ScalingActivities"]), len(rest["ScalingActivities"])) == (50, 10)
        assert "NextToken" not in rest

    def test_they_are_filtered(self, api):
        given = {"ServiceNamespace": "sagemaker", "ResourceId": COPIES["ResourceId"], "MaxResults": 40}
        found = api.serve(None, "DescribeScalingActivities", given)["ScalingActivities"]
        assert {activity["ResourceId"] for activity in found} == {COPIES["ResourceId"]}
        assert len(found) == 30
        with pytest.raises(AwsError, match="must also specify a resource ID"):
            api.serve(None, "DescribeScalingActivities", {"ServiceNamespace": "sagemaker", "ScalableDimension": KEY["ScalableDimension"]})

    def test_those_that_did_nothing_come_only_if_asked_for(self, api):
        def newest(**given):
            return api.serve(None, "DescribeScalingActivities", {"ServiceNamespace": "sagemaker", **given})["ScalingActivities"][0]

        assert "NotScaledReasons" not in newest()
        told = newest(IncludeNotScaledActivities=True)
        assert told["NotScaledReasons"] == [{"Code": "AlreadyAtMaxCapacity", "MaxCapacity": 2}]
        assert (told["Description"], told["StatusCode"]) == ("Attempting to scale due to alarm triggered", "Failed")


def test_tags_are_added_and_removed(autoscaling, monkeypatch):
    monkeypatch.setattr("mme_local.autoscaling.responses.authorize", lambda *given: None)
    api = AutoScalingApi(autoscaling, Activities(lambda: 0.0))
    arn = autoscaling.register({**KEY, "MinCapacity": 1, "MaxCapacity": 2, "Tags": {"team": "ml"}}).arn
    api.serve(None, "TagResource", {"ResourceARN": arn, "Tags": {"stage": "test"}})
    api.serve(None, "UntagResource", {"ResourceARN": arn, "TagKeys": ["team"]})
    assert api.serve(None, "ListTagsForResource", {"ResourceARN": arn}) == {"Tags": {"stage": "test"}}
    with pytest.raises(AwsError, match="at most 50 tags"):
        api.serve(None, "TagResource", {"ResourceARN": arn, "Tags": {f"key-{number}": "x" for number in range(50)}})


class TestOverHttp:
    def test_errors_are_the_modelled_ones(self, bench):
        client = bench.client("application-autoscaling")
        with pytest.raises(client.exceptions.ObjectNotFoundException, match="No scalable target found"):
            client.deregister_scalable_target(**KEY)
        with pytest.raises(client.exceptions.ValidationException, match="no such variant"):
            client.register_scalable_target(**KEY, MinCapacity=1, MaxCapacity=2)
        with pytest.raises(client.exceptions.ValidationException, match="enum value set"):
            client.describe_scalable_targets(ServiceNamespace="sage")
        assert client.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []

    def test_a_caller_without_permission_is_refused(self, bench):
        client = bench.client("application-autoscaling", bench.user())
        with pytest.raises(ClientError, match="not authorized to perform: application-autoscaling:DescribeScalableTargets"):
            client.describe_scalable_targets(ServiceNamespace="sagemaker")
