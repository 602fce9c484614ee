"""What is wrong between the registry and the bucket, and what would repair it: pure.

For an operator, after a restore or whenever the sweep reports what it cannot explain. One tenant at a time: its records, its usage, the
artifacts and uploads that lie below its name. Every repair is a change on the condition of what was read, so that repairs of a platform
that serves meanwhile meet a conflict instead of doing harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from mme_facts.grammar import ArtifactName
from mme_tenancy.purge import ARTIFACT_STATES
from mme_tenancy.registry import Change, Record
from mme_tenancy.routes import Model, Route
from mme_tenancy.tenants import Tenant, Usage
from mme_tenancy.usage import usage_of
from mme_tenancy.versions import DigestClaim, Reason, State, Version

__all__ = ["Difference", "Kind", "Stock", "differences"]

_LOST = Reason("artifact-lost", "the stored artifact is not there any more", "register the artifact again and upload it")
_ENDED = frozenset({State.REJECTED, State.EXPIRED, State.RETIRED, State.PURGED})
_SERVABLE = frozenset({State.READY, State.ACTIVE})


class Kind(StrEnum):
    """What is wrong."""

    RECORD_WITHOUT_OBJECT = "record-without-object"
    """A version's artifact is not there. Repaired: it ends, as rejected if it never answered its sample, else as purged."""
    OBJECT_WITHOUT_RECORD = "object-without-record"
    """An artifact of a version that has ended, or that the registry does not know. Deleted only when that is asked for."""
    ROUTE_TO_MISSING = "route-to-missing"
    """A route or canary names a version that is not there or has no artifact. Repaired: the newest one that can serve, else no route."""
    ROUTED_NOT_ACTIVE = "routed-not-active"
    """A route names a version that is ready only. Repaired: it is active."""
    ACTIVE_NOT_ROUTED = "active-not-routed"
    """A version is active although no route names it. Repaired: it is ready."""
    COUNTER_BEHIND = "counter-behind"
    """A model's counter would give a number again that was given. Repaired: it counts on from the highest one."""
    MODEL_MISSING = "model-missing"
    """There are versions of a model without a record. Repaired: a model without a route."""
    TENANT_MISSING = "tenant-missing"
    """There are records of a tenant without one of its own. Repaired: a standard tenant with the usual quotas."""
    CLAIM_WRONG = "claim-wrong"
    """A live version does not hold the claim on its digest. Repaired: it does."""
    USAGE_WRONG = "usage-wrong"
    """A tenant's usage is not what its records add up to. Repaired: it is."""


@dataclass(frozen=True, slots=True)
class Stock:
    """Everything of one tenant.

    Attributes:
        tenant: tenant id.
        records: its records.
        usage: its usage as it is stored; ``None`` if there is none.
        artifacts: names of what lies below the models prefix.
    """

    tenant: str
    records: Sequence[Record]
    usage: Usage | None
    artifacts: frozenset[ArtifactName]

    @property
    def models(self) -> dict[str, Model]:
        """Its models by id."""
        return {record.model: record for record in self.records if isinstance(record, Model)}

    @property
    def versions(self) -> dict[tuple[str, int], Version]:
        """Its versions by model and number."""
        return {(record.model, record.number): record for record in self.records if isinstance(record, Version)}


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is wrong.

    Attributes:
        kind: what.
        tenant: whose.
        subject: model, version or artifact, in words.
        detail: what was found and what the repair is.
        changes: what repairs it, together with the others of the same model.
        usage: what repairs the usage.
        artifact: what may be deleted.
    """

    kind: Kind
    tenant: str
    subject: str
    detail: str
    changes: tuple[Change, ...] = ()
    usage: Usage | None = None
    artifact: ArtifactName | None = None

    def document(self) -> dict[str, object]:
        """What the command prints."""
        return {"kind": self.kind.value, "tenant": self.tenant, "subject": self.subject, "detail": self.detail}


def differences(stock: Stock, now: str) -> list[Difference]:
    """What is wrong with a tenant; empty if nothing is.

    Args:
        stock: everything of it.
        now: timestamp of the repairs.
    """
    found: list[Difference] = []
    if stock.records and not any(isinstance(record, Tenant) for record in stock.records):
        change = Change(None, Tenant(stock.tenant, now, now))
        found.append(Difference(Kind.TENANT_MISSING, stock.tenant, stock.tenant, "its record is made anew, on defaults", (change,)))
    models = sorted({name.model for name in stock.artifacts} | {model for model, _ in stock.versions} | set(stock.models))
    for model in models:
        found += _of_model(stock, model, now)
    found += _claims(stock)
    expected = usage_of(stock.tenant, stock.records)
    if (stock.usage or Usage(stock.tenant)) != expected:
        was = "nothing" if stock.usage is None else f"{stock.usage.models} models and {stock.usage.stored_bytes} bytes"
        detail = f"{was} counted, {expected.models} models and {expected.stored_bytes} bytes there"
        found.append(Difference(Kind.USAGE_WRONG, stock.tenant, stock.tenant, detail, usage=expected))
    return found


class _Repair:
    """The records of one model as they would be after the repairs so far: one change for each record, whatever is wrong with it."""

    def __init__(self, stock: Stock, model: str) -> None:
        self.before: dict[int, Version] = {number: version for (of, number), version in stock.versions.items() if of == model}
        self.after: dict[int, Version] = dict(self.before)
        self.model_before = stock.models.get(model)
        self.model_after = self.model_before

    def changes(self) -> tuple[Change, ...]:
        """What has to be written, all of it together."""
        changed: list[Change] = []
        if self.model_after is not None and self.model_after is not self.model_before:
            rev = 1 if self.model_before is None else self.model_before.rev + 1
            changed.append(Change(self.model_before, replace(self.model_after, rev=rev)))
        # Those that the route is about come first: with the model they are in one transaction, however many there are.
        order = sorted(self.after, key=lambda number: State.ACTIVE not in {self.before[number].state, self.after[number].state})
        for number in order:
            before, after = self.before[number], self.after[number]
            if after is not before:
                changed.append(Change(before, replace(after, rev=before.rev + 1)))
        return tuple(changed)


def _of_model(stock: Stock, model: str, now: str) -> list[Difference]:
    repair = _Repair(stock, model)
    found = [
        *_lost_artifacts(stock, model, repair, now),
        *_counter(stock, model, repair, now),
        *_route(stock, model, repair, now),
        *_unrouted(stock, model, repair, now),
    ]
    changes = repair.changes()
    # All repairs of a model are one write, which the first difference carries: half of them would be another difference.
    carried = [replace(each, changes=changes if number == 0 else ()) for number, each in enumerate(found)]
    return [*carried, *_orphans(stock, model)]


def _lost_artifacts(stock: Stock, model: str, repair: _Repair, now: str) -> Iterator[Difference]:
    for number, version in repair.before.items():
        if version.state not in ARTIFACT_STATES or version.name in stock.artifacts:
            continue
        states = (State.REJECTED,) if version.state in {State.STORED, State.WARMING} else (State.RETIRED, State.PURGED)
        after = version
        for state in states:
            after = after if after.state is state else after.move(state, now)
        repair.after[number] = replace(after, reasons=(*version.reasons, _LOST))
        detail = f"is {version.state.value}, but its artifact is not there: it becomes {after.state.value}"
        yield Difference(Kind.RECORD_WITHOUT_OBJECT, stock.tenant, f"{model}/{version.id}", detail)


def _counter(stock: Stock, model: str, repair: _Repair, now: str) -> Iterator[Difference]:
    given = [*repair.before, *(name.version.number for name in stock.artifacts if name.model == model)]
    highest = max(given, default=0)
    if repair.model_after is None:
        if repair.before:
            repair.model_after = Model(stock.tenant, model, highest, now, now)
            yield Difference(Kind.MODEL_MISSING, stock.tenant, model, "its record is made anew, without a route")
    elif repair.model_after.last_version < highest:
        detail = f"counts up to {repair.model_after.last_version}, but number {highest} was given: it counts on from there"
        repair.model_after = replace(repair.model_after, last_version=highest, updated_at=now)
        yield Difference(Kind.COUNTER_BEHIND, stock.tenant, model, detail)


def _route(stock: Stock, model: str, repair: _Repair, now: str) -> Iterator[Difference]:
    record = repair.model_after
    route = None if record is None else record.route
    if record is None or route is None:
        return
    if route.canary is not None and not _can_serve(repair, route.canary.version):
        yield Difference(Kind.ROUTE_TO_MISSING, stock.tenant, model, f"its canary {route.canary.version} cannot serve: it ends")
        route = replace(route, canary=None)
    after: Route | None = route
    if not _can_serve(repair, route.version):
        after = _instead(repair, route)
        told = "no version can: the route is taken away" if after is None else f"{after.version} gets the requests"
        yield Difference(Kind.ROUTE_TO_MISSING, stock.tenant, model, f"its route names {route.version}, which cannot serve; {told}")
    if after is not record.route:
        numbered = None if after is None else replace(after, rev=route.rev + 1)
        repair.model_after = replace(record, route=numbered, updated_at=now)
    for each in () if after is None else _versions_of(after):
        number, version = next((number, version) for number, version in repair.after.items() if str(version.id) == each)
        if version.state is State.READY:
            repair.after[number] = version.move(State.ACTIVE, now)
            if each in _versions_of(route):
                yield Difference(Kind.ROUTED_NOT_ACTIVE, stock.tenant, f"{model}/{each}", "is routed, but ready only: it becomes active")


def _unrouted(stock: Stock, model: str, repair: _Repair, now: str) -> Iterator[Difference]:
    route = None if repair.model_after is None else repair.model_after.route
    named = set() if route is None else set(_versions_of(route))
    for number, version in repair.after.items():
        if version.state is State.ACTIVE and str(version.id) not in named:
            repair.after[number] = version.move(State.READY, now)
            detail = "is active, but the route does not name it: it becomes ready"
            yield Difference(Kind.ACTIVE_NOT_ROUTED, stock.tenant, f"{model}/{version.id}", detail)


def _orphans(stock: Stock, model: str) -> Iterator[Difference]:
    for name in sorted(stock.artifacts, key=str):
        if name.model != model:
            continue
        version = stock.versions.get((model, name.version.number))
        if version is not None and version.name == name:
            if version.state in ARTIFACT_STATES | {State.INSPECTING}:
                continue
            why = f"its version is {version.state.value}"
        else:
            known = stock.models.get(model)
            given = known is not None and known.last_version >= name.version.number
            why = "no record names it" if given else "the registry never gave its number: the record was lost"
        yield Difference(Kind.OBJECT_WITHOUT_RECORD, stock.tenant, f"{model}/{name.version}", why, artifact=name)


def _claims(stock: Stock) -> Iterator[Difference]:
    claims = {(claim.model, claim.sha256): claim for claim in stock.records if isinstance(claim, DigestClaim)}
    newest: dict[tuple[str, str], Version] = {}
    for (model, _), version in sorted(stock.versions.items()):
        if version.state not in _ENDED:
            newest[model, version.sha256] = version
    for (model, sha256), version in newest.items():
        claim = claims.get((model, sha256))
        if claim is not None and claim.number == version.number:
            continue
        after = DigestClaim(stock.tenant, model, sha256, version.number, rev=1 if claim is None else claim.rev + 1)
        holder = "nobody holds" if claim is None else f"v{claim.number} holds"
        detail = f"{holder} the claim on its artifact: it does"
        yield Difference(Kind.CLAIM_WRONG, stock.tenant, f"{model}/{version.id}", detail, (Change(claim, after),))


def _versions_of(route: Route) -> list[str]:
    return [route.version, *([] if route.canary is None else [route.canary.version])]


def _can_serve(repair: _Repair, version: str) -> bool:
    return any(str(each.id) == version for each in _servable(repair))


def _servable(repair: _Repair) -> Iterator[Version]:
    """Versions that may get requests: they answered their sample, have their artifact, and did not go with a deletion of the model."""
    through = 0 if repair.model_after is None else repair.model_after.retired_through
    return (version for version in repair.after.values() if version.state in _SERVABLE and version.number > through)


def _instead(repair: _Repair, route: Route) -> Route | None:
    """The route to the newest version that can serve, in the pool of the one that cannot."""
    pools = {str(version.id): version.pool for version in repair.before.values()}
    fits = (version for version in _servable(repair) if not version.moving and version.pool == pools.get(route.version, version.pool))
    best = max(fits, key=lambda version: version.number, default=None)
    if best is None:
        return None
    canary = route.canary if route.canary is None or route.canary.version != str(best.id) else None
    return replace(route, version=str(best.id), target_model=best.name.target_model, canary=canary)
