"""``Idempotency-Key``: the same key with the same request gets the first answer again.

Our own small store instead of Powertools' idempotency utility: that one takes one persistence layer for a fixed
partition, while ours is per tenant, and its items know neither `schema` nor `rev`. Only answers of success are kept,
because a refused request has changed nothing and may be right the next time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from mme_tenancy.clock import Clock
from mme_tenancy.errors import IdempotencyConflictError, RequestInProgressError
from mme_tenancy.shapes import Text

__all__ = ["KEY", "IdempotencyKey", "IdempotencyRecord", "IdempotencyStore", "StoredAnswer", "idempotent"]

_LEASE_SECONDS = 30
"""How long a request may run (an API call is cut after 29 s); then another may take over a key left by a crash."""
KEY = Text("1 to 255 visible ASCII characters", pattern="[!-~]{1,255}")
"""What the header may hold."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer to give again.

    Attributes:
        status: HTTP status.
        body: JSON text.
    """

    status: int
    body: str


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A key, scoped by tenant and route.

    Attributes:
        tenant: tenant id.
        route: method and path template.
        key: the caller's header, 1 to 255 visible ASCII characters.
    """

    tenant: str
    route: str
    key: str

    def __post_init__(self) -> None:
        KEY.check("Idempotency-Key", self.key)


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """What is stored under a key.

    Attributes:
        fingerprint: digest of the request.
        lease_until: until when the first request may be running, in seconds since 1970.
        expires_at: when the record may be forgotten, in seconds since 1970.
        answer: the first answer; ``None`` while the first request runs.
        rev: revision of the record.
    """

    fingerprint: str
    lease_until: float
    expires_at: int
    answer: StoredAnswer | None = None
    rev: int = 1


class IdempotencyStore(Protocol):
    """Holds the records; every write insists on the revision that was read."""

    def put(self, key: IdempotencyKey, before: IdempotencyRecord | None, after: IdempotencyRecord) -> IdempotencyRecord | None:
        """Store ``after`` if the stored record is ``before``; returns the stored record if it is another one, else ``None``."""
        ...

    def remove(self, key: IdempotencyKey, record: IdempotencyRecord) -> None:
        """Forget ``record`` if it is still the stored one."""
        ...


def idempotent(
    store: IdempotencyStore,
    key: IdempotencyKey,
    request: object,
    answer: Callable[[], StoredAnswer],
    *,
    clock: Clock,
    keep_seconds: int,
) -> tuple[StoredAnswer, bool]:
    """Answer once per key; returns the answer and whether it was given before.

    Args:
        store: where the keys are.
        key: this request's key.
        request: what makes two requests the same: a JSON value.
        answer: does the work; whatever it raises frees the key again.
        clock: time.
        keep_seconds: how long an answer is given again.

    Raises:
        IdempotencyConflictError: the key was used with another request.
        RequestInProgressError: the first request is still running.
    """
    now, wall = clock.time(), clock.wall()
    fingerprint = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    mine = IdempotencyRecord(fingerprint, wall + _LEASE_SECONDS, int(now) + keep_seconds)
    before = store.put(key, None, mine)
    if before is not None:
        if before.expires_at > now:
            if before.fingerprint != fingerprint:
                raise IdempotencyConflictError(
                    "this idempotency key was used with another request: use a new key", field="Idempotency-Key", value=key.key
                )
            if before.answer is not None:
                return before.answer, True
            if before.lease_until > wall:
                raise RequestInProgressError(
                    "the first request with this idempotency key is still running: try again", retry_after_seconds=1
                )
        mine = IdempotencyRecord(fingerprint, mine.lease_until, mine.expires_at, rev=before.rev + 1)
        if store.put(key, before, mine) is not None:
            raise RequestInProgressError("another request with this idempotency key just began: try again", retry_after_seconds=1)
    try:
        given = answer()
    except BaseException:
        store.remove(key, mine)
        raise
    store.put(key, mine, IdempotencyRecord(fingerprint, mine.lease_until, mine.expires_at, given, mine.rev + 1))
    return given, False
