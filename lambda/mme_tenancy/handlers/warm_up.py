"""SageMaker's events of the shared endpoints, every minute, itself and operators: look at the fleets, and warm those that changed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import boto3

from mme_facts.own_events import WARM_UP_KEY, WarmUpTask, warm_up_event
from mme_facts.warm_up import WarmUpEndpoint
from mme_tenancy.aws.clients import cloudwatch_client, dynamodb_client, lambda_client, runtime_client, s3_client, sagemaker_client
from mme_tenancy.aws.endpoints import SageMakerFleets
from mme_tenancy.aws.heat import S3Heat
from mme_tenancy.aws.prefetch import S3PrefetchStates
from mme_tenancy.aws.sagemaker import SageMakerRuntime
from mme_tenancy.aws.warm_up_readings import CloudWatchReadings
from mme_tenancy.aws.warm_up_sources import DynamoWarmUpRecords
from mme_tenancy.aws.warm_up_store import DynamoWarmUpStore
from mme_tenancy.clock import Clock, SystemClock
from mme_tenancy.handlers.http import Event, LambdaContext, at_cold_start
from mme_tenancy.settings import WarmUpFunctionSettings
from mme_tenancy.telemetry import write_line
from mme_tenancy.warm_up.execute import CALL_TIMEOUTS_SECONDS, Driven, Execution, Job
from mme_tenancy.warm_up.holder import Tools
from mme_tenancy.warm_up.keep_warm import KeepWarm
from mme_tenancy.warm_up.named import warm_models
from mme_tenancy.warm_up.observer import Observer, ObserverRules
from mme_tenancy.warm_up.plan import FleetShape
from mme_tenancy.warm_up.planning import HeatPlanner
from mme_tenancy.warm_up.ports import Fleets
from mme_tenancy.warm_up.prefetching import Prefetching
from mme_tenancy.warm_up.report import Report
from mme_tenancy.warm_up.settings import WarmUpSettings
from mme_tenancy.warm_up.sources import HeatCandidates
from mme_tenancy.warm_up.trigger import Trigger
from mme_tenancy.warm_up.workers import ThreadWorkers

__all__ = ["LambdaContinuations", "WarmUpFunction", "calling", "handler", "keeping_warm", "prefetching"]

_MARGIN_SECONDS = 5.0
"""Left of the function's time when it has to be back."""
_THREADS = 200
"""Calls at once, at most; the plans' own bounds are below it for all but the largest fleets."""
_GIVEN_UP_SECONDS = 600.0
"""A warm-up that is not over so long after it should have been is given up."""
_SOURCE = "aws.sagemaker"

_PREFETCH_SECONDS = 40.0
"""Of each minute, what the calls of prefetch may take."""

Chore = Callable[[WarmUpEndpoint, float], object]
"""What else is done for an endpoint that rests: with it, and when to be back, on the monotonic clock."""
Warm = Callable[[WarmUpEndpoint, Sequence[tuple[str, str]], str, float], Driven]
"""Calls models of an endpoint by tenant and model: what for, and when to be back."""


class LambdaContinuations:
    """`mme_tenancy.warm_up.ports.Continuations` by an asynchronous call of a function.

    Args:
        client: Lambda's client.
        function_name: the function.
    """

    def __init__(self, client: Any, function_name: str) -> None:
        self._client, self._function_name = client, function_name

    def send(self, endpoint: str) -> None:
        """Have an endpoint looked after at once by another invocation, without waiting for it."""
        payload = json.dumps(warm_up_event(endpoint)).encode()
        self._client.invoke(FunctionName=self._function_name, InvocationType="Event", Payload=payload)


@dataclass(frozen=True, slots=True)
class WarmUpFunction:
    """The function, wired.

    Args:
        trigger: does what is due.
        clock: time.
        chores: what is done on the schedule for endpoints whose fleet has not changed.
    """

    trigger: Trigger
    clock: Clock
    chores: tuple[Chore, ...] = field(default=())

    def __call__(self, event: Event, context: LambdaContext) -> dict[str, Any]:
        """Look at the endpoints that the event is about, and do what is due; what it says of them is not believed.

        An endpoint that cannot be dealt with keeps no other from its turn; the first such error is raised at the end.
        """
        stop_at = self.clock.monotonic() + context.get_remaining_time_in_millis() / 1000 - _MARGIN_SECONDS
        endpoints, start = _meant(event)
        visited = self.trigger.visit(endpoints, stop_at=stop_at, start=start)
        errors = list(visited.errors.values())
        if endpoints is None:
            errors += self._do_chores(visited.did, stop_at)
        if errors:
            raise errors[0]
        return {"endpoints": {name: {"did": did, "warm_up": self.trigger.told(name)} for name, did in visited.did.items()}}

    def _do_chores(self, did: Mapping[str, str], stop_at: float) -> list[Exception]:
        errors: list[Exception] = []
        for target in self.trigger.targets:
            if did.get(target.endpoint) != "nothing":
                continue
            for chore in self.chores:
                try:
                    chore(target, stop_at)
                except Exception as error:
                    errors.append(error)
        return errors


def _meant(event: Event) -> tuple[list[str] | None, bool]:
    """The endpoints that an event is about (``None``: all), and whether they are warmed in any case."""
    own = event.get(WARM_UP_KEY)
    if own is not None:
        return [own["endpoint"]], own.get("task") == WarmUpTask.START.value
    if event.get("source") == _SOURCE:
        return [event["detail"]["EndpointName"]], False
    return None, False


def keeping_warm(kept: KeepWarm, warm: Warm) -> Chore:
    """Calls of models that are to stay loaded."""

    def chore(target: WarmUpEndpoint, stop_at: float) -> object:
        return kept.tick(target.pool, target.endpoint, lambda names: warm(target, names, "keep-warm", stop_at))

    return chore


def prefetching(prefetch: Prefetching, fleets: Fleets, warm: Warm, report: Report, clock: Clock, *, seconds: float) -> Chore:
    """Calls of models that are probably used next, ``seconds`` of the machine's clock at most: then the next minute's are due."""

    def chore(target: WarmUpEndpoint, stop_at: float) -> None:
        state = fleets.state(target.endpoint)
        instances = 0 if state is None else state.instances.get(target.variant, 0)
        if not instances:
            return
        until, driven = min(stop_at, clock.monotonic() + seconds), list[Driven]()
        done = prefetch.tick(
            target.pool,
            target.endpoint,
            FleetShape(instances, target.memory_bytes, target.load_slots),
            lambda names: driven.append(warm(target, names, "prefetch", until)),
        )
        report.prefetched(target.endpoint, done, next(iter(driven), None))

    return chore


def calling(candidates: HeatCandidates, execution: Execution, bounds: WarmUpSettings) -> Warm:
    """Calls of models that somebody named, within a warm-up's bounds; of the loads, no more at once than one new instance would get."""

    def warm(target: WarmUpEndpoint, names: Sequence[tuple[str, str]], why: str, stop_at: float) -> Driven:
        job, slots = Job(target.endpoint, target.variant, why), max(1, int(bounds.in_flight_share * target.load_slots))
        return warm_models(names, job, candidates, execution, in_flight=slots, settings=bounds, stop_at=stop_at)

    return warm


@at_cold_start
def _application() -> WarmUpFunction:
    settings = WarmUpFunctionSettings.read(os.environ)
    session, clock, rules = boto3.Session(), SystemClock(), settings.rules
    scale = clock.scaled.scale
    dynamodb, s3, bounds = dynamodb_client(session), s3_client(session), WarmUpSettings.of(rules.settings)
    heat = S3Heat(s3, settings.bucket_name)
    records, report = DynamoWarmUpRecords(dynamodb, settings.table_name), Report(write_line, clock)
    candidates = HeatCandidates(heat, records, clock, scale=scale)
    runtime = SageMakerRuntime(lambda seconds: runtime_client(session, seconds))
    runtime.prepare(CALL_TIMEOUTS_SECONDS[0])
    execution = Execution(
        runtime=runtime,
        records=records,
        readings=CloudWatchReadings(cloudwatch_client(session)),
        workers=ThreadWorkers(_THREADS),
        clock=clock,
        scale=scale,
    )
    store = DynamoWarmUpStore(dynamodb, settings.table_name, clock)
    fleets = SageMakerFleets(sagemaker_client(session))
    tools = Tools(
        settings=bounds,
        store=store,
        observer=Observer(store, fleets, clock, report, ObserverRules(late_seconds=bounds.seconds + _GIVEN_UP_SECONDS)),
        planner=HeatPlanner(candidates, bounds, clock, scale=scale, told=report.unread),
        driver=execution,
        clock=clock,
        report=report,
    )
    continuations = LambdaContinuations(lambda_client(session), os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "warm-up"))
    chores: list[Chore] = []
    warm = calling(candidates, execution, bounds)
    if rules.keep_warm:
        chores.append(keeping_warm(KeepWarm(rules.keep_warm, heat, clock, report.trouble), warm))
    if rules.prefetch:
        prefetch = Prefetching(heat, S3PrefetchStates(s3, settings.bucket_name), candidates, clock)
        chores.append(prefetching(prefetch, fleets, warm, report, clock, seconds=_PREFETCH_SECONDS / scale))
    return WarmUpFunction(Trigger(targets=rules.endpoints, tools=tools, continuations=continuations), clock, tuple(chores))


def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """The Lambda's entry point."""
    return _application()(event, context)
