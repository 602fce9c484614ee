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
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.credentials import Credentials, ReadOnlyCredentials

from mme_facts.grammar import TENANT_TAG
from mme_tenancy.aws.failures import or_unavailable
from mme_tenancy.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_sts import STSClient

__all__ = ["SessionKeys", "TenantSessions", "assume_tenant", "tenant_session_request"]

_logger = logging.getLogger(__name__)
_SESSION_SECONDS = 3600
"""Role chaining limits a session to an hour (IAM User Guide: Roles terms and concepts)."""
_RENEW_SECONDS = 300.0
"""So long before its end a session is renewed; until then an error of STS does not matter."""


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
    client = cache(sts)

    def assume(tenant: str) -> SessionKeys:
        answer = client().assume_role(**tenant_session_request(role_arn, tenant))["Credentials"]
        keys = ReadOnlyCredentials(answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"])
        return SessionKeys(keys, answer["Expiration"].timestamp())

    return or_unavailable(assume)


@dataclass(slots=True)
class _Slot:
    """A tenant's session, and the lock that lets only one thread open it."""

    lock: threading.Lock
    session: SessionKeys | None = None


class TenantSessions:
    """Keeps tenants' sessions and signs with the one of the current tenant; safe for threads.

    Args:
        assume: opens a session; what it raises passes through unless the old session is still good.
        clock: time.
        entries: sessions that are kept; the least recently used goes.
    """

    def __init__(self, assume: Callable[[str], SessionKeys], clock: Clock, *, entries: int = 10_000) -> None:
        self._assume, self._clock, self._limit = assume, clock, entries
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        self._lock = threading.Lock()
        self._tenant: ContextVar[str | None] = ContextVar("tenant", default=None)

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
    def acting_as(self, tenant: str) -> Iterator[None]:
        """Within it, this thread (or task) signs as ``tenant``; raises what opening the session raises."""
        self.keys(tenant)
        token = self._tenant.set(tenant)
        try:
            yield
        finally:
            self._tenant.reset(token)

    def current(self) -> ReadOnlyCredentials:
        """The keys of the current tenant; raises `RuntimeError` outside `acting_as`: nothing is ever signed for nobody."""
        tenant = self._tenant.get()
        if tenant is None:
            raise RuntimeError("a request was to be signed outside of a tenant's context")
        return self.keys(tenant)

    def keys(self, tenant: str) -> ReadOnlyCredentials:
        """The keys of a tenant's session, which is opened if there is none or it ends soon."""
        with self._lock:
            slot = self._slots.get(tenant)
            if slot is None:
                slot = self._slots[tenant] = _Slot(threading.Lock())
                if len(self._slots) > self._limit:
                    self._slots.popitem(last=False)
            self._slots.move_to_end(tenant)
        session = slot.session
        if session is not None and self._clock.wall() < session.expires_at - _RENEW_SECONDS:
            return session.keys
        with slot.lock:
            return self._opened(tenant, slot).keys

    def _opened(self, tenant: str, slot: _Slot) -> SessionKeys:
        now = self._clock.wall()
        if slot.session is None or now >= slot.session.expires_at - _RENEW_SECONDS:
            try:
                slot.session = self._assume(tenant)
            except Exception:
                if slot.session is None or now >= slot.session.expires_at:
                    raise
                _logger.warning("the session of tenant %s could not be renewed; the old one is still good", tenant, exc_info=True)
        return slot.session


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
