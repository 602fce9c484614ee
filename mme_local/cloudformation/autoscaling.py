# ruff: noqa: ARG002 - the emulator's engine calls provisioners with these arguments
"""Provisioners of Application Auto Scaling's resource types. They run on worker threads and act on the event loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mme_local.autoscaling.models import AutoScaling, ScalableTarget
from mme_local.autoscaling.responses import OPERATIONS
from mme_local.loop import LoopBridge
from mme_local.wire import AwsError, ValidationError, service_model

__all__ = ["PolicyProvisioner", "TargetProvisioner"]

Properties = Mapping[str, Any]
Provisioned = tuple[str, dict[str, str]]


def _validated(operation: str, request: Properties) -> dict[str, Any]:
    return service_model("application-autoscaling", OPERATIONS).validated(operation, request, from_template=True)


def _key_of(target_id: str) -> dict[str, str]:
    """The parts of a scalable target's id, ``<resource id>|<dimension>|<namespace>`` (CloudFormation: return values)."""
    parts = target_id.split("|")
    if len(parts) != 3:
        raise ValidationError(f"ScalingTargetId {target_id} is not the Ref of a scalable target.")
    return {"ResourceId": parts[0], "ScalableDimension": parts[1], "ServiceNamespace": parts[2]}


class TargetProvisioner:
    """``AWS::ApplicationAutoScaling::ScalableTarget``."""

    def __init__(self, autoscaling: AutoScaling, bridge: LoopBridge) -> None:
        self._autoscaling, self._bridge = autoscaling, bridge

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Register the target with its scheduled actions."""
        # CloudFormation has a list of tags, the API a map.
        tags = {str(tag["Key"]): str(tag["Value"]) for tag in properties.get("Tags") or []}
        request = _validated("RegisterScalableTarget", {**properties, "Tags": tags})
        actions = [
            _validated("PutScheduledAction", {**properties, **{name: value for name, value in action.items() if name != "Tags"}})
            for action in properties.get("ScheduledActions") or []
        ]
        target = self._bridge.call(lambda: self._register(request, actions))
        namespace, resource_id, dimension = target.key
        target_id = f"{resource_id}|{dimension}|{namespace}"
        return target_id, {"Id": target_id}

    def _register(self, request: Properties, actions: list[dict[str, Any]]) -> ScalableTarget:
        """The target is registered with all of its actions, or, when it is a new one, not at all."""
        target, known = None, set(self._autoscaling.targets)
        try:
            target = self._autoscaling.register(request)
            for action in actions:
                self._autoscaling.put_scheduled_action(action)
        except AwsError:
            if target is not None and target.key not in known:
                self._autoscaling.deregister(request)
            raise
        target.tags.clear()
        target.tags.update(request.get("Tags", {}))
        names = {action["ScheduledActionName"] for action in actions}
        for name, key in list(self._autoscaling.scheduled_actions):
            if key == target.key and name not in names:
                self._autoscaling.delete_scheduled_action({**request, "ScheduledActionName": name})
        return target

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
        """Change capacities, suspension or scheduled actions."""
        return self.create("", new, stack)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Deregister the target if it is there."""
        self._bridge.call(lambda: _unless_missing(lambda: self._autoscaling.deregister(_key_of(physical_id))))


class PolicyProvisioner:
    """``AWS::ApplicationAutoScaling::ScalingPolicy``."""

    def __init__(self, autoscaling: AutoScaling, bridge: LoopBridge) -> None:
        self._autoscaling, self._bridge = autoscaling, bridge

    def create(self, logical_id: str, properties: Properties, stack: str) -> Provisioned:
        """Put the policy."""
        request = _validated("PutScalingPolicy", _with_target(properties))
        policy = self._bridge.call(lambda: self._autoscaling.put_policy(request))
        return policy.arn, {"Arn": policy.arn}

    def update(self, physical_id: str, old: Properties, new: Properties, stack: str) -> Provisioned:
        """Change the policy's configuration."""
        return self.create("", new, stack)

    def delete(self, physical_id: str, properties: Properties) -> None:
        """Delete the policy if it is there."""
        request = _with_target(properties)
        self._bridge.call(lambda: _unless_missing(lambda: self._autoscaling.delete_policy(request)))


def _with_target(properties: Properties) -> dict[str, Any]:
    target_id = properties.get("ScalingTargetId")
    return {**properties, **(_key_of(str(target_id)) if target_id else {})}


def _unless_missing(action: Any) -> None:
    try:
        action()
    except AwsError as error:
        if error.code != "ObjectNotFoundException":
            raise
