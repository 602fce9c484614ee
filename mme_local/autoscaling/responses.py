"""Application Auto Scaling: one method per operation, request in, answer out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mme_local.autoscaling.activities import Activities, Activity
from mme_local.autoscaling.models import AutoScaling, ScalableTarget, ScalingPolicy, ScheduledAction
from mme_local.emulator import Request, authorize
from mme_local.wire import AwsError, ValidationError, service_model

__all__ = ["OPERATIONS", "AutoScalingApi"]

OPERATIONS = (
    "DeleteScalingPolicy",
    "DeleteScheduledAction",
    "DeregisterScalableTarget",
    "DescribeScalableTargets",
    "DescribeScalingActivities",
    "DescribeScalingPolicies",
    "DescribeScheduledActions",
    "ListTagsForResource",
    "PutScalingPolicy",
    "PutScheduledAction",
    "RegisterScalableTarget",
    "TagResource",
    "UntagResource",
)
_PAGE = 50
_MOST_TAGS = 50
_KEY_MEMBERS = ("ServiceNamespace", "ResourceId", "ScalableDimension")
_POLICY_MEMBERS = ("PolicyType", "StepScalingPolicyConfiguration", "TargetTrackingScalingPolicyConfiguration")
_ACTION_MEMBERS = ("Schedule", "Timezone", "StartTime", "EndTime", "ScalableTargetAction")
Document = dict[str, Any]


class AutoScalingApi:
    """Serves the operations of `OPERATIONS`.

    Args:
        autoscaling: targets and policies.
        activities: what was done.
    """

    def __init__(self, autoscaling: AutoScaling, activities: Activities) -> None:
        self._autoscaling, self._activities = autoscaling, activities

    def serve(self, request: Request, operation: str, parameters: object) -> Document:
        """Validate, authorize and perform one operation.

        Raises:
            AwsError: the operation refuses.
            AccessDeniedError: the caller may not.
        """
        given = parameters if isinstance(parameters, dict) else {}
        authorize(request, f"application-autoscaling:{operation}", self._resource(operation, given), _context(given))
        validated = service_model("application-autoscaling", OPERATIONS).validated(operation, parameters)
        handlers: Mapping[str, Callable[[Mapping[str, Any]], Document]] = {
            "RegisterScalableTarget": self._register,
            "DeregisterScalableTarget": self._deregister,
            "DescribeScalableTargets": self._describe_targets,
            "PutScalingPolicy": self._put_policy,
            "DeleteScalingPolicy": self._delete_policy,
            "DescribeScalingPolicies": self._describe_policies,
            "PutScheduledAction": self._put_scheduled_action,
            "DeleteScheduledAction": self._delete_scheduled_action,
            "DescribeScheduledActions": self._describe_scheduled_actions,
            "DescribeScalingActivities": self._describe_activities,
            "TagResource": self._tag,
            "UntagResource": self._untag,
            "ListTagsForResource": lambda given: {"Tags": self._autoscaling.tags_of(given["ResourceARN"])},
        }
        return handlers[operation](validated)

    def _resource(self, operation: str, given: Mapping[str, Any]) -> str:
        """The ARN that IAM checks: of an existing target, else any target; Describe operations have none."""
        if operation.startswith("Describe"):
            return "*"
        if "ResourceARN" in given:
            return str(given["ResourceARN"])
        target = self._autoscaling.targets.get(tuple(str(given.get(member)) for member in _KEY_MEMBERS))  # type: ignore[arg-type]
        if target is not None:
            return target.arn
        return f"arn:aws:application-autoscaling:{self._autoscaling.region}:{self._autoscaling.account}:scalable-target/*"

    def _register(self, given: Mapping[str, Any]) -> Document:
        return {"ScalableTargetARN": self._autoscaling.register(given).arn}

    def _deregister(self, given: Mapping[str, Any]) -> Document:
        self._autoscaling.deregister(given)
        return {}

    def _put_policy(self, given: Mapping[str, Any]) -> Document:
        policy = self._autoscaling.put_policy(given)
        return {"PolicyARN": policy.arn, "Alarms": self._autoscaling.alarms_of(policy)}

    def _delete_policy(self, given: Mapping[str, Any]) -> Document:
        self._autoscaling.delete_policy(given)
        return {}

    def _describe_targets(self, given: Mapping[str, Any]) -> Document:
        wanted = [
            target
            for target in self._autoscaling.targets.values()
            if target.key[0] == given["ServiceNamespace"]
            and target.key[1] in given.get("ResourceIds", [target.key[1]])
            and target.key[2] == given.get("ScalableDimension", target.key[2])
        ]
        page, more = _page(wanted, given)
        return {"ScalableTargets": [_target(target) for target in page], **more}

    def _put_scheduled_action(self, given: Mapping[str, Any]) -> Document:
        self._autoscaling.put_scheduled_action(given)
        return {}

    def _delete_scheduled_action(self, given: Mapping[str, Any]) -> Document:
        self._autoscaling.delete_scheduled_action(given)
        return {}

    def _describe_scheduled_actions(self, given: Mapping[str, Any]) -> Document:
        wanted = [
            action
            for action in self._autoscaling.scheduled_actions.values()
            if action.key[0] == given["ServiceNamespace"]
            and action.name in given.get("ScheduledActionNames", [action.name])
            and action.key[1] == given.get("ResourceId", action.key[1])
            and action.key[2] == given.get("ScalableDimension", action.key[2])
        ]
        page, more = _page(wanted, given)
        return {"ScheduledActions": [_action(action) for action in page], **more}

    def _describe_policies(self, given: Mapping[str, Any]) -> Document:
        wanted = [
            policy
            for policy in self._autoscaling.policies.values()
            if policy.key[0] == given["ServiceNamespace"]
            and policy.name in given.get("PolicyNames", [policy.name])
            and policy.key[1] == given.get("ResourceId", policy.key[1])
            and policy.key[2] == given.get("ScalableDimension", policy.key[2])
        ]
        page, more = _page(wanted, given)
        return {"ScalingPolicies": [_policy(policy, self._autoscaling.alarms_of(policy)) for policy in page], **more}

    def _describe_activities(self, given: Mapping[str, Any]) -> Document:
        if "ScalableDimension" in given and "ResourceId" not in given:
            raise ValidationError("If you specify a scalable dimension, you must also specify a resource ID.")
        wanted = self._activities.of(
            given["ServiceNamespace"],
            resource_id=given.get("ResourceId"),
            dimension=given.get("ScalableDimension"),
            not_scaled=given.get("IncludeNotScaledActivities", False),
        )
        page, more = _page(wanted, given)
        return {"ScalingActivities": [_activity(activity) for activity in page], **more}

    def _tag(self, given: Mapping[str, Any]) -> Document:
        tags = self._autoscaling.tags_of(given["ResourceARN"])
        if len({**tags, **given["Tags"]}) > _MOST_TAGS:
            raise AwsError(
                "TooManyTagsException", f"A scalable target can have at most {_MOST_TAGS} tags.", ResourceName=given["ResourceARN"]
            )
        tags.update(given["Tags"])
        return {}

    def _untag(self, given: Mapping[str, Any]) -> Document:
        tags = self._autoscaling.tags_of(given["ResourceARN"])
        for key in given["TagKeys"]:
            tags.pop(key, None)
        return {}


def _context(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"application-autoscaling:{name}": str(given[member])
        for name, member in (("service-namespace", "ServiceNamespace"), ("scalable-dimension", "ScalableDimension"))
        if member in given
    }


def _target(target: ScalableTarget) -> Document:
    return {
        **dict(zip(_KEY_MEMBERS, target.key, strict=True)),
        "MinCapacity": target.min_capacity,
        "MaxCapacity": target.max_capacity,
        "RoleARN": target.role_arn,
        "CreationTime": target.created,
        "SuspendedState": {
            "DynamicScalingInSuspended": False,
            "DynamicScalingOutSuspended": False,
            "ScheduledScalingSuspended": False,
            **target.suspended,
        },
        "ScalableTargetARN": target.arn,
    }


def _policy(policy: ScalingPolicy, alarms: list[dict[str, str]]) -> Document:
    return {
        **dict(zip(_KEY_MEMBERS, policy.key, strict=True)),
        "PolicyARN": policy.arn,
        "PolicyName": policy.name,
        "CreationTime": policy.created,
        "Alarms": alarms,
        **{member: policy.request[member] for member in _POLICY_MEMBERS if member in policy.request},
    }


def _activity(activity: Activity) -> Document:
    return {
        **dict(zip(_KEY_MEMBERS, activity.key, strict=True)),
        "ActivityId": activity.id,
        "Description": activity.description,
        "Cause": activity.cause,
        "StartTime": activity.started,
        "StatusCode": activity.status,
        **({"EndTime": activity.ended} if activity.ended is not None else {}),
        **({"StatusMessage": activity.message} if activity.message is not None else {}),
        **({"NotScaledReasons": [dict(reason) for reason in activity.not_scaled]} if activity.not_scaled else {}),
    }


def _action(action: ScheduledAction) -> Document:
    return {
        **dict(zip(_KEY_MEMBERS, action.key, strict=True)),
        "ScheduledActionARN": action.arn,
        "ScheduledActionName": action.name,
        "CreationTime": action.created,
        **{member: action.request[member] for member in _ACTION_MEMBERS if member in action.request},
    }


def _page(wanted: list[Any], given: Mapping[str, Any]) -> tuple[list[Any], dict[str, str]]:
    token = given.get("NextToken", "0")
    if not token.isdecimal():
        raise AwsError("InvalidNextTokenException", "The specified next token is not valid.")
    start = int(token)
    end = start + given.get("MaxResults", _PAGE)
    return wanted[start:end], {"NextToken": str(end)} if end < len(wanted) else {}
