"""The functions' settings: read once from the environment, typed, with a clear error for what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from mme_facts import environment
from mme_facts.environment import Callers, Pool, SweepTimes
from mme_facts.grammar import check_prefix
from mme_facts.heat import HeatRules
from mme_facts.telemetry import LineSettings
from mme_facts.warm_up import WarmUpRules

__all__ = [
    "AdmissionSettings",
    "HeatSettings",
    "InvocationSettings",
    "OnboardingSettings",
    "SettingError",
    "SweepSettings",
    "WarmUpFunctionSettings",
]


_Value = TypeVar("_Value")


class SettingError(Exception):
    """An environment variable of a function is missing or not usable."""


def _text(variables: Mapping[str, str], name: str) -> str:
    value = variables.get(name, "")
    if not value:
        raise SettingError(f"environment variable {name} is missing: the constructs set it; deploy the function with them")
    return value


def _count(variables: Mapping[str, str], name: str) -> int:
    value = _text(variables, name)
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise SettingError(f"environment variable {name} is {value!r}: it must be a whole number above 0")
    return int(value)


def _loaded(name: str, value: str, load: Callable[[str], _Value], writer: str) -> _Value:
    """A variable's value, read by the counterpart of what wrote it."""
    try:
        return load(value)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SettingError(f"environment variable {name} is {value!r}: it must be what {writer} writes ({error})") from error


def _prefix(variables: Mapping[str, str]) -> str:
    try:
        return check_prefix(_text(variables, environment.MODELS_PREFIX))
    except ValueError as error:
        raise SettingError(f"environment variable {environment.MODELS_PREFIX}: {error}") from error


def _pools(variables: Mapping[str, str]) -> tuple[Pool, ...]:
    value = _text(variables, environment.POOLS)
    pools = _loaded(environment.POOLS, value, environment.load_pools, "mme_facts.environment.dump_pools")
    if not pools:
        raise SettingError(f"environment variable {environment.POOLS} names no pool")
    return pools


def _line(variables: Mapping[str, str]) -> LineSettings:
    value = variables.get(environment.TELEMETRY, "")
    return _loaded(environment.TELEMETRY, value, LineSettings.load, "mme_facts.telemetry.LineSettings") if value else LineSettings()


def _callers(variables: Mapping[str, str]) -> Callers:
    value = variables.get(environment.CALLERS)
    if value is None:
        return Callers()
    return _loaded(environment.CALLERS, value, environment.load_callers, "mme_facts.environment.dump_callers")


def _usage_plans(variables: Mapping[str, str]) -> bool:
    return bool(variables.get(environment.USAGE_PLANS))


@dataclass(frozen=True, slots=True)
class InvocationSettings:
    """Settings of the invocation function.

    Attributes:
        table_name: the registry's table.
        line: of the log line; as it stands unless the variable is there.
        callers: how callers are known. Default: by IAM.
        tenant_role_arn: the role to assume for each tenant; ``None``: models are invoked with the function's own rights.
        usage_plans: whether a call comes with its tenant's API key.
        bucket_name: where answers that come later lie; empty: none do.
        result_seconds: after how long such an answer will not come any more; 0: none do.
    """

    table_name: str
    line: LineSettings = field(default_factory=LineSettings)
    callers: Callers = field(default_factory=Callers)
    tenant_role_arn: str | None = None
    usage_plans: bool = False
    bucket_name: str = ""
    result_seconds: int = 0

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> InvocationSettings:
        """Read them; raises `SettingError`."""
        role = variables.get(environment.TENANT_ROLE_ARN) or None
        later = bool(variables.get(environment.RESULT_SECONDS))
        return cls(
            _text(variables, environment.TABLE_NAME),
            _line(variables),
            _callers(variables),
            role,
            _usage_plans(variables),
            bucket_name=_text(variables, environment.BUCKET_NAME) if later else "",
            result_seconds=_count(variables, environment.RESULT_SECONDS) if later else 0,
        )


@dataclass(frozen=True, slots=True)
class OnboardingSettings:
    """Settings of the onboarding function.

    Attributes:
        table_name: the registry's table.
        bucket_name: the artifacts' bucket.
        max_artifact_bytes: greatest admissible artifact.
        pools: what serves which framework.
        retired_seconds: how long the artifact of a retired version is kept.
        callers: how callers are known. Default: by IAM.
        usage_plans: whether tenants have API keys, each in its tier's usage plan.
    """

    table_name: str
    bucket_name: str
    max_artifact_bytes: int
    pools: tuple[Pool, ...]
    retired_seconds: int
    callers: Callers = field(default_factory=Callers)
    usage_plans: bool = False

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> OnboardingSettings:
        """Read them; raises `SettingError`."""
        return cls(
            _text(variables, environment.TABLE_NAME),
            _text(variables, environment.BUCKET_NAME),
            _count(variables, environment.MAX_ARTIFACT_BYTES),
            _pools(variables),
            _count(variables, environment.RETIRED_SECONDS),
            _callers(variables),
            _usage_plans(variables),
        )


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """Settings of the admission function.

    Attributes:
        table_name: the registry's table.
        bucket_name: the artifacts' bucket.
        models_prefix: the MME prefix, such as ``models/``.
        pools: where versions are served.
    """

    table_name: str
    bucket_name: str
    models_prefix: str
    pools: tuple[Pool, ...]

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> AdmissionSettings:
        """Read them; raises `SettingError`."""
        prefix = _prefix(variables)
        return cls(_text(variables, environment.TABLE_NAME), _text(variables, environment.BUCKET_NAME), prefix, _pools(variables))


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """Settings of the sweeper.

    Attributes:
        table_name: the registry's table.
        bucket_name: the artifacts' bucket.
        models_prefix: the MME prefix, such as ``models/``.
        times: when it acts.
    """

    table_name: str
    bucket_name: str
    models_prefix: str
    times: SweepTimes

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> SweepSettings:
        """Read them; raises `SettingError`."""
        value = _text(variables, environment.SWEEP_TIMES)
        try:
            times = environment.load_sweep_times(value)
        except (ValueError, TypeError) as error:
            raise SettingError(
                f"environment variable {environment.SWEEP_TIMES} is {value!r}: it must be what environment.dump_sweep_times writes"
            ) from error
        return cls(_text(variables, environment.TABLE_NAME), _text(variables, environment.BUCKET_NAME), _prefix(variables), times)


@dataclass(frozen=True, slots=True)
class HeatSettings:
    """Settings of the heat collector.

    Attributes:
        bucket_name: where heat goes.
        log_groups: those with the lines of requests: the invocation function's, then applications'.
        rules: what is counted where and when.
    """

    bucket_name: str
    log_groups: tuple[str, ...]
    rules: HeatRules

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> HeatSettings:
        """Read them; raises `SettingError`."""
        rules = _loaded(environment.HEAT, _text(variables, environment.HEAT), HeatRules.load, "mme_facts.heat.HeatRules")
        groups = tuple(_text(variables, environment.LOG_GROUPS).split(","))
        return cls(_text(variables, environment.BUCKET_NAME), groups, rules)


@dataclass(frozen=True, slots=True)
class WarmUpFunctionSettings:
    """Settings of the warm-up function.

    Attributes:
        table_name: the registry's table.
        bucket_name: where heat lies.
        rules: what is warmed and how.
    """

    table_name: str
    bucket_name: str
    rules: WarmUpRules

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> WarmUpFunctionSettings:
        """Read them; raises `SettingError`."""
        rules = _loaded(environment.WARM_UP, _text(variables, environment.WARM_UP), WarmUpRules.load, "mme_facts.warm_up.WarmUpRules")
        return cls(_text(variables, environment.TABLE_NAME), _text(variables, environment.BUCKET_NAME), rules)
