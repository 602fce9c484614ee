# ruff: noqa: SLF001 - reaching into the pinned emulator is what this module is for
"""Asynchronous invocations of the emulator's functions wait in a queue, and functions have the concurrency that their template reserves.

Reason: the emulator starts a thread, and with it a process, for every event at once, so that a wave of uploads costs a cold start
each; it counts a throttled attempt as a failed one, so that the third throttle loses an event that Lambda would keep for six hours
(Lambda developer guide: How Lambda handles errors and retries with asynchronous invocation); and its CloudFormation forgets
``ReservedConcurrentExecutions``. The emulator is patched like in `mme_local.patches`, which checks its version.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Attempt", "InvocationQueue", "apply"]

logger = logging.getLogger(__name__)

_RETRIES = 2
_EVENT_AGE_SECONDS = 21600
_RETRY_SECONDS, _RETRY_MOST_SECONDS = 1.0, 30.0
"""AWS waits minutes: a local cloud's user would not."""
_THROTTLED_SECONDS, _THROTTLED_MOST_SECONDS = 0.25, 5.0

Result = Mapping[str, Any]


@dataclass(slots=True)
class Attempt:
    """An event that waits for its function, with what was tried so far.

    Attributes:
        key: the function, over its versions.
        run: invokes it once.
        failed: is told the last result when the event is given up.
        retries: how many failures are tried again.
        age_seconds: how old an event may get.
        reserved: the function's reserved concurrency; ``None``: none.
        born: when it came, on the monotonic clock.
        failures: attempts that the function answered with an error.
        throttles: attempts that found no concurrency, since the last one that did.
    """

    key: str
    run: Callable[[], Result]
    failed: Callable[[Result], None]
    retries: int = _RETRIES
    age_seconds: float = _EVENT_AGE_SECONDS
    reserved: int | None = None
    born: float = field(default_factory=time.monotonic)
    failures: int = 0
    throttles: int = 0


class InvocationQueue:
    """Runs the events of each function, at most so many at once and in the order in which they came; threads end when nothing waits.

    Args:
        at_once: how many events of one function run at once; less where the function reserves less.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Attempt]] = {}
        self._running: dict[str, int] = {}
        self._timers: set[threading.Timer] = set()

    def put(self, attempt: Attempt) -> None:
        """Let an event wait for its turn."""
        most = self._at_once if not attempt.reserved else min(self._at_once, attempt.reserved)
        with self._lock:
            self._waiting.setdefault(attempt.key, deque()).append(attempt)
            if self._running.get(attempt.key, 0) >= most:
                return
            self._running[attempt.key] = self._running.get(attempt.key, 0) + 1
        threading.Thread(target=self._work, args=(attempt.key,), name="asynchronous invocations", daemon=True).start()

    def clear(self) -> None:
        """Forget what waits; what runs goes on."""
        with self._lock:
            self._waiting.clear()
            timers, self._timers = self._timers, set()
        for timer in timers:
            timer.cancel()

    def _work(self, key: str) -> None:
        while True:
            with self._lock:
                waiting = self._waiting.get(key)
                if not waiting:
                    self._waiting.pop(key, None)
                    self._running[key] -= 1
                    if not self._running[key]:
                        del self._running[key]
                    return
                attempt = waiting.popleft()
            try:
                self._try(attempt)
            except Exception:
                logger.exception("an asynchronous invocation of %s failed", key)

    def _try(self, attempt: Attempt) -> None:
        result = attempt.run()
        if not result.get("error"):
            return
        if result.get("throttle"):
            attempt.throttles += 1
            again = attempt.reserved != 0
            wait = min(_THROTTLED_SECONDS * 2 ** (attempt.throttles - 1), _THROTTLED_MOST_SECONDS)
        else:
            attempt.failures, attempt.throttles = attempt.failures + 1, 0
            again = attempt.failures <= attempt.retries
            wait = min(_RETRY_SECONDS * 2 ** (attempt.failures - 1), _RETRY_MOST_SECONDS)
        if again and time.monotonic() - attempt.born + wait <= attempt.age_seconds:
            self._put_later(attempt, wait)
        else:
            attempt.failed(result)

    def _put_later(self, attempt: Attempt, seconds: float) -> None:
        timer = threading.Timer(seconds, lambda: self._put_now(timer, attempt))
        timer.daemon = True
        with self._lock:
            self._timers.add(timer)
        timer.start()

    def _put_now(self, timer: threading.Timer, attempt: Attempt) -> None:
        with self._lock:
            if timer not in self._timers:
                return  # forgotten meanwhile
            self._timers.remove(timer)
        self.put(attempt)


def apply(at_once: int, executed: Callable[[], object]) -> None:
    """Patch the emulator in this process.

    Args:
        at_once: see `InvocationQueue`.
        executed: is told of every execution of a function, whoever asked for it.
    """
    _tell_executions(executed)
    _queue_events(InvocationQueue(at_once))
    _complete_templates()


def _tell_executions(executed: Callable[[], object]) -> None:
    from ministack.services import lambda_svc

    dispatch = lambda_svc._execute_function_dispatch

    def dispatch_and_tell(*arguments: Any) -> Any:
        executed()
        return dispatch(*arguments)

    lambda_svc._execute_function_dispatch = dispatch_and_tell


def _queue_events(queue: InvocationQueue) -> None:
    from ministack.core import lambda_runtime
    from ministack.core.responses import _request_account_id, _request_region
    from ministack.services import lambda_svc

    reset = lambda_runtime.reset

    def invoke_later(function: Any, event: Any) -> None:
        config = function.get("config") or function
        account, region = lambda_runtime._account_region_from_function_config(config)
        settings = function.get("event_invoke_config") or (function.get("event_invoke_configs") or {}).get("$LATEST") or {}
        retries = settings.get("MaximumRetryAttempts")
        on_failure = (settings.get("DestinationConfig") or {}).get("OnFailure", {}).get("Destination")
        target = on_failure or (config.get("DeadLetterConfig") or {}).get("TargetArn")
        # Which caller's it is, and the context of a durable execution, are kept in context variables.
        context = contextvars.copy_context()
        context.run(_request_account_id.set, account)
        context.run(_request_region.set, region)

        def run() -> Result:
            result: Result = context.run(lambda_svc._execute_function, function, event)
            if result.get("log"):
                lambda_svc.logger.info("Lambda %s asynchronous output:\n%s", config.get("FunctionName"), result["log"])
            return result

        def failed(result: Result) -> None:
            if target:
                context.run(lambda_svc._route_async_failure, target, config.get("FunctionName", "unknown"), event, result)

        queue.put(
            Attempt(
                lambda_svc._inflight_key(config),
                run,
                failed,
                _RETRIES if retries is None else int(retries),
                float(settings.get("MaximumEventAgeInSeconds", _EVENT_AGE_SECONDS)),
                lambda_svc._reserved_concurrency(function, config),
            )
        )

    def reset_all() -> None:
        queue.clear()
        reset()

    lambda_svc.invoke_async_with_retry = invoke_later
    lambda_runtime.reset = reset_all


def _complete_templates() -> None:
    """Of a template's function, the emulator forgets the reserved concurrency and the dead-letter queue."""
    from ministack.services import lambda_svc
    from ministack.services.cloudformation import provisioners

    handlers = provisioners._RESOURCE_HANDLERS["AWS::Lambda::Function"]
    create, update = handlers["create"], handlers["update"]

    def complete(name: str, properties: Mapping[str, Any]) -> None:
        function, reserved = lambda_svc._functions[name], properties.get("ReservedConcurrentExecutions")
        function["concurrency"] = None if reserved is None else int(reserved)
        function["config"].pop("DeadLetterConfig", None)
        if properties.get("DeadLetterConfig"):
            function["config"]["DeadLetterConfig"] = dict(properties["DeadLetterConfig"])

    def create_complete(logical_id: str, properties: Any, stack: str) -> Any:
        made = create(logical_id, properties, stack)
        complete(made[0], properties)
        return made

    def update_complete(physical_id: str, before: Any, after: Any, stack: str, logical_id: str | None = None) -> Any:
        made = update(physical_id, before, after, stack, logical_id)
        complete(made[0], after)
        return made

    provisioners._RESOURCE_HANDLERS["AWS::Lambda::Function"] = {**handlers, "create": create_complete, "update": update_complete}
