"""The endpoints that are warmed: found by the functions that do it, whose settings say which, and where everything lies."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mme_cli.errors import CommandError
from mme_cli.sessions import Asked
from mme_facts.scaled_time import ScaledTime
from mme_tenancy.clock import SystemClock

if TYPE_CHECKING:
    from mme_facts.warm_up import WarmUpEndpoint
    from mme_tenancy.aws.warm_up_store import DynamoWarmUpStore
    from mme_tenancy.fleet_state import FleetState
    from mme_tenancy.settings import WarmUpFunctionSettings
    from mme_tenancy.warm_up.planning import HeatPlanner
    from mme_tenancy.warm_up.settings import WarmUpSettings

__all__ = ["Target", "answered", "chosen", "targets"]

_HANDLER = "mme_tenancy.handlers.warm_up.handler"


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint that a function warms.

    Attributes:
        asked: whom to ask.
        function: the function's name.
        settings: the function's.
        endpoint: the endpoint, as they describe it.
        clock: the platform's.
    """

    asked: Asked
    function: str
    settings: WarmUpFunctionSettings
    endpoint: WarmUpEndpoint
    clock: SystemClock

    @property
    def name(self) -> str:
        """The endpoint's name."""
        return self.endpoint.endpoint

    @property
    def bounds(self) -> WarmUpSettings:
        """Of a warm-up, as the function has them."""
        from mme_tenancy.warm_up.settings import WarmUpSettings

        return WarmUpSettings.of(self.settings.rules.settings)

    def store(self) -> DynamoWarmUpStore:
        """What is remembered of the endpoint."""
        from mme_tenancy.aws.warm_up_store import DynamoWarmUpStore

        return DynamoWarmUpStore(self.asked.client("dynamodb"), self.settings.table_name, self.clock)

    def planner(self) -> HeatPlanner:
        """Makes the plans that the function makes, of what it reads."""
        from mme_tenancy.aws.heat import S3Heat
        from mme_tenancy.aws.warm_up_sources import DynamoWarmUpRecords
        from mme_tenancy.warm_up.planning import HeatPlanner
        from mme_tenancy.warm_up.sources import HeatCandidates

        heat = S3Heat(self.asked.client("s3"), self.settings.bucket_name)
        records = DynamoWarmUpRecords(self.asked.client("dynamodb"), self.settings.table_name)
        scale = self.clock.scaled.scale
        return HeatPlanner(HeatCandidates(heat, records, self.clock, scale=scale), self.bounds, self.clock, scale=scale)

    def fleet(self) -> FleetState:
        """The endpoint's fleet now; raises `CommandError` if it serves nobody."""
        from mme_tenancy.aws.endpoints import SageMakerFleets
        from mme_tenancy.fleet_state import SERVING

        state = SageMakerFleets(self.asked.client("sagemaker")).state(self.name)
        if state is None:
            raise CommandError(f"{self.asked.where} has no endpoint {self.name!r} any more: there is nothing to warm")
        if state.status not in SERVING:
            raise CommandError(f"endpoint {self.name!r} is {state.status}: only one that serves can be warmed; wait until it is InService")
        return state


@contextmanager
def answered(asked: Asked) -> Iterator[None]:
    """Errors of AWS, and of what lies there, as one sentence; raises `CommandError`."""
    from botocore.exceptions import BotoCoreError, ClientError

    from mme_tenancy.heat import HeatError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise CommandError(f"{asked.where} refuses or does not answer: {error}") from error
    except HeatError as error:
        raise CommandError(f"heat cannot be read: {error}") from error


def targets(asked: Asked) -> list[Target]:
    """Every endpoint that is warmed there, by name; raises `CommandError`."""
    from mme_tenancy.settings import SettingError, WarmUpFunctionSettings

    clock = _clock(asked)
    found: list[Target] = []
    with answered(asked):
        for page in asked.client("lambda").get_paginator("list_functions").paginate():
            for function in page["Functions"]:
                if function.get("Handler") != _HANDLER:
                    continue
                name: str = function["FunctionName"]
                try:
                    settings = WarmUpFunctionSettings.read(function.get("Environment", {}).get("Variables", {}))
                except SettingError as error:
                    raise CommandError(f"function {name} cannot be understood, it may be of another release: {error}") from error
                found += [Target(asked, name, settings, endpoint, clock) for endpoint in settings.rules.endpoints]
    return sorted(found, key=lambda target: target.name)


def chosen(known: Sequence[Target], name: str | None) -> Target:
    """The endpoint of this name, or of the pool of this name; without one the only one there is.

    Raises:
        CommandError: there is none of that name, or several to choose from.
    """
    if not known:
        raise CommandError("no endpoint is warmed there: deploy the platform with warm-up (MultiTenantInference, or the construct WarmUp)")
    fitting = [target for target in known if name is None or name in {target.name, target.endpoint.pool}]
    if len(fitting) == 1:
        return fitting[0]
    allowed = ", ".join(f"{target.name} (pool {target.endpoint.pool})" for target in known)
    if name is None:
        raise CommandError(f"several endpoints are warmed there: name one of {allowed}")
    what = "several endpoints belong" if fitting else "no endpoint that is warmed belongs"
    raise CommandError(f"{what} to {name!r}: use one of {allowed}")


def _clock(asked: Asked) -> SystemClock:
    if asked.state is None:
        return SystemClock(ScaledTime())
    from mme_cli.platform import local_status

    shown = local_status(asked.state)["clock"]
    return SystemClock(ScaledTime(time.time(), float(shown["now"]), float(shown["scale"])))
