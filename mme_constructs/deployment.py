"""How an endpoint moves to a new configuration: all at once, by a canary, in linear steps, or rolling.

Every update builds new instances whose caches are empty, so each policy trades the time of two fleets against the number of tenants that
meet a cold cache at once. Whether deployment guardrails apply to multi-model endpoints is not proven: the current exclusions page does not
list them, the feature matrix of 2023 leaves the cell empty. An excluded endpoint falls back to all at once without a final wait.

Sources: Amazon SageMaker AI, Deployment guardrails, Exclusions; API reference: BlueGreenUpdatePolicy, TrafficRoutingConfig,
RollingUpdatePolicy, AutoRollbackConfig.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sagemaker as sagemaker

from mme_constructs.capacity_size import CapacitySize
from mme_constructs.errors import DeploymentError

__all__ = ["AllAtOnceDeployment", "CanaryDeployment", "Deployment", "LinearDeployment", "RollingDeployment", "render"]

_Config = sagemaker.CfnEndpoint.DeploymentConfigProperty
_Routing = sagemaker.CfnEndpoint.TrafficRoutingConfigProperty
GREATEST_ALARMS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _BlueGreen:
    """A new fleet beside the old one; `AllAtOnceDeployment` tells the attributes."""

    alarms: Sequence[cloudwatch.IAlarm] = ()
    wait_seconds: int = 300
    termination_wait_seconds: int = 0
    timeout_seconds: int | None = None

    def __post_init__(self) -> None:
        _check_common(self.alarms, self.timeout_seconds)
        _check_range("wait_seconds", self.wait_seconds, 0, 3600)
        _check_range("termination_wait_seconds", self.termination_wait_seconds, 0, 3600)
        self._check_total(1)

    def check(self, fleet: tuple[int, int], variants: int) -> None:
        """Refuse what cannot work for a fleet of so many instances (fewest, most) and ``variants``; raises `DeploymentError`."""

    def render(self) -> _Config:
        """The property."""
        return _Config(
            blue_green_update_policy=sagemaker.CfnEndpoint.BlueGreenUpdatePolicyProperty(
                traffic_routing_configuration=self._routing(),
                termination_wait_in_seconds=self.termination_wait_seconds,
                maximum_execution_timeout_in_seconds=self.timeout_seconds,
            )
        )

    def _check_total(self, steps: int) -> None:
        total = steps * self.wait_seconds + self.termination_wait_seconds
        if self.timeout_seconds is not None and total >= self.timeout_seconds:
            raise DeploymentError(
                f"{steps} times wait_seconds and termination_wait_seconds take as long as the whole update may",
                value=f"{total} s of waits",
                allowed=f"less than timeout_seconds, {self.timeout_seconds} s",
                fix="Raise timeout_seconds or wait less",
            )

    def _routing(self) -> _Routing:
        # CloudFormation asks for the type only, the API for the wait as well.
        return _Routing(type="ALL_AT_ONCE", wait_interval_in_seconds=self.wait_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllAtOnceDeployment(_BlueGreen):
    """All requests move to the new fleet in one step: the shortest update, but every tenant meets a cold cache at once.

    Attributes:
        alarms: up to 10 alarms of which any one rolls the update back. Default: none.
        wait_seconds: 0 to 3,600: how long each step is watched before the next. Default 300.
        termination_wait_seconds: 0 to 3,600: how long the old fleet stays afterwards. Default 0.
        timeout_seconds: 600 to 28,800 and more than all waits together: when the update is given up. Default: the service's.

    Raises:
        DeploymentError: a number is out of range or the waits do not fit.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryDeployment(_BlueGreen):
    """A small part of the new fleet serves first, then all of it. Also takes what `AllAtOnceDeployment` takes.

    Attributes:
        size: of the canary, at most 50 %. Default 10 %.
    """

    size: CapacitySize = field(default_factory=lambda: CapacitySize.of_percent(10))

    def __post_init__(self) -> None:
        _BlueGreen.__post_init__(self)
        self.size.check("The canary", 1)

    def check(self, fleet: tuple[int, int], variants: int) -> None:  # noqa: ARG002 - a canary may have several variants
        """Refuse a canary of more than half of the largest ``fleet``; raises `DeploymentError`."""
        self.size.check("The canary", 1, fleet)

    def _routing(self) -> _Routing:
        return _Routing(type="CANARY", wait_interval_in_seconds=self.wait_seconds, canary_size=self.size.render())


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearDeployment(_BlueGreen):
    """The new fleet takes over in equal steps. Also takes what `AllAtOnceDeployment` takes.

    Attributes:
        step: 10 to 50 %. Default 25 %: four waits.
    """

    step: CapacitySize = field(default_factory=lambda: CapacitySize.of_percent(25))

    def __post_init__(self) -> None:
        _BlueGreen.__post_init__(self)
        self.step.check("The linear step", 10)
        if self.step.in_percent:
            self._check_total(self.step.steps(0))

    def check(self, fleet: tuple[int, int], variants: int) -> None:  # noqa: ARG002 - linear steps may have several variants
        """Refuse a step that fits no size of the ``fleet`` and waits that do not fit its largest; raises `DeploymentError`."""
        self.step.check("The linear step", 10, fleet)
        self._check_total(self.step.steps(fleet[1]))

    def _routing(self) -> _Routing:
        return _Routing(type="LINEAR", wait_interval_in_seconds=self.wait_seconds, linear_step_size=self.step.render())


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingDeployment:
    """Batches of instances are replaced one after another: cheapest, and only a batch's models are cold at a time.

    Attributes:
        batch: 5 to 50 % of the instances. Default 25 %.
        rollback_batch: of going back. Default: the whole fleet at once.
        wait_seconds: 0 to 3,600: how long each batch is watched. Default 300.
        timeout_seconds: 600 to 28,800 and more than all waits together. Default: the service's.
        alarms: up to 10 alarms of which any one rolls the update back. Default: none.

    Raises:
        DeploymentError: a number is out of range or the waits do not fit.
    """

    batch: CapacitySize = field(default_factory=lambda: CapacitySize.of_percent(25))
    rollback_batch: CapacitySize | None = None
    wait_seconds: int = 300
    timeout_seconds: int | None = None
    alarms: Sequence[cloudwatch.IAlarm] = ()

    def __post_init__(self) -> None:
        _check_common(self.alarms, self.timeout_seconds)
        _check_range("wait_seconds", self.wait_seconds, 0, 3600)
        self.batch.check("The rolling batch", 5)
        if self.batch.in_percent:
            self._check_total(self.batch.steps(0))

    def check(self, fleet: tuple[int, int], variants: int) -> None:
        """Refuse several ``variants``, a batch that fits no size of the ``fleet``, waits that do not fit; raises `DeploymentError`."""
        if variants > 1:
            raise DeploymentError(
                "Rolling deployment excludes endpoints of several variants",
                value=f"{variants} variants",
                allowed="one variant",
                fix="Use a canary or linear deployment",
            )
        self.batch.check("The rolling batch", 5, fleet)
        self._check_total(self.batch.steps(fleet[1]))

    def render(self) -> _Config:
        """The property."""
        return _Config(
            rolling_update_policy=sagemaker.CfnEndpoint.RollingUpdatePolicyProperty(
                maximum_batch_size=self.batch.render(),
                wait_interval_in_seconds=self.wait_seconds,
                maximum_execution_timeout_in_seconds=self.timeout_seconds,
                rollback_maximum_batch_size=None if self.rollback_batch is None else self.rollback_batch.render(),
            )
        )

    def _check_total(self, steps: int) -> None:
        if self.timeout_seconds is not None and steps * self.wait_seconds >= self.timeout_seconds:
            raise DeploymentError(
                f"{steps} times wait_seconds take as long as the whole update may",
                value=f"{steps * self.wait_seconds} s of waits",
                allowed=f"less than timeout_seconds, {self.timeout_seconds} s",
                fix="Raise timeout_seconds, wait less or use larger batches",
            )


Deployment: TypeAlias = AllAtOnceDeployment | CanaryDeployment | LinearDeployment | RollingDeployment
"""How an endpoint is updated."""


def render(deployment: Deployment | None, alarms: Sequence[cloudwatch.IAlarm]) -> _Config | None:
    """The endpoint's property.

    Args:
        deployment: the policy; None leaves the service's: all at once.
        alarms: alarms besides the policy's own.

    Raises:
        DeploymentError: there are more than 10 alarms, or alarms without a policy.
    """
    if deployment is None:
        if alarms:
            raise DeploymentError(
                "Alarms roll back an update that has a policy",
                value="no deployment",
                allowed="AllAtOnceDeployment, CanaryDeployment, LinearDeployment or RollingDeployment",
                fix="Pass deployment to the endpoint",
            )
        return None
    watching = (*deployment.alarms, *alarms)
    _check_common(watching, None)
    config = deployment.render()
    if not watching:
        return config
    return _Config(
        blue_green_update_policy=config.blue_green_update_policy,
        rolling_update_policy=config.rolling_update_policy,
        auto_rollback_configuration=sagemaker.CfnEndpoint.AutoRollbackConfigProperty(
            alarms=[sagemaker.CfnEndpoint.AlarmProperty(alarm_name=alarm.alarm_name) for alarm in watching]
        ),
    )


def _check_common(alarms: Sequence[cloudwatch.IAlarm], timeout_seconds: int | None) -> None:
    if len(alarms) > GREATEST_ALARMS:
        raise DeploymentError(
            "Too many alarms roll back", value=len(alarms), allowed="up to 10", fix="Leave some out; combine metrics with math in one alarm"
        )
    if timeout_seconds is not None:
        _check_range("timeout_seconds", timeout_seconds, 600, 28_800)


def _check_range(name: str, value: int, smallest: int, greatest: int) -> None:
    if not smallest <= value <= greatest:
        raise DeploymentError(
            f"{name} is out of range", value=value, allowed=f"{smallest:,} to {greatest:,} seconds", fix="Use a number in this range"
        )
