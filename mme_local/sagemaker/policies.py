"""Deployment policies: the moves by which an update goes from an old fleet to a new one. Pure.

Sources: Amazon SageMaker AI, "Deployment guardrails for updating models in production"; API reference: DeploymentConfig,
InferenceComponentDeploymentConfig.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mme_local.wire import ValidationError

__all__ = ["ALL_AT_ONCE", "Move", "Policy", "component_policy", "endpoint_policy"]

_LEAST_BATCH = 0.05
_WHOLE = {"INSTANCE_COUNT", "COPY_COUNT"}


@dataclass(frozen=True, slots=True)
class Move:
    """One move of a deployment, with a baking period after it.

    Attributes:
        new: instances that the new fleet has from then on; ``None``: all of them.
        traffic: share of the requests that the new fleet gets from then on, 0 to 1.
        wait_seconds: how long alarms are watched afterwards.
        old: instances that the old fleet keeps after that; ``None``: all of them.
    """

    new: int | None
    traffic: float
    wait_seconds: float = 0.0
    old: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """How an update goes on.

    Attributes:
        moves: in their order; the last one gives all traffic to the whole new fleet.
        termination_wait_seconds: how long the old fleet stays afterwards.
        timeout_seconds: how long all of it may take; ``None``: without a limit.
        alarms: names of the alarms that end the update.
        rollback_batch: instances that a rollback brings back at once; ``None``: all of them.
        new: all instances of the new fleet, of which the moves name a part; ``None`` where they name none.
        old: the same of the old fleet.
    """

    moves: tuple[Move, ...]
    termination_wait_seconds: float = 0.0
    timeout_seconds: float | None = None
    alarms: tuple[str, ...] = ()
    rollback_batch: int | None = None
    new: int | None = None
    old: int | None = None


ALL_AT_ONCE = Policy((Move(None, 1.0),))
"""What SageMaker does without a policy: blue/green, all traffic at once, no baking."""


def endpoint_policy(config: Mapping[str, Any] | None, old: Mapping[str, int], new: Mapping[str, int]) -> Policy:
    """The policy of an UpdateEndpoint.

    Args:
        config: its DeploymentConfig.
        old: instances of the endpoint's variants.
        new: instances of the variants of the new configuration.

    Raises:
        ValidationError: the configuration does not fit itself or the variants.
    """
    if not config:
        return ALL_AT_ONCE
    if "BlueGreenUpdatePolicy" in config and "RollingUpdatePolicy" in config:
        raise ValidationError("DeploymentConfig has a BlueGreenUpdatePolicy and a RollingUpdatePolicy: give one of them.")
    if ("BlueGreenUpdatePolicy" in config or "RollingUpdatePolicy" in config) and set(old) != set(new):
        raise ValidationError(
            f"A deployment policy needs the same variant names in both endpoint configurations: {', '.join(sorted(old))} before, "
            f"{', '.join(sorted(new))} after."
        )
    alarms = _alarms(config)
    if "RollingUpdatePolicy" in config:
        if len(new) > 1:
            raise ValidationError("RollingUpdatePolicy is not supported for an endpoint with several production variants.")
        (before,), (after,) = old.values(), new.values()
        return _rolling(config["RollingUpdatePolicy"], before, after, alarms)
    if "BlueGreenUpdatePolicy" in config:
        return _blue_green(config["BlueGreenUpdatePolicy"], sum(new.values()), alarms)
    return Policy(ALL_AT_ONCE.moves, alarms=alarms)


def component_policy(config: Mapping[str, Any] | None, copies: int) -> Policy:
    """The policy of an UpdateInferenceComponent; raises `ValidationError`. Without one the copies are replaced one by one.

    Args:
        config: its DeploymentConfig.
        copies: the component's copies.
    """
    if not config:
        return _rolling({"MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1}, "WaitIntervalInSeconds": 0}, copies, copies, (), least=0)
    return _rolling(config["RollingUpdatePolicy"], copies, copies, _alarms(config))


def _blue_green(given: Mapping[str, Any], instances: int, alarms: tuple[str, ...]) -> Policy:
    routing = given["TrafficRoutingConfiguration"]
    wait, kind = routing["WaitIntervalInSeconds"], routing["Type"]
    sizes = {name for name in ("CanarySize", "LinearStepSize") if name in routing}
    wanted = {"CANARY": {"CanarySize"}, "LINEAR": {"LinearStepSize"}}.get(kind, set())
    if sizes != wanted:
        raise ValidationError(
            f"TrafficRoutingConfiguration of type {kind} needs {', '.join(wanted) or 'no size'}, and has "
            f"{', '.join(sorted(sizes)) or 'none'}."
        )
    if kind == "CANARY":
        shares = [_share("CanarySize", routing["CanarySize"], instances, 0.0), 1.0]
    elif kind == "LINEAR":
        step = _share("LinearStepSize", routing["LinearStepSize"], instances, 0.1)
        shares = [min(1.0, number * step) for number in range(1, math.ceil(1 / step - 1e-9) + 1)]
    else:
        shares = [1.0]
    policy = Policy(
        tuple(Move(None, share, wait) for share in shares),
        given.get("TerminationWaitInSeconds", 0),
        given.get("MaximumExecutionTimeoutInSeconds"),
        alarms,
    )
    return _in_time(policy)


def _rolling(given: Mapping[str, Any], old: int, new: int, alarms: tuple[str, ...], *, least: float = _LEAST_BATCH) -> Policy:
    if new == 0 or old == 0:
        return Policy(ALL_AT_ONCE.moves, alarms=alarms)
    if least:
        _share("MaximumBatchSize", given["MaximumBatchSize"], new, least)
    batch, wait = _instances(given["MaximumBatchSize"], new), given["WaitIntervalInSeconds"]
    moves, kept = [], old
    for done in range(batch, new + batch, batch):
        there = min(done, new)
        left = old - math.ceil(old * there / new)
        moves.append(Move(there, 1.0 if left == 0 else there / (there + kept), wait, left))
        kept = left
    back = given.get("RollbackMaximumBatchSize")
    timeout = given.get("MaximumExecutionTimeoutInSeconds")
    return _in_time(Policy(tuple(moves), 0.0, timeout, alarms, None if back is None else _instances(back, old), new, old))


def _instances(size: Mapping[str, Any], total: int) -> int:
    return int(size["Value"]) if size["Type"] in _WHOLE else max(1, total * int(size["Value"]) // 100)


def _share(name: str, size: Mapping[str, Any], total: int, least: float) -> float:
    share = size["Value"] / total if size["Type"] in _WHOLE else size["Value"] / 100
    smallest = least == _LEAST_BATCH and size["Type"] in _WHOLE and size["Value"] == 1
    if not least <= share <= 0.5 and not smallest:
        raise ValidationError(
            f"{name} {size['Value']} ({size['Type']}) is {share:.0%} of {total} instances: {least:.0%} to 50% are allowed."
        )
    return float(share)


def _alarms(config: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(alarm["AlarmName"] for alarm in config.get("AutoRollbackConfiguration", {}).get("Alarms", []) if "AlarmName" in alarm)


def _in_time(policy: Policy) -> Policy:
    waits = sum(move.wait_seconds for move in policy.moves) + policy.termination_wait_seconds
    if policy.timeout_seconds is not None and policy.timeout_seconds <= waits:
        raise ValidationError(
            f"MaximumExecutionTimeoutInSeconds {policy.timeout_seconds} must be larger than all waits together, {waits:g} seconds."
        )
    return policy
