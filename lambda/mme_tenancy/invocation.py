"""The one way to invoke a model: retry rules and a deadline. The API's function, admission and applications share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mme_facts.limits import INVOKE_BODY_BYTES
from mme_tenancy.clock import Clock
from mme_tenancy.errors import InvalidRequestError, PayloadTooLargeError, TenancyError
from mme_tenancy.retries import RULES, Failure, RetryBudget, RuntimeFault, classify
from mme_tenancy.routes import Target

__all__ = ["InvocationRequest", "Invoker", "ModelReply", "ModelStream", "Outcome", "Runtime"]

_HEADER_CHARACTERS = 1024
_LEAST_ATTEMPT_SECONDS = 0.2
"""An attempt is not begun with less time than this before the deadline."""


@dataclass(frozen=True, slots=True)
class InvocationRequest:
    """A request to a model.

    Attributes:
        body: the payload, at most 6,291,456 bytes.
        content_type: its media type; ``None`` leaves it to the container.
        accept: media type of the answer; ``None`` leaves it to the container.
        idempotent: whether the model may work on it twice; if not, it is never sent again once the model may have begun.
        traceparent: the W3C trace context that the container is told of, if there is one.
        warm_up: why the model is called although nobody asked for an answer, such as ``activation``; the container is told of it.
            ``None``: somebody did ask.
    """

    body: bytes
    content_type: str | None = None
    accept: str | None = None
    idempotent: bool = True
    traceparent: str | None = None
    warm_up: str | None = None

    def check(self) -> None:
        """Raise what is wrong with it; botocore checks none of it."""
        if len(self.body) > INVOKE_BODY_BYTES:
            raise PayloadTooLargeError.of_limit("body", len(self.body), INVOKE_BODY_BYTES)
        for field, value in (("Content-Type", self.content_type), ("Accept", self.accept)):
            if value is not None and not (len(value) <= _HEADER_CHARACTERS and value.isascii() and value.isprintable()):
                raise InvalidRequestError.of_field(field, value, f"at most {_HEADER_CHARACTERS} printable ASCII characters")


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A model's answer.

    Attributes:
        body: the payload.
        content_type: its media type.
        memory_bytes: what the model takes in the container, if the container reports it with its answer.
    """

    body: bytes
    content_type: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStream(ModelReply):
    """A model's answer while it comes: ``body`` is its first part, empty if the answer is.

    Attributes:
        more: waits at most so many seconds for the next part; ``None`` at the end. Raises `RuntimeFault`.
        close: gives the connection back, or up if there is more to come.
    """

    more: Callable[[float], bytes | None]
    close: Callable[[], None]


class Runtime(Protocol):
    """SageMaker's runtime: one attempt, no retry."""

    def invoke(self, target: Target, request: InvocationRequest, timeout_seconds: float) -> ModelReply:
        """Send the request once and wait at most about ``timeout_seconds``; raises `RuntimeFault`."""
        ...

    def stream(self, target: Target, request: InvocationRequest, timeout_seconds: float) -> ModelStream:
        """Send the request to a component once and wait at most about ``timeout_seconds`` for the first part; raises `RuntimeFault`."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an invocation ended.

    Attributes:
        reply: the answer, if there is one.
        error: the error for the caller, if there is no answer.
        failure: the last attempt's failure, if there is no answer.
        fault: what SageMaker said to it; for logs only.
        attempts: how many requests were sent.
        cold: whether SageMaker said that the model was not ready.
        waited_seconds: time spent between attempts.
        model_seconds: how long the attempt took that the container answered, well or with an error; ``None`` if none was answered.
            SageMaker's own share is in it: it tells callers no time of the container alone.
    """

    reply: ModelReply | None
    error: TenancyError | None
    failure: Failure | None
    fault: str | None
    attempts: int
    cold: bool
    waited_seconds: float
    model_seconds: float | None = None

    def answer(self) -> ModelReply:
        """The reply; raises the error if there is none."""
        if self.reply is None:
            assert self.error is not None
            raise self.error
        return self.reply


class Invoker:
    """Invokes models by the rules of `mme_tenancy.retries`.

    Args:
        runtime: sends one attempt.
        clock: time; deadlines are on its monotonic clock.
        random: numbers in [0, 1), for jitter.
        budget: what retries are taken from. Default: one of its own.
    """

    def __init__(self, runtime: Runtime, clock: Clock, random: Callable[[], float], budget: RetryBudget | None = None) -> None:
        self._budget = RetryBudget() if budget is None else budget
        self._runtime = runtime
        self._clock = clock
        self._random = random

    def invoke(self, target: Target, request: InvocationRequest, *, deadline: float, stream: bool = False) -> Outcome:
        """Invoke ``target`` until it answers, a rule ends it, or ``deadline`` comes.

        The first attempt is always made, with what time there is.

        Args:
            target: where the request goes.
            request: the request.
            deadline: when the answer is wanted, or its first part, on the monotonic clock.
            stream: whether the answer is wanted part by part: the reply is a `ModelStream`, and nothing is sent again once it began.

        Raises:
            PayloadTooLargeError: the body is above SageMaker's limit.
            InvalidRequestError: a header cannot be sent.
        """
        request.check()
        failures: Counter[Failure] = Counter()
        attempts, waited = 0, 0.0
        send: Callable[[Target, InvocationRequest, float], ModelReply] = self._runtime.stream if stream else self._runtime.invoke
        while True:
            attempts += 1
            began = self._clock.monotonic()
            timeout = max(deadline - began, _LEAST_ATTEMPT_SECONDS)
            try:
                reply = send(target, request, timeout)
            except RuntimeFault as fault:
                failure = classify(fault)
                rule = RULES[failure]
                wait = rule.wait_seconds(failures[failure], self._random())
                failures[failure] += 1
                ended = self._clock.monotonic()
                needed = max(_LEAST_ATTEMPT_SECONDS, ended - began if rule.as_long_again else 0.0)
                late = ended + wait + needed > deadline
                twice = rule.may_have_run and not request.idempotent
                if failures[failure] > rule.retries or late or twice or (rule.budgeted and not self._budget.take()):
                    cold, took = Failure.NOT_READY in failures, ended - began if fault.answered else None
                    return Outcome(None, rule.failed(), failure, str(fault), attempts, cold, waited, took)
                self._clock.sleep(wait)
                waited += wait
            else:
                self._budget.answer()
                took = self._clock.monotonic() - began
                return Outcome(reply, None, None, None, attempts, Failure.NOT_READY in failures, waited, took)
