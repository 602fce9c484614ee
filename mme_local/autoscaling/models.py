"""Scalable targets and scaling policies of SageMaker endpoints.

They are recorded and validated; nothing scales yet.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mme_local.wire import AwsError, ValidationError

__all__ = ["AutoScaling", "ScalableTarget", "ScalingPolicy"]

VARIANT_INSTANCES = "sagemaker:variant:DesiredInstanceCount"
_RESOURCE_ID = re.compile(r"endpoint/([A-Za-z0-9](?:-*[A-Za-z0-9])*)/variant/([A-Za-z0-9](?:-*[A-Za-z0-9])*)")
_METRICS = ("SageMakerVariantInvocationsPerInstance", "SageMakerVariantConcurrentRequestsPerModelHighResolution")
"""Predefined metrics of a variant's instance count (API reference: PredefinedMetricSpecification)."""

Key = tuple[str, str, str]


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


@dataclass(slots=True)
class ScalingPolicy:
    """A scaling policy: ``request`` holds the merged PutScalingPolicy requests."""

    name: str
    key: Key
    arn: str
    request: dict[str, Any]
    created: datetime
    tags: dict[str, str] = field(default_factory=dict)


class AutoScaling:
    """Application Auto Scaling of one account and region, for SageMaker variants.

    Args:
        region: AWS region.
        account: account id.
        variant_exists: whether an endpoint (first argument) has a variant (second).
        now: the clock.
    """

    def __init__(self, *, region: str, account: str, variant_exists: Callable[[str, str], bool], now: Callable[[], datetime]) -> None:
        self.region, self.account, self._variant_exists, self._now = region, account, variant_exists, now
        self.targets: dict[Key, ScalableTarget] = {}
        self.policies: dict[tuple[str, Key], ScalingPolicy] = {}

    def register(self, request: Mapping[str, Any]) -> ScalableTarget:
        """Register or change a scalable target; raises `AwsError`."""
        key = self._key(request)
        existing = self.targets.get(key)
        endpoint, variant = self._endpoint_and_variant(key)
        if not self._variant_exists(endpoint, variant):
            raise ValidationError(f"No scalable target found for service namespace: sagemaker, resource ID: {key[1]}: no such variant.")
        minimum = request.get("MinCapacity", existing.min_capacity if existing else None)
        maximum = request.get("MaxCapacity", existing.max_capacity if existing else None)
        if minimum is None or maximum is None:
            raise ValidationError("MinCapacity and MaxCapacity are required when you register a new scalable target.")
        if minimum < 1:
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
        )
        return self.targets[key]

    def deregister(self, request: Mapping[str, Any]) -> None:
        """Forget a target and its policies; raises `AwsError`."""
        key = self._key(request)
        self.target(key)
        del self.targets[key]
        for policy in [entry for entry in self.policies if entry[1] == key]:
            del self.policies[policy]

    def target(self, key: Key) -> ScalableTarget:
        """A registered target; raises ``ObjectNotFoundException``."""
        if key not in self.targets:
            namespace, resource_id, dimension = key
            raise AwsError(
                "ObjectNotFoundException",
                f"No scalable target found for service namespace: {namespace}, resource ID: {resource_id}, scalable dimension: {dimension}",
            )
        return self.targets[key]

    def put_policy(self, request: Mapping[str, Any]) -> ScalingPolicy:
        """Create or change a policy of a registered target; raises `AwsError`."""
        key = self._key(request)
        self.target(key)
        name = request["PolicyName"]
        existing = self.policies.get((name, key))
        merged = {**(existing.request if existing else {}), **request}
        merged.setdefault("PolicyType", "StepScaling")
        _check_policy(merged)
        resource = f"resource/sagemaker/{key[1]}:policyName/{name}"
        arn = f"arn:aws:autoscaling:{self.region}:{self.account}:scalingPolicy:{uuid.uuid4()}:{resource}"
        policy = ScalingPolicy(name, key, existing.arn if existing else arn, merged, existing.created if existing else self._now())
        self.policies[name, key] = policy
        return policy

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
        del self.policies[name, key]

    def clear(self) -> None:
        """Forget everything."""
        self.targets.clear()
        self.policies.clear()

    def _key(self, request: Mapping[str, Any]) -> Key:
        namespace, dimension = request["ServiceNamespace"], request["ScalableDimension"]
        if namespace != "sagemaker":
            raise ValidationError(f"Service namespace {namespace} is not supported by the local cloud: use sagemaker.")
        if dimension != VARIANT_INSTANCES:
            raise ValidationError(f"Scalable dimension {dimension} is not supported by the local cloud: use {VARIANT_INSTANCES}.")
        key = (namespace, request["ResourceId"], dimension)
        self._endpoint_and_variant(key)
        return key

    @staticmethod
    def _endpoint_and_variant(key: Key) -> tuple[str, str]:
        match = _RESOURCE_ID.fullmatch(key[1])
        if match is None:
            raise ValidationError(
                f"Unsupported service namespace, resource type or scalable dimension: {key[1]} must be endpoint/NAME/variant/NAME."
            )
        return match[1], match[2]


def _check_policy(request: Mapping[str, Any]) -> None:
    kinds = {"TargetTrackingScaling": "TargetTrackingScalingPolicyConfiguration", "StepScaling": "StepScalingPolicyConfiguration"}
    kind = request["PolicyType"]
    if kind not in kinds:
        raise ValidationError(f"PolicyType {kind} is not supported by the local cloud: use {' or '.join(kinds)}.")
    other = next(member for policy_type, member in kinds.items() if policy_type != kind)
    if kinds[kind] not in request or other in request:
        raise ValidationError(f"PolicyType {kind} requires {kinds[kind]} and no other configuration.")
    if kind == "StepScaling":
        return
    configuration = request[kinds[kind]]
    predefined = configuration.get("PredefinedMetricSpecification")
    if (predefined is None) == ("CustomizedMetricSpecification" not in configuration):
        raise ValidationError("Exactly one of PredefinedMetricSpecification and CustomizedMetricSpecification must be given.")
    if predefined is not None and predefined["PredefinedMetricType"] not in _METRICS:
        raise ValidationError(
            f"Predefined metric {predefined['PredefinedMetricType']} does not fit {VARIANT_INSTANCES}: use one of {', '.join(_METRICS)}."
        )
    if configuration["TargetValue"] <= 0:
        raise ValidationError(f"TargetValue {configuration['TargetValue']} must be greater than 0.")
