"""Names of the environment variables that constructs set and functions read, and the shape of their values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from mme_facts.limits import RETIRED_DAYS

__all__ = [
    "BUCKET_NAME",
    "CALLERS",
    "HEAT",
    "LOG_GROUPS",
    "MAX_ARTIFACT_BYTES",
    "MODELS_PREFIX",
    "POOLS",
    "RESULT_SECONDS",
    "RETIRED_SECONDS",
    "SWEEP_TIMES",
    "TABLE_NAME",
    "TELEMETRY",
    "TENANT_ROLE_ARN",
    "USAGE_PLANS",
    "WARM_UP",
    "CallerSource",
    "Callers",
    "Pool",
    "SweepTimes",
    "dump_callers",
    "dump_pools",
    "dump_sweep_times",
    "load_callers",
    "load_pools",
    "load_sweep_times",
]

TABLE_NAME = "MME_TABLE_NAME"
BUCKET_NAME = "MME_BUCKET_NAME"
MODELS_PREFIX = "MME_MODELS_PREFIX"
MAX_ARTIFACT_BYTES = "MME_MAX_ARTIFACT_BYTES"
POOLS = "MME_POOLS"
LOG_GROUPS = "MME_LOG_GROUPS"
"""Names with commas between them: no name of a log group has one."""
HEAT = "MME_HEAT"
"""What `mme_facts.heat.HeatRules.dump` wrote."""
RETIRED_SECONDS = "MME_RETIRED_SECONDS"
"""How long the artifact of a retired version is kept."""
TELEMETRY = "MME_TELEMETRY"
"""What `mme_facts.telemetry.LineSettings.dump` wrote."""
CALLERS = "MME_CALLERS"
TENANT_ROLE_ARN = "MME_TENANT_ROLE_ARN"
"""The role that the invocation function assumes for each tenant; unset: it invokes with its own rights."""
SWEEP_TIMES = "MME_SWEEP_TIMES"
RESULT_SECONDS = "MME_RESULT_SECONDS"
"""After how many seconds an answer that was to come later will not come any more; unset: every request is answered at once."""
USAGE_PLANS = "MME_USAGE_PLANS"
"""Set: invocations come with the API key of their tenant."""
WARM_UP = "MME_WARM_UP"
"""What `mme_facts.warm_up.WarmUpRules.dump` wrote."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One shared endpoint as the functions see it.

    Attributes:
        name: the pool's name.
        framework: which versions go to it, such as ``xgboost``.
        endpoint_name: its SageMaker endpoint.
        variant_name: the production variant.
        keeps_loaded: whether models stay loaded after an invocation; if not, nothing is gained by loading one beforehand.
    """

    name: str
    framework: str
    endpoint_name: str
    variant_name: str
    keeps_loaded: bool = True


def dump_pools(pools: Sequence[Pool]) -> str:
    """Render pools as the value of `POOLS`."""
    return json.dumps([asdict(pool) for pool in pools], separators=(",", ":"))


def load_pools(value: str) -> tuple[Pool, ...]:
    """Read the value of `POOLS`."""
    return tuple(Pool(**item) for item in json.loads(value))


class CallerSource(StrEnum):
    """Who verified the API's callers before a function runs."""

    IAM = "iam"
    COGNITO = "cognito"
    LAMBDA = "lambda"


@dataclass(frozen=True, slots=True)
class Callers:
    """How the API's functions know who calls.

    Attributes:
        source: what API Gateway asked.
        tenant: Cognito: the claim that holds the tenant's id; Lambda: the key of the authorizer's context that does.
        admin: Cognito: the group of platform administrators; Lambda: the key of the context that holds the role.
        clients: Cognito: ids of the app clients whose tokens count.
        access_tokens: Cognito: whether access tokens are sent instead of ID tokens.
        header: the header that a token comes in, for the API's own document only.
    """

    source: CallerSource = CallerSource.IAM
    tenant: str = ""
    admin: str = ""
    clients: tuple[str, ...] = ()
    access_tokens: bool = False
    header: str = "Authorization"


def dump_callers(callers: Callers) -> str:
    """Render them as the value of `CALLERS`."""
    return json.dumps(asdict(callers), separators=(",", ":"))


def load_callers(value: str) -> Callers:
    """Read the value of `CALLERS`; raises `ValueError` or `TypeError` where something is missing or unknown."""
    document = json.loads(value)
    callers = Callers(**document | {"source": CallerSource(document["source"]), "clients": tuple(document["clients"])})
    if callers.source is not CallerSource.IAM and not (callers.tenant and callers.admin):
        raise ValueError("neither the tenant nor the administrator would be known")
    if callers.source is CallerSource.COGNITO and not (callers.clients and all(callers.clients)):
        raise ValueError("tokens of any application would count")
    return callers


@dataclass(frozen=True, slots=True)
class SweepTimes:
    """When the sweep acts.

    Attributes:
        stuck_seconds: how long a version under way may stay as it is.
        expire_seconds: how long an upload is awaited.
        orphan_seconds: how old an object must be before it may be deleted because no record points to it.
        retired_seconds: how long the artifacts are kept of versions whose model or tenant was deleted.
        unrecorded_seconds: for how long an artifact whose record was lost is kept.
    """

    stuck_seconds: int = 1200
    expire_seconds: int = 86_400
    orphan_seconds: int = 86_400
    retired_seconds: int = RETIRED_DAYS * 86_400
    unrecorded_seconds: int = 604_800


def dump_sweep_times(times: SweepTimes) -> str:
    """Render times as the value of `SWEEP_TIMES`."""
    return json.dumps(asdict(times), separators=(",", ":"))


def load_sweep_times(value: str) -> SweepTimes:
    """Read the value of `SWEEP_TIMES`."""
    return SweepTimes(**json.loads(value))
