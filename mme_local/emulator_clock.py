# ruff: noqa: SLF001 - reaching into the pinned emulator is what this module is for
"""The emulator's schedules, expiries, waits and log timestamps follow the local cloud's clock, and so do its functions.

Reason: the emulator knows the machine's time only, so an hour of schedules would take an hour while everything around it
runs faster. It is patched like in `mme_local.patches`, which checks the emulator's version. Not scaled: signatures, sessions
and presigned URLs, timeouts and retries of functions, queues.
"""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from mme_facts.scaled_time import CLOCK_VARIABLE
from mme_local.clock import CloudClock

__all__ = ["follow"]

_TICK_SECONDS = 2.0
"""How often schedules are looked at, in scaled seconds; the emulator's 10 s would make `rate(1 minute)` late by a sixth."""
_TICK_BOUNDS = (0.05, 1.0)
"""Least and greatest real seconds of that."""
_in_log: contextvars.ContextVar[bool] = contextvars.ContextVar("writes function logs", default=False)


class _Time:
    """Stands in for the module ``time`` of one module of the emulator: its wall clock is another one."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self.time = wall

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def follow(clock: CloudClock) -> None:
    """Let the emulator in this process follow a clock. Call it once, after `mme_local.patches.apply`."""
    _schedules(clock)
    _expiries(clock)
    _waits(clock)
    _log_timestamps(clock)
    _functions(clock)


def _schedules(clock: CloudClock) -> None:
    from ministack.services import eventbridge, scheduler

    tick = min(max(_TICK_SECONDS / clock.scale, _TICK_BOUNDS[0]), _TICK_BOUNDS[1])
    eventbridge._now_ts = clock.time
    eventbridge._SCHEDULER_TICK_INTERVAL = tick
    scheduler.time = _Time(clock.time)
    scheduler._SCHEDULE_TICK_INTERVAL = tick


def _expiries(clock: CloudClock) -> None:
    """Items with a TTL go when the scaled clock says so."""
    from ministack.services import dynamodb

    scaled = _Time(clock.time)
    scaled.sleep = lambda seconds: time.sleep(seconds / max(clock.scale, 1.0))  # type: ignore[attr-defined]
    dynamodb.time = scaled
    if clock.scale > 1.0:
        # The emulator's own sweeper sleeps its first real minute.
        threading.Thread(target=dynamodb._ttl_reaper, daemon=True, name="scaled ttl").start()


def _waits(clock: CloudClock) -> None:
    """Wait states and retries of state machines."""
    from ministack.services import stepfunctions

    def sleep_until(moment: str) -> None:
        try:
            goal = datetime.fromisoformat(moment)
        except (TypeError, ValueError):
            return
        stepfunctions._scaled_sleep(max(0.0, (goal if goal.tzinfo else goal.replace(tzinfo=UTC)).timestamp() - clock.time()))

    stepfunctions._SFN_WAIT_SCALE = 1.0 / clock.scale
    stepfunctions._sleep_until = sleep_until


def _log_timestamps(clock: CloudClock) -> None:
    """What functions print, and the limits of what PutLogEvents takes; the functions' own timeouts stay real."""
    from ministack.services import cloudwatch_logs, lambda_svc

    emit = lambda_svc._emit_lambda_logs

    def emit_in_scaled_time(*arguments: Any, **options: Any) -> Any:
        token = _in_log.set(True)
        try:
            return emit(*arguments, **options)
        finally:
            _in_log.reset(token)

    cloudwatch_logs.time = _Time(clock.time)
    lambda_svc.time = _Time(lambda: clock.time() if _in_log.get() else time.time())
    lambda_svc._emit_lambda_logs = emit_in_scaled_time


def _functions(clock: CloudClock) -> None:
    """Workers inherit the clock with this process's environment; those of an earlier clock end, once they are idle."""
    from ministack.core import lambda_runtime
    from ministack.services import lambda_svc

    acquire, release = lambda_runtime.acquire_worker, lambda_runtime.release_worker

    def acquire_and_stamp(*arguments: Any, **options: Any) -> Any:
        worker, how = acquire(*arguments, **options)
        if how == "spawn":
            worker.mme_clock = os.environ[CLOCK_VARIABLE]
        return worker, how

    def release_and_retire(worker: Any) -> None:
        release(worker)
        if worker is not None and worker.mme_clock != os.environ[CLOCK_VARIABLE]:
            retire()

    def retire() -> None:
        old = []
        with lambda_runtime._lock:
            for workers in lambda_runtime._workers.values():
                for worker in [worker for worker in workers if not worker.in_use and worker.mme_clock != os.environ[CLOCK_VARIABLE]]:
                    workers.remove(worker)
                    old.append(worker)
        if old:
            threading.Thread(target=lambda_runtime.kill_workers, args=(old,), name="old clock").start()

    def publish() -> None:
        os.environ[CLOCK_VARIABLE] = clock.setting
        retire()

    for module in (lambda_runtime, lambda_svc):
        module.acquire_worker, module.release_worker = acquire_and_stamp, release_and_retire
    publish()
    clock.on_jump(publish)
