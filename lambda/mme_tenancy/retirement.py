"""The end of versions, models and tenants: the route goes first, the artifact after a time of grace.

Each step is one conditional write, and each begins where the records stand: cut anywhere, repeated or done by two at the same time, the
next one goes on. A call does a bounded amount of work. What is left is marked in the record, and so listed in the index of what is under
way; the same call or the sweeper goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from mme_facts.grammar import VersionId
from mme_tenancy.clock import Clock, timestamp
from mme_tenancy.conflicts import until_written
from mme_tenancy.errors import (
    ModelNotFoundError,
    TenantNotFoundError,
    VersionActiveError,
    VersionNotFoundError,
    WriteConflictError,
)
from mme_tenancy.registry import Change, Registry, model_key, tenant_key
from mme_tenancy.routes import Model
from mme_tenancy.tenants import Tenant
from mme_tenancy.versions import State, Version

__all__ = ["CACHED_COPIES", "ENDED", "Retirer", "delete_model", "retire_version"]

CACHED_COPIES = (
    "copies that instances hold vanish only by eviction or when the fleet is replaced: SageMaker has no call to unload a model; "
    "within two seconds no request reaches them any more"
)
"""What the answer of every retirement says."""
ENDED = frozenset({State.REJECTED, State.EXPIRED, State.RETIRED, State.PURGED})
"""States in which there is nothing to retire."""
_T = TypeVar("_T")
_AT_ONCE = 20
"""So many versions are looked at and written at once: they fit a transaction."""


def retire_version(
    model: Model, version: Version, canary: Version | None, now: str, *, purge_after: str, force: bool
) -> tuple[Change, ...]:
    """Retire one version: the changes that must be written together; none if it has ended already.

    Args:
        model: the model's record, read after the version.
        version: the version.
        canary: the canary of the model's route, if it is another version.
        now: timestamp.
        purge_after: timestamp after which the artifact may be deleted.
        force: whether the active version may go too, which leaves the model without a route.

    Raises:
        VersionActiveError: the version is the active one, and ``force`` is not set.
    """
    if version.state in ENDED:
        return ()
    changes = [Change(version, version.retire(now, purge_after))]
    route, name = model.route, str(version.id)
    if route is None or name not in route.versions:
        return tuple(changes)
    if name != route.version:
        return (Change(model, model.reroute(replace(route, canary=None), now)), *changes)
    if not force:
        raise VersionActiveError(
            f"version {name} is active: activate another version first, or repeat with ?force=true to leave the model without a route",
            field="version",
            value=name,
        )
    if canary is not None and canary.state is State.ACTIVE:
        changes.append(Change(canary, canary.move(State.READY, now)))
    return (Change(model, model.reroute(None, now)), *changes)


def delete_model(
    model: Model, versions: Iterable[Version], now: str, *, purge_after: str, retiring_below: int | None
) -> tuple[Change, ...]:
    """Delete a model: the changes that must be written together. Its route goes, and of its versions those that are given.

    Args:
        model: the model's record.
        versions: versions of it, read after it; among them those that the route names.
        now: timestamp.
        purge_after: timestamp after which the artifacts may be deleted.
        retiring_below: the versions with lower numbers are still to be retired; ``None`` if none is.
    """
    retired = (Change(version, version.retire(now, purge_after)) for version in versions if version.state not in ENDED)
    return (Change(model, model.delete(now, retiring_below=retiring_below)), *retired)


@dataclass
class _Budget:
    """How many records may still be looked at."""

    left: int

    def spend(self, count: int = 1) -> None:
        self.left -= count


class Retirer:
    """Retires versions, models and tenants.

    Args:
        registry: the records.
        clock: time.
        random: numbers in [0, 1), for jitter.
        grace_seconds: how long the artifact of a retired version is kept.
        budget: how many records one call looks at before it leaves the rest to the next.
    """

    def __init__(self, registry: Registry, clock: Clock, random: Callable[[], float], *, grace_seconds: float, budget: int = 100) -> None:
        self._registry = registry
        self._clock = clock
        self._random = random
        self._grace_seconds = grace_seconds
        self._budget = budget

    def retire_version(self, tenant: str, model: str, version: VersionId, *, force: bool = False) -> Version:
        """Retire one version; its record after it. One that has ended already stays as it is.

        A canary's part of the requests goes to the active version. With ``force`` the active version goes too, and with it the route.

        Raises:
            TenantNotFoundError, ModelNotFoundError, VersionNotFoundError: there is no such thing.
            VersionActiveError: it is the active version, and ``force`` is not set.
            WriteConflictError: others kept changing it at the same time.
        """
        return self._until_written(lambda: self._retire_once(tenant, model, version, force=force), "this version")

    def retire_model(self, tenant: str, model: str) -> Model:
        """Delete a model, or go on with it; its record after this call's share of the work. ``retiring_below`` says what is left.

        Raises:
            TenantNotFoundError, ModelNotFoundError: there is no such thing.
            WriteConflictError: others kept changing the model before its route was gone.
        """
        return self._retire_model(tenant, model, _Budget(self._budget))

    def retire_tenant(self, tenant: str) -> Tenant:
        """Delete a tenant and all its models, or go on with it; its record after this call's share of the work.

        From the first write on the tenant is refused; ``retiring_after`` says which models are left.

        Raises:
            TenantNotFoundError: there is no such tenant.
            WriteConflictError: others kept changing the tenant's record.
        """
        return self._go_on_with_tenant(self._until_written(lambda: self._mark_tenant(tenant), "this tenant"))

    def resume_model(self, tenant: str, model: str) -> Model | None:
        """Go on with a deletion that is under way; nothing else ever happens to the model. Its record after it."""
        record = self._registry.model(tenant, model)
        return None if record is None else self._go_on_with_model(record, _Budget(self._budget))

    def resume_tenant(self, tenant: str) -> Tenant | None:
        """Go on with a deletion that is under way; nothing else ever happens to the tenant. Its record after it."""
        record = self._registry.tenant(tenant)
        return None if record is None else self._go_on_with_tenant(record)

    def _retire_once(self, tenant: str, model: str, wanted: VersionId, *, force: bool) -> Version:
        # The version first: if its model does not name it then, although it is active, the version has changed since and the write fails.
        version = self._registry.version(tenant, model, wanted.number)
        owner, record = self._registry.read(tenant_key(tenant), model_key(tenant, model))
        if owner is None:
            raise TenantNotFoundError(tenant)
        if record is None:
            raise ModelNotFoundError(tenant, model)
        if version is None or version.id != wanted:
            raise VersionNotFoundError(model, str(wanted))
        canary = record.route.canary if record.route else None
        other = None if canary is None or canary.version == str(wanted) else self._named(record, canary.version)
        now = self._now()
        changes = retire_version(record, version, other, now, purge_after=self._purge_after(), force=force)
        if changes:
            self._registry.write(*changes)
        (after,) = [change.after for change in changes if change.before is version] or [version]
        assert isinstance(after, Version)
        return after

    def _retire_model(self, tenant: str, model: str, budget: _Budget) -> Model:
        record = self._until_written(lambda: self._delete_model(tenant, model, budget), "this model")
        return self._go_on_with_model(record, budget)

    def _delete_model(self, tenant: str, model: str, budget: _Budget) -> Model:
        """Take the route away and retire the newest versions with it."""
        owner, record = self._registry.read(tenant_key(tenant), model_key(tenant, model))
        if record is None:
            raise TenantNotFoundError(tenant) if owner is None else ModelNotFoundError(tenant, model)
        if record.retired_at is not None:
            return record
        page = self._registry.versions(tenant, model, limit=_AT_ONCE)
        budget.spend(1 + len(page.items))
        versions: Mapping[str, Version] = {str(version.id): version for version in page.items}
        named = {each: versions.get(each) or self._named(record, each) for each in (record.route.versions if record.route else ())}
        below = page.items[-1].number if page.more else None
        changes = delete_model(record, {**versions, **named}.values(), self._now(), purge_after=self._purge_after(), retiring_below=below)
        self._registry.write(*changes)
        after = changes[0].after
        assert isinstance(after, Model)
        return after

    def _go_on_with_model(self, model: Model, budget: _Budget) -> Model:
        """Retire what is left of a deleted model's versions. A conflict ends it: the next call or the sweeper goes on."""
        below = model.retiring_below
        try:
            while below is not None and budget.left > 0:
                page = self._registry.versions(model.tenant, model.model, limit=_AT_ONCE, before=below)
                budget.spend(1 + len(page.items))
                now, purge_after = self._now(), self._purge_after()
                changes = [Change(version, version.retire(now, purge_after)) for version in page.items if version.state not in ENDED]
                if changes:
                    self._registry.write(*changes)
                below = page.items[-1].number if page.more else None
            if below == model.retiring_below:
                return model
            after = model.retired(below, self._now())
            self._registry.write(Change(model, after))
        except WriteConflictError:
            return self._registry.model(model.tenant, model.model) or model
        return after

    def _mark_tenant(self, tenant: str) -> Tenant:
        record = self._registry.tenant(tenant)
        if record is None:
            raise TenantNotFoundError(tenant)
        if record.deleted_at is not None:
            return record
        after = record.delete(self._now())
        self._registry.write(Change(record, after))
        return after

    def _go_on_with_tenant(self, tenant: Tenant) -> Tenant:
        """Retire what is left of a deleted tenant's models, one after the other by id."""
        budget, after = _Budget(self._budget), tenant.retiring_after
        while after is not None and budget.left > 0:
            page = self._registry.models(tenant.tenant, limit=_AT_ONCE, after=after or None)
            done = self._retire_models(page.items, budget)
            left = page.more or done < len(page.items)
            after = (page.items[done - 1].model if done else after) if left else None
            if done < len(page.items):
                break
        if after == tenant.retiring_after:
            return tenant
        progress = tenant.retired(after, self._now())
        try:
            self._registry.write(Change(tenant, progress))
        except WriteConflictError:
            return self._registry.tenant(tenant.tenant) or tenant
        return progress

    def _retire_models(self, models: Iterable[Model], budget: _Budget) -> int:
        """Retire models as long as there is budget; how many of them have no version left to retire."""
        done = 0
        for model in models:
            if budget.left <= 0:
                break
            budget.spend()
            try:
                if self._retire_model(model.tenant, model.model, budget).retiring_below is not None:
                    break
            except WriteConflictError:
                break
            done += 1
        return done

    def _named(self, model: Model, version: str) -> Version:
        record = self._registry.version(model.tenant, model.model, VersionId.parse(version).number)
        if record is None:
            raise VersionNotFoundError(model.model, version)
        return record

    def _until_written(self, work: Callable[[], _T], what: str) -> _T:
        return until_written(work, clock=self._clock, random=self._random, what=what)

    def _now(self) -> str:
        return timestamp(self._clock.time())

    def _purge_after(self) -> str:
        return timestamp(self._clock.time() + self._grace_seconds)
