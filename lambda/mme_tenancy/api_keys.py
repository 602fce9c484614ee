"""The tenants' keys at the gateway: one API key for each tenant, in the usage plan of its tier.

A key says who is counted, never who calls. Its id stands on the tenant's record, its value only at API Gateway. Nothing there is
conditional, so each step asks how things are and goes on from there: cut anywhere, the same call repeated ends where the record says.
A key joins a plan only once the record names it. So a process that is killed in between leaves a key that opens nothing, in no plan, and
whose value nobody was told; the next call makes another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from mme_tenancy.clock import Clock, timestamp
from mme_tenancy.conflicts import until_written
from mme_tenancy.errors import TenantNotFoundError, WriteConflictError
from mme_tenancy.registry import Change, Registry
from mme_tenancy.tenants import Tenant, Tier

__all__ = ["ApiKey", "ApiKeys", "IssuedKey", "KeyGoneError", "TenantKeys"]


class KeyGoneError(Exception):
    """The key is not at the gateway any more."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key at the gateway.

    Attributes:
        id: its id.
        value: what callers send. Never stored or logged.
    """

    id: str
    value: str

    def __repr__(self) -> str:
        """Without the value."""
        return f"ApiKey({self.id!r})"


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A tenant's key as its owner sees it.

    Attributes:
        tenant: tenant id.
        tier: whose usage plan counts it.
        id: its id at API Gateway.
        value: what `X-Api-Key` of invocations must be; keep it as a password
    """

    tenant: str
    tier: Tier
    id: str
    value: str

    def __repr__(self) -> str:
        """Without the value."""
        return f"IssuedKey({self.tenant!r}, {self.id!r})"

    def document(self) -> dict[str, object]:
        """What the API shows."""
        return {"tenant": self.tenant, "tier": self.tier.value, "id": self.id, "value": self.value}


class ApiKeys(Protocol):
    """The gateway's keys and the platform's usage plans. Raises `UnavailableError` while the gateway takes no calls."""

    def create(self, tenant: str) -> ApiKey:
        """Make a key for a tenant; it is in no plan, so that it opens nothing."""
        ...

    def value(self, key: str) -> str | None:
        """A key's value; ``None`` if there is no such key."""
        ...

    def join(self, key: str, tier: Tier) -> None:
        """Put a key into a tier's plan and out of the others; raises `KeyGoneError`."""
        ...

    def delete(self, key: str) -> None:
        """Delete a key, if it is there."""
        ...


class TenantKeys:
    """Issues, moves and takes back tenants' keys.

    Args:
        registry: the records.
        keys: the gateway.
        clock: time.
        random: numbers in [0, 1), for jitter.
    """

    def __init__(self, registry: Registry, keys: ApiKeys, clock: Clock, random: Callable[[], float]) -> None:
        self._registry, self._keys, self._clock, self._random = registry, keys, clock, random

    def issue(self, tenant: str) -> tuple[IssuedKey, bool]:
        """The tenant's key, made if there is none; and whether it was made.

        Raises:
            TenantNotFoundError, TenantDeletedError: there is no such tenant, or not any more.
            WriteConflictError: others kept changing the tenant.
            UnavailableError: the gateway takes no calls at the moment: API Gateway takes few a second of an account.
        """
        made: list[ApiKey] = []
        kept: str | None = None
        try:
            issued = until_written(lambda: self._issue(tenant, made), clock=self._clock, random=self._random, what="this tenant's key")
            kept = issued.id
        finally:
            for key in made:
                if key.id != kept and not self._is_named(tenant, key.id):
                    self._keys.delete(key.id)
        return issued, any(key.id == kept for key in made)

    def move(self, record: Tenant) -> None:
        """Put the tenant's key, if it has one, where its tier is; raises `UnavailableError`."""
        if record.api_key is None or record.deleted_at is not None:
            return
        until_written(lambda: self._settle(record.tenant), clock=self._clock, random=self._random, what="this tenant's tier")

    def revoke(self, tenant: str) -> Tenant:
        """Delete the tenant's key; its record after that. The next `issue` makes another one.

        The key goes first: if the record went first, a cut call would leave a key in a plan that nobody knows of.

        Raises:
            TenantNotFoundError: there is no such tenant.
            WriteConflictError: others kept changing the tenant.
            UnavailableError: the gateway takes no calls at the moment; repeat the call.
        """
        return until_written(lambda: self._revoke(tenant), clock=self._clock, random=self._random, what="this tenant")

    def _issue(self, tenant: str, made: list[ApiKey]) -> IssuedKey:
        record = self._record(tenant)
        record.check_open()
        value = None if record.api_key is None else self._value(record.api_key, made)
        if record.api_key is None or value is None:
            key = made[-1] if made else self._keys.create(tenant)
            made[:] = [key]
            # The record first: a key that it does not name is refused, so it must not be counted either.
            self._write(record, key.id)
            value = key.value
        settled = self._settle(tenant)
        if settled.api_key is None:
            raise WriteConflictError("the key was taken back at the same time: try again")
        if settled.api_key != record.api_key and all(settled.api_key != key.id for key in made):
            raise WriteConflictError("another key was made at the same time: try again")
        return IssuedKey(tenant, settled.tier, settled.api_key, value)

    def _value(self, key: str, made: list[ApiKey]) -> str | None:
        return next((each.value for each in made if each.id == key), None) or self._keys.value(key)

    def _settle(self, tenant: str) -> Tenant:
        """Put the key where the record says, as it stands when that is done."""
        record = self._record(tenant)
        while record.api_key is not None and record.deleted_at is None:
            try:
                self._keys.join(record.api_key, record.tier)
            except KeyGoneError:
                after = self._record(tenant)
                if after.api_key == record.api_key:
                    # Deleted behind our back: the next `issue` makes another one.
                    self._write(record, None)
                    return self._record(tenant)
            else:
                after = self._record(tenant)
                if (after.api_key, after.tier) == (record.api_key, record.tier):
                    return after
            record = after
        return record

    def _revoke(self, tenant: str) -> Tenant:
        record = self._record(tenant)
        if record.api_key is None:
            return record
        self._keys.delete(record.api_key)
        return self._write(record, None)

    def _is_named(self, tenant: str, key: str) -> bool:
        record = self._registry.tenant(tenant)
        return record is not None and record.api_key == key and record.deleted_at is None

    def _record(self, tenant: str) -> Tenant:
        record = self._registry.tenant(tenant)
        if record is None:
            raise TenantNotFoundError(tenant)
        return record

    def _write(self, record: Tenant, api_key: str | None) -> Tenant:
        after = replace(record, api_key=api_key, updated_at=timestamp(self._clock.time()), rev=record.rev + 1)
        self._registry.write(Change(record, after))
        return after
