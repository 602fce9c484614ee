"""Scalable targets, scaling policies and scheduled actions of SageMaker variants and inference components, validated.

`mme_local.autoscaling.engine` acts on them.
"""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from mme_local.autoscaling.schedules import Schedule, ScheduleError, parse_schedule
from mme_local.autoscaling.tracking import HIGH, LOW, alarm_documents, alarm_name
from mme_local.wire import AwsError, ValidationError

__all__ = [
    "COMPONENT_COPIES",
    "VARIANT_INSTANCES",
    "AlarmsOfPolicies",
    "AutoScaling",
    "Key",
    "ScalableTarget",
    "ScalingPolicy",
    "ScheduledAction",
    "resource_parts",
]

VARIANT_INSTANCES = "sagemaker:variant:DesiredInstanceCount"
COMPONENT_COPIES = "sagemaker:inference-component:DesiredCopyCount"
_NAME = r"([A-Za-z0-9](?:-*[A-Za-z0-9])*)"
_RESOURCE_IDS = {
    VARIANT_INSTANCES: (re.compile(f"endpoint/{_NAME}/variant/{_NAME}"), "endpoint/NAME/variant/NAME"),
    COMPONENT_COPIES: (re.compile(f"inference-component/{_NAME}"), "inference-component/NAME"),
}
_METRICS = {
    VARIANT_INSTANCES: ("SageMakerVariantInvocationsPerInstance", "SageMakerVariantConcurrentRequestsPerModelHighResolution"),
    COMPONENT_COPIES: (
        "SageMakerInferenceComponentInvocationsPerCopy",
        "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution",
    ),
}
"""Predefined metrics of a dimension (API reference: PredefinedMetricSpecification)."""
_CONFIGURATIONS = {"TargetTrackingScaling": "TargetTrackingScalingPolicyConfiguration", "StepScaling": "StepScalingPolicyConfiguration"}

Key = tuple[str, str, str]
"""Namespace, resource id and dimension."""


class AlarmsOfPolicies(Protocol):
    """`mme_local.cloudwatch.alarms.Alarms`, for the alarms of target tracking policies."""

    def put(self, request: object) -> object:
        """Create or replace a metric alarm; raises `AwsError`."""

    def delete(self, names: Sequence[str]) -> None:
        """Delete the alarms that are there."""

    def arn(self, name: str) -> str:
        """The ARN of an alarm."""

    def describe(self, *, action_prefix: str) -> list[dict[str, Any]]:
        """The alarms with an action whose ARN starts so."""


@dataclass(slots=True)
class ScalableTarget:
    """A registered target."""

    key: Key
    arn: str
    min_capacity: int
    max_capacity: int
    role_arn: str
    created: datetime
    suspended: Mapping[str, bool]
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ScalingPolicy:
    """A scaling policy: ``request`` holds the merged PutScalingPolicy requests, ``alarms`` the names of its own alarms by their kind."""

    name: str
    key: Key
    arn: str
    request: dict[str, Any]
    created: datetime
    alarms: dict[str, str] = field(default_factory=dict)

    @property
    def tracks(self) -> bool:
        """Whether it is a target tracking policy."""
        return bool(self.request["PolicyType"] == "TargetTrackingScaling")

    @property
    def configuration(self) -> Mapping[str, Any]:
        """Its configuration, of either kind."""
        configuration: Mapping[str, Any] = self.request[_CONFIGURATIONS[self.request["PolicyType"]]]
        return configuration

    @property
    def scales_in(self) -> bool:
        """Whether it may scale in."""
        return not self.configuration.get("DisableScaleIn", False)


@dataclass(slots=True)
class ScheduledAction:
    """A scheduled action: ``request`` holds the merged PutScheduledAction requests."""

    name: str
    key: Key
    arn: str
    request: dict[str, Any]
    created: datetime
    schedule: Schedule


class AutoScaling:
    """Application Auto Scaling of one account and region, for SageMaker variants and inference components.

    Args:
        region: AWS region.
        account: account id.
        variant_exists: whether an endpoint (first argument) has a variant (second).
        component_exists: whether there is an inference component.
        now: the clock.
        alarms: where target tracking policies have their alarms; without it they have none.
        refusal: why a target may not be scaled, if there is a reason.
    """

    def __init__(
        self,
        *,
        region: str,
        account: str,
        variant_exists: Callable[[str, str], bool],
        component_exists: Callable[[str], bool],
        now: Callable[[], datetime],
        alarms: AlarmsOfPolicies | None = None,
        refusal: Callable[[Key], str | None] = lambda _key: None,
    ) -> None:
        self.region, self.account, self._now = region, account, now
        self._alarms, self._refusal = alarms, refusal
        self._of_targets: list[Callable[[Key], None]] = []
        self._of_schedules: list[Callable[[Key], None]] = []
        self._variant_exists, self._component_exists = variant_exists, component_exists
        self.targets: dict[Key, ScalableTarget] = {}
        self.scheduled_actions: dict[tuple[str, Key], ScheduledAction] = {}
        self.policies: dict[tuple[str, Key], ScalingPolicy] = {}

    def listen(self, *, targets: Callable[[Key], None], schedules: Callable[[Key], None]) -> None:
        """Call ``targets`` with the key of a registered, changed or deregistered target, ``schedules`` with that of changed schedules."""
        self._of_targets.append(targets)
        self._of_schedules.append(schedules)

    def register(self, request: Mapping[str, Any]) -> ScalableTarget:
        """Register or change a scalable target; raises `AwsError`."""
        key = self._key(request)
        existing = self.targets.get(key)
        parts = resource_parts(key)
        if key[2] == COMPONENT_COPIES:
            if not self._component_exists(parts[0]):
                raise ValidationError(
                    f"No scalable target found for service namespace: sagemaker, resource ID: {key[1]}: no such component."
                )
        elif not self._variant_exists(parts[0], parts[1]):
            raise ValidationError(f"No scalable target found for service namespace: sagemaker, resource ID: {key[1]}: no such variant.")
        if existing is None and (reason := self._refusal(key)) is not None:
            raise ValidationError(reason)
        minimum = request.get("MinCapacity", existing.min_capacity if existing else None)
        maximum = request.get("MaxCapacity", existing.max_capacity if existing else None)
        if minimum is None or maximum is None:
            raise ValidationError("MinCapacity and MaxCapacity are required when you register a new scalable target.")
        if minimum < 0:
            raise ValidationError(f"Minimum capacity {minimum} is not allowed: it is 0 or more.")
        if minimum < 1 and key[2] == VARIANT_INSTANCES:
            raise ValidationError(f"Minimum capacity {minimum} is not allowed: a variant of an endpoint has at least 1 instance.")
        if minimum > maximum:
            raise ValidationError("Maximum capacity cannot be less than minimum capacity")
        suspended = {**(existing.suspended if existing else {}), **request.get("SuspendedState", {})}
        role = "AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
        linked = f"arn:aws:iam::{self.account}:role/aws-service-role/sagemaker.application-autoscaling.amazonaws.com/{role}"
        arn = f"arn:aws:application-autoscaling:{self.region}:{self.account}:scalable-target/{uuid.uuid4().hex}"
        self.targets[key] = ScalableTarget(
            key,
            existing.arn if existing else arn,
            minimum,
            maximum,
            request.get("RoleARN", existing.role_arn if existing else linked),
            existing.created if existing else self._now(),
            suspended,
            existing.tags if existing else dict(request.get("Tags", {})),
        )
        for listener in self._of_targets:
            listener(key)
        return self.targets[key]

    def deregister(self, request: Mapping[str, Any]) -> None:
        """Forget a target, its policies and its scheduled actions; raises `AwsError`."""
        key = self._key(request)
        self.target(key)
        del self.targets[key]
        for policy in [policy for policy in self.policies.values() if policy.key == key]:
            self._forget_policy(policy)
        for action in [entry for entry in self.scheduled_actions if entry[1] == key]:
            del self.scheduled_actions[action]
        self._tell_schedules(key)
        for listener in self._of_targets:
            listener(key)

    def target(self, key: Key) -> ScalableTarget:
        """A registered target; raises ``ObjectNotFoundException``."""
        if key not in self.targets:
            namespace, resource_id, dimension = key
            raise AwsError(
                "ObjectNotFoundException",
                f"No scalable target found for service namespace: {namespace}, resource ID: {resource_id}, scalable dimension: {dimension}",
            )
        return self.targets[key]

    def tags_of(self, arn: str) -> dict[str, str]:
        """The tags of a target, to read and change; raises ``ResourceNotFoundException``."""
        for target in self.targets.values():
            if target.arn == arn:
                return target.tags
        raise AwsError("ResourceNotFoundException", f"The resource {arn} is not a scalable target.", ResourceName=arn)

    def put_policy(self, request: Mapping[str, Any]) -> ScalingPolicy:
        """Create or change a policy of a registered target; raises `AwsError`."""
        key = self._key(request)
        self.target(key)
        name = request["PolicyName"]
        existing = self.policies.get((name, key))
        merged = {**(existing.request if existing else {}), **request}
        merged.setdefault("PolicyType", "StepScaling")
        _check_policy(merged, key[2])
        resource = f"resource/sagemaker/{key[1]}:policyName/{name}"
        arn = f"arn:aws:autoscaling:{self.region}:{self.account}:scalingPolicy:{uuid.uuid4()}:{resource}"
        policy = ScalingPolicy(name, key, existing.arn if existing else arn, merged, existing.created if existing else self._now())
        # An alarm may invoke the policy at once, so it has to be there.
        self.policies[name, key] = policy
        try:
            self._put_alarms(policy, existing)
        except AwsError:
            if existing is None:
                del self.policies[name, key]
            else:
                self.policies[name, key] = existing
            raise
        return policy

    def _put_alarms(self, policy: ScalingPolicy, old: ScalingPolicy | None) -> None:
        """Make the alarms of a target tracking policy, keep those that it has, delete those that it needs no longer."""
        if self._alarms is None:
            return
        before = old.alarms if old is not None else {}
        if policy.tracks:
            wanted = [HIGH, LOW] if policy.scales_in else [HIGH]
            policy.alarms = {kind: before.get(kind) or alarm_name(policy.key[1], kind) for kind in wanted}
            made: list[str] = []
            try:
                for document in alarm_documents(policy.configuration, policy.key[1], policy.arn, policy.alarms):
                    self._alarms.put(document)
                    made.append(document["AlarmName"])
            except AwsError:
                self._alarms.delete([name for name in made if name not in before.values()])
                raise
        self._alarms.delete([name for name in before.values() if name not in policy.alarms.values()])

    def alarms_of(self, policy: ScalingPolicy) -> list[dict[str, str]]:
        """The alarms that invoke a policy: its own, or those that users gave its ARN to."""
        if self._alarms is None:
            return []
        names = [alarm["AlarmName"] for alarm in self._alarms.describe(action_prefix=policy.arn)]
        return [{"AlarmName": name, "AlarmARN": self._alarms.arn(name)} for name in names]

    def _forget_policy(self, policy: ScalingPolicy) -> None:
        del self.policies[policy.name, policy.key]
        if self._alarms is not None:
            self._alarms.delete(list(policy.alarms.values()))

    def delete_policy(self, request: Mapping[str, Any]) -> None:
        """Delete a policy; raises ``ObjectNotFoundException``."""
        key = self._key(request)
        name = request["PolicyName"]
        if (name, key) not in self.policies:
            raise AwsError(
                "ObjectNotFoundException",
                f"No scaling policy found for service namespace: {key[0]}, resource ID: {key[1]}, scalable dimension: {key[2]}, "
                f"policy name: {name}",
            )
        self._forget_policy(self.policies[name, key])

    def put_scheduled_action(self, request: Mapping[str, Any]) -> ScheduledAction:
        """Create or change a scheduled action of a registered target; raises `AwsError`."""
        key = self._key(request)
        self.target(key)
        name = request["ScheduledActionName"]
        existing = self.scheduled_actions.get((name, key))
        merged = {**(existing.request if existing else {}), **request}
        try:
            schedule = parse_schedule(merged.get("Schedule", ""), merged.get("Timezone"))
        except ScheduleError as error:
            raise ValidationError(str(error)) from None
        merged.update({member: _moment(merged[member]) for member in ("StartTime", "EndTime") if member in merged})
        if merged.get("StartTime", 0.0) > merged.get("EndTime", float("inf")):
            raise ValidationError(f"Scheduled action {name} ends before it starts.")
        bounds = merged.get("ScalableTargetAction", {})
        if not bounds:
            raise ValidationError(f"Scheduled action {name} needs ScalableTargetAction with MinCapacity or MaxCapacity.")
        least = 0 if key[2] == COMPONENT_COPIES else 1
        if bounds.get("MinCapacity", least) < least:
            raise ValidationError(f"Minimum capacity {bounds['MinCapacity']} is not allowed: it is {least} or more.")
        if bounds.get("MinCapacity", least) > bounds.get("MaxCapacity", bounds.get("MinCapacity", least)):
            raise ValidationError("Maximum capacity cannot be less than minimum capacity")
        resource = f"resource/sagemaker/{key[1]}:scheduledActionName/{name}"
        arn = f"arn:aws:autoscaling:{self.region}:{self.account}:scheduledAction:{uuid.uuid4()}:{resource}"
        made = existing.created if existing else self._now()
        action = ScheduledAction(name, key, existing.arn if existing else arn, merged, made, schedule)
        self.scheduled_actions[name, key] = action
        self._tell_schedules(key)
        return action

    def delete_scheduled_action(self, request: Mapping[str, Any]) -> None:
        """Delete a scheduled action; raises ``ObjectNotFoundException``."""
        key = self._key(request)
        name = request["ScheduledActionName"]
        if (name, key) not in self.scheduled_actions:
            raise AwsError("ObjectNotFoundException", f"No scheduled action {name} found for resource ID: {key[1]}.")
        del self.scheduled_actions[name, key]
        self._tell_schedules(key)

    def _tell_schedules(self, key: Key) -> None:
        for listener in self._of_schedules:
            listener(key)

    def bound(self, key: Key, minimum: int | None, maximum: int | None) -> ScalableTarget:
        """Set a target's bounds as a scheduled action does; those that are not given stay. Raises `ValidationError`."""
        target = self.target(key)
        low = target.min_capacity if minimum is None else minimum
        high = target.max_capacity if maximum is None else maximum
        if low > high:
            raise ValidationError("Maximum capacity cannot be less than minimum capacity")
        target.min_capacity, target.max_capacity = low, high
        return target

    def clear(self) -> None:
        """Forget everything."""
        self.scheduled_actions.clear()
        self.targets.clear()
        self.policies.clear()

    def _key(self, request: Mapping[str, Any]) -> Key:
        namespace, dimension = request["ServiceNamespace"], request["ScalableDimension"]
        if namespace != "sagemaker":
            raise ValidationError(f"Service namespace {namespace} is not supported by the local cloud: use sagemaker.")
        if dimension not in _RESOURCE_IDS:
            raise ValidationError(f"Scalable dimension {dimension} is not supported by the local cloud: use {' or '.join(_RESOURCE_IDS)}.")
        key = (namespace, request["ResourceId"], dimension)
        resource_parts(key)
        return key


def resource_parts(key: Key) -> Sequence[str]:
    """The names in a resource id: endpoint and variant, or component; raises `ValidationError`."""
    pattern, form = _RESOURCE_IDS[key[2]]
    match = pattern.fullmatch(key[1])
    if match is None:
        raise ValidationError(f"Unsupported service namespace, resource type or scalable dimension: {key[1]} must be {form}.")
    return match.groups()


def _moment(value: float | str) -> float:
    """Epoch seconds of a timestamp: a number, or text from a template; raises `ValidationError`."""
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else float(value)
    except ValueError:
        raise ValidationError(f"{value} is not a timestamp in ISO 8601.") from None


def _check_policy(request: Mapping[str, Any], dimension: str) -> None:
    kinds = _CONFIGURATIONS
    kind = request["PolicyType"]
    if kind not in kinds:
        raise ValidationError(f"PolicyType {kind} is not supported by the local cloud: use {' or '.join(kinds)}.")
    other = next(member for policy_type, member in kinds.items() if policy_type != kind)
    if kinds[kind] not in request or other in request:
        raise ValidationError(f"PolicyType {kind} requires {kinds[kind]} and no other configuration.")
    configuration = request[kinds[kind]]
    if kind == "StepScaling":
        _check_steps(configuration)
        return
    predefined = configuration.get("PredefinedMetricSpecification")
    if (predefined is None) == ("CustomizedMetricSpecification" not in configuration):
        raise ValidationError("Exactly one of PredefinedMetricSpecification and CustomizedMetricSpecification must be given.")
    metrics = _METRICS[dimension]
    if predefined is not None and predefined["PredefinedMetricType"] not in metrics:
        raise ValidationError(
            f"Predefined metric {predefined['PredefinedMetricType']} does not fit {dimension}: use one of {', '.join(metrics)}."
        )
    custom = configuration.get("CustomizedMetricSpecification")
    if custom is not None and ("Metrics" in custom) == ("MetricName" in custom):
        raise ValidationError("A customized metric is either MetricName, Namespace and Statistic or Metrics.")
    if custom is not None and "MetricName" in custom and not {"Namespace", "Statistic"} <= custom.keys():
        raise ValidationError("A customized metric with MetricName needs Namespace and Statistic.")
    if configuration["TargetValue"] <= 0:
        raise ValidationError(f"TargetValue {configuration['TargetValue']} must be greater than 0.")


def _check_steps(configuration: Mapping[str, Any]) -> None:
    """Step adjustments need a kind, and intervals without gaps or overlaps (user guide: step scaling policies)."""
    steps = configuration.get("StepAdjustments", [])
    if "AdjustmentType" not in configuration or not steps:
        raise ValidationError("StepScaling requires AdjustmentType and StepAdjustments.")
    infinity = float("inf")
    intervals = sorted((step.get("MetricIntervalLowerBound", -infinity), step.get("MetricIntervalUpperBound", infinity)) for step in steps)
    if any(lower >= upper for lower, upper in intervals):
        raise ValidationError("The lower bound of a step must be less than its upper bound.")
    if any(first[1] != second[0] for first, second in itertools.pairwise(intervals)):
        raise ValidationError("The intervals of the steps must neither overlap nor leave gaps.")
