"""The lifecycle under faults at every AWS call: a short run here, a long one with ``-m e2e``, and mutants that the short one catches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from mme_tenancy import sweep, versions
from mme_tenancy.purge import Orphan
from mme_tenancy.registry import Change
from mme_tenancy.sweep import Step, Sweeper, next_step
from mme_tenancy.testing import MemoryArtifacts, MemoryRegistry
from mme_tenancy.versions import State
from tests.tenancy.lifecycle_machine import Machine

SHORT = settings(max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(SHORT, max_examples=3000, stateful_step_count=80)
HUNT = settings(
    SHORT, max_examples=600, database=None, derandomize=True, phases=(Phase.generate,), report_multiple_bugs=False, print_blob=False
)


def test_the_lifecycle_holds_under_faults_at_every_call():
    run_state_machine_as_test(Machine, settings=SHORT)


@pytest.mark.e2e
@pytest.mark.timeout(1800)
def test_the_lifecycle_holds_under_many_faults_at_every_call():
    run_state_machine_as_test(Machine, settings=LONG)


class LastWriteWins(MemoryRegistry):
    """Writes without looking at revisions."""

    def write(self, *changes: Change, **given: Any) -> None:
        read = [self.records.get(key) for key in map(_identity, changes)]
        super().write(*(Change(stored, _with_rev(change, stored)) for change, stored in zip(changes, read, strict=True)), **given)


class Torn(MemoryRegistry):
    """Some writes of several records are cut after the first."""

    writes = 0

    def write(self, *changes: Change, **given: Any) -> None:
        self.writes += 1
        if len(changes) > 1 and self.writes % 4 == 0:
            super().write(changes[0], **given)
            raise ConnectionError("cut")
        super().write(*changes, **given)


class MixedTenants(MemoryRegistry):
    """Finds a model by its id alone."""

    def model(self, tenant, model):
        return super().model(tenant, model) or super().model("acme", model)


class Idle(Sweeper):
    """Never calls admission again."""

    def _resume(self, version, upload):
        del version, upload


class Lossy(MemoryArtifacts):
    """A copy that says that it is done before it is."""

    def admit(self, upload, size_bytes):
        super().admit(upload, size_bytes - (size_bytes % 2))


def _identity(change: Change) -> tuple[object, ...]:
    from mme_tenancy.testing import _identity as identity

    return identity(change.after)


def _with_rev(change: Change, stored: Any) -> Any:
    from dataclasses import replace

    return replace(change.after, rev=1 if stored is None else stored.rev + 1)


def _impatient(version, uploaded_at, **given):
    """Expires old uploads without looking whether they came."""
    return Step.EXPIRE if version.state is State.AWAITING_UPLOAD else next_step(version, uploaded_at, **given)


def _hoarding(_area, _name, _version, _model):
    """Takes every object for needed."""
    return Orphan.NONE


def _eager(_area, _name, version, _model):
    """Deletes whatever is not routed."""
    return Orphan.NONE if version is not None and version.state is State.ACTIVE else Orphan.ENDED


MUTANTS = {
    "writes look at no revision": {"registry_class": LastWriteWins},
    "writes are not all or nothing": {"registry_class": Torn},
    "tenants are mixed up": {"registry_class": MixedTenants},
    "stuck versions are not resumed": {"sweeper_class": Idle},
    "copies are cut short": {"artifacts_class": Lossy},
    "uploads expire although they came": {(sweep, "next_step"): _impatient},
    "artifacts that are not routed are deleted": {(sweep, "orphan"): _eager},
    "versions that warm are not listed as under way": {(versions, "_UNDER_WAY"): frozenset({State.AWAITING_UPLOAD, State.INSPECTING})},
    "nothing is ever deleted": {(sweep, "orphan"): _hoarding},
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_variant_is_caught(mutant, monkeypatch):
    parts = {}
    for place, variant in MUTANTS[mutant].items():
        if isinstance(place, str):
            parts[place] = variant
        else:
            monkeypatch.setattr(*place, variant)
    broken = type("Broken", (Machine,), parts)
    with pytest.raises((AssertionError, TypeError, AttributeError, KeyError)):
        run_state_machine_as_test(broken, settings=HUNT)
