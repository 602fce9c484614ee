"""One boto3 client for all tenants whose credentials are those of the request's tenant.

The function's own role may not invoke anything: each call is signed by a session of the tenants' role that carries the
tenant as its session tag, and the role's policy confines the session to that tenant's models. So a routing mistake ends in
AccessDenied, not at another tenant's model.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.credentials import Credentials, ReadOnlyCredentials

from mme_facts.grammar import TENANT_TAG
from mme_tenancy.aws.failures import or_unavailable
from mme_tenancy.clock import Clock
from mme_tenancy.errors import UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_sts import STSClient

__all__ = ["SessionKeys", "TenantSessions", "assume_tenant", "tenant_session_request"]

_logger = logging.getLogger(__name__)
_SESSION_SECONDS = 3600
"""Role chaining limits a session to an hour (IAM User Guide: Roles terms and concepts)."""
_RENEW_SECONDS = 300.0
"""So long before its end a session is renewed; until then neither an error of STS nor its slowness matters."""
_PAUSE_SECONDS = 10.0
"""A renewal that failed is tried again after so long, while the old session is still good."""


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """A session's keys.

    Attributes:
        keys: what signs.
        expires_at: when they end, in seconds since 1970 by the machine's clock.
    """

    keys: ReadOnlyCredentials
    expires_at: float


def tenant_session_request(role_arn: str, tenant: str) -> dict[str, Any]:
    """What AssumeRole takes to open a session that is tagged with ``tenant``, of the role ``role_arn``."""
    return {
        "RoleArn": role_arn,
        "RoleSessionName": f"tenant-{tenant}"[:64],
        "DurationSeconds": _SESSION_SECONDS,
        "Tags": [{"Key": TENANT_TAG, "Value": tenant}],
    }


def assume_tenant(sts: Callable[[], STSClient], role_arn: str) -> Callable[[str], SessionKeys]:
    """Opens sessions of the tenants' role; raises `UnavailableError` when STS cannot.

    Args:
        sts: makes the STS client of the function's own role; called once, before the first session.
        role_arn: the tenants' role.
    """
    made: list[STSClient] = []
    # A boto3 session makes one client at a time.
    making = threading.Lock()

    def client() -> STSClient:
        with making:
            if not made:
                made.append(sts())
        return made[0]

    def assume(tenant: str) -> SessionKeys:
        answer = client().assume_role(**tenant_session_request(role_arn, tenant))["Credentials"]
        keys = ReadOnlyCredentials(answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"])
        return SessionKeys(keys, answer["Expiration"].timestamp())

    return or_unavailable(assume)


@dataclass(slots=True)
class _Slot:
    """A tenant's session; the one that is being opened, if one is; and when a renewal may be tried again, by the machine's clock."""

    session: SessionKeys | None = None
    opening: Future[SessionKeys] | None = None
    renew_at: float = 0.0


class TenantSessions:
    """Keeps tenants' sessions and signs with the one of the current tenant; safe for threads.

    Each session is opened on a thread of its own, once for all who wait for it: nobody waits longer than until the own deadline, and
    nobody at all while the old session is good.

    Args:
        assume: opens a session; what it raises passes through unless the old session is still good.
        clock: time.
        entries: sessions that are kept; the least recently used goes.
    """

    def __init__(self, assume: Callable[[str], SessionKeys], clock: Clock, *, entries: int = 10_000) -> None:
        self._assume, self._clock, self._limit = assume, clock, entries
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        self._lock = threading.Lock()
        self._current: ContextVar[ReadOnlyCredentials | None] = ContextVar("tenant_keys", default=None)

    def boto3_session(self, like: boto3.Session) -> boto3.Session:
        """A session whose clients sign as the tenant of `acting_as`, and refuse to sign outside of it.

        Args:
            like: a session whose region it has; what that session has read of botocore's data is not read again.
        """
        core = botocore.session.get_session()
        core.register_component("data_loader", like._session.get_component("data_loader"))  # noqa: SLF001 - boto3 does not show its core
        core.register_component("credential_provider", _Provider(_Following(self.current)))
        return boto3.Session(botocore_session=core, region_name=like.region_name)

    @contextmanager
    def acting_as(self, tenant: str, *, deadline: float) -> Iterator[None]:
        """Within it, this thread (or task) signs as ``tenant``; raises what `keys` raises."""
        token = self._current.set(self.keys(tenant, deadline=deadline))
        try:
            yield
        finally:
            self._current.reset(token)

    def current(self) -> ReadOnlyCredentials:
        """The keys of the current tenant; raises `RuntimeError` outside `acting_as`: nothing is ever signed for nobody."""
        keys = self._current.get()
        if keys is None:
            raise RuntimeError("a request was to be signed outside of a tenant's context")
        return keys

    def keys(self, tenant: str, *, deadline: float) -> ReadOnlyCredentials:
        """The keys of a tenant's session, which is opened if there is none, and renewed behind the caller's back if it ends soon.

        Args:
            tenant: its id.
            deadline: until when a first session is waited for, on the monotonic clock.

        Raises:
            UnavailableError: the session is not there by then.
        """
        now = self._clock.wall()
        with self._lock:
            slot = self._slots.get(tenant)
            if slot is None:
                slot = self._slots[tenant] = _Slot()
                if len(self._slots) > self._limit:
                    self._slots.popitem(last=False)
            self._slots.move_to_end(tenant)
            session = slot.session
            if session is not None and now < session.expires_at - _RENEW_SECONDS:
                return session.keys
            old = session if session is not None and now < session.expires_at else None
            if old is not None and (slot.opening is not None or now < slot.renew_at):
                return old.keys
            opening = slot.opening
            begin = opening is None
            if opening is None:
                opening = slot.opening = Future()
        if begin:
            self._begin(tenant, slot, opening)
        return self._waited(opening, deadline).keys if old is None else old.keys

    def _waited(self, opening: Future[SessionKeys], deadline: float) -> SessionKeys:
        try:
            return opening.result(max(deadline - self._clock.monotonic(), 0.0))
        except TimeoutError as error:
            raise UnavailableError("the tenant's session was not there in time: try again", retry_after_seconds=2) from error

    def _begin(self, tenant: str, slot: _Slot, opening: Future[SessionKeys]) -> None:
        """Open a session on a thread of its own: they are rare, and one that STS keeps waiting must not hold up others, nor the process."""
        try:
            threading.Thread(target=self._open, args=(tenant, slot, opening), name="mme-session", daemon=True).start()
        except RuntimeError as error:
            self._failed(tenant, slot, opening, error)

    def _open(self, tenant: str, slot: _Slot, opening: Future[SessionKeys]) -> None:
        try:
            session = self._assume(tenant)
        except Exception as error:
            self._failed(tenant, slot, opening, error)
            return
        with self._lock:
            slot.session, slot.opening = session, None
        opening.set_result(session)

    def _failed(self, tenant: str, slot: _Slot, opening: Future[SessionKeys], error: Exception) -> None:
        now = self._clock.wall()
        with self._lock:
            session, slot.opening, slot.renew_at = slot.session, None, now + _PAUSE_SECONDS
        if session is not None and now < session.expires_at:
            _logger.warning("the session of tenant %s could not be renewed; the old one is still good", tenant, exc_info=error)
        opening.set_exception(error)


class _Following(Credentials):
    """botocore's credentials that are looked up anew for each signature."""

    def __init__(self, current: Callable[[], ReadOnlyCredentials]) -> None:
        super().__init__(access_key="", secret_key="", method="tenant-sessions")
        self._current = current

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """The keys of the current tenant."""
        return self._current()


class _Provider:
    """botocore's ``credential_provider`` component with one answer."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def load_credentials(self) -> Any:
        """The credentials."""
        return self._credentials
