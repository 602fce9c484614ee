"""An answer that comes part by part: what is held for it, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from mme_tenancy.clock import Clock
from mme_tenancy.errors import TenancyError
from mme_tenancy.invocation import ModelStream
from mme_tenancy.retries import RULES, Failure, RuntimeFault, classify

__all__ = ["AnswerStream"]


class AnswerStream:
    """Iterates over the parts of an answer as they come. Read it to its end, close it, or use it in a ``with`` statement.

    Args:
        reply: the answer.
        version: id of the version that answers.
        attempts: how many requests were sent for it.
        clock: time.
        deadline: when the whole answer is wanted, on the monotonic clock.
        ended: told once how it ended, with what failed if anything did, and the bytes that came; it gives back what was held.

    Attributes:
        version: id of the version that answers.
        content_type: its media type.
        attempts: how many requests were sent for it.
    """

    def __init__(
        self,
        reply: ModelStream,
        *,
        version: str,
        attempts: int,
        clock: Clock,
        deadline: float,
        ended: Callable[[Failure | None, TenancyError | None, int], None],
    ) -> None:
        self.version, self.content_type, self.attempts = version, reply.content_type, attempts
        self._reply, self._clock, self._deadline, self._ended = reply, clock, deadline, ended
        self._first: bytes | None = reply.body or None
        self._bytes, self._open = 0, True
        self._lock = threading.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        """The next part.

        Raises:
            ModelFailedError: the model broke the answer off.
            UnavailableError: the endpoint or the connection did.
            InvocationTimeoutError: the whole answer was not there by its deadline.
        """
        if not self._open:
            raise StopIteration
        part = self._next()
        if part is None:
            self._end(None, None)
            raise StopIteration
        self._bytes += len(part)
        return part

    def _next(self) -> bytes | None:
        part, self._first = self._first, None
        if part is not None:
            return part
        left = self._deadline - self._clock.monotonic()
        try:
            if left <= 0:
                raise RuntimeFault("ReadTimeout")
            return self._reply.more(left)
        except RuntimeFault as fault:
            failure = classify(fault)
            error = RULES[failure].failed()
            if self._end(failure, error):
                raise error from fault
            # It was closed meanwhile.
            return None

    def close(self) -> None:
        """End it, whatever is still to come: the connection and the tenant's place among the requests under way are free again."""
        self._end(None, None)

    def _end(self, failure: Failure | None, error: TenancyError | None) -> bool:
        with self._lock:
            was_open, self._open = self._open, False
        if was_open:
            try:
                self._reply.close()
            finally:
                self._ended(failure, error, self._bytes)
        return was_open

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
