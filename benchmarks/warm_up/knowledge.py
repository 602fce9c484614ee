"""What a warm-up knows when it plans: heat in closed windows, as the platform has it, and sizes and times of loads."""

from __future__ import annotations

import numpy as np

from benchmarks.warm_up.before import Before
from benchmarks.warm_up.cells import Change, Fleet
from benchmarks.warm_up.workload import Workload
from mme_tenancy.warm_up.change import ChangeKind, FleetChange
from mme_tenancy.warm_up.plan import Candidate, FleetShape
from mme_tenancy.warm_up.sources import SourceRules, probable_last_use, probable_rate

__all__ = ["candidates", "changed", "clairvoyant_order", "shapes"]

_WINDOW_SECONDS = 300.0
_WINDOW_DELAY_SECONDS = 120.0
"""A window is counted so long after its end, as `HeatSettings` has it by default."""
_HEAT_SECONDS = 6 * 3600.0
_RATE_SECONDS = float(SourceRules().recent_seconds)
_CLAIRVOYANT_SECONDS = 300.0


def changed(change: Change, now: float) -> FleetChange:
    """The change as the platform sees it."""
    kind = ChangeKind.UPDATE if change.update else ChangeKind.SCALE_OUT if change.after > change.before else ChangeKind.LOSS
    after = "config-2" if change.update else "config-1"
    return FleetChange(kind, "fleet", 1, now, change.before, change.after, change.new, "config-1", after)


def shapes(fleet: Fleet, change: Change, before: Before) -> tuple[FleetShape, FleetShape]:
    """The fleet before and after."""
    return (
        FleetShape(change.before, before.memory_bytes, fleet.concurrency),
        FleetShape(change.after, before.memory_bytes, fleet.concurrency),
    )


def candidates(load: Workload, now: float) -> list[Candidate]:
    """All models that the heat of the last hours knows."""
    end = _WINDOW_SECONDS * ((now - _WINDOW_DELAY_SECONDS) // _WINDOW_SECONDS)
    seconds, model = load.between(max(0.0, end - _HEAT_SECONDS), end)
    window = seconds // _WINDOW_SECONDS
    last_window = np.full(len(load.models), -1.0)
    np.maximum.at(last_window, model, window)
    in_last = np.bincount(model[window == last_window[model]], minlength=len(load.models))
    lately = np.bincount(model[seconds >= end - _RATE_SECONDS], minlength=len(load.models))
    ever = np.bincount(model, minlength=len(load.models))
    return [
        Candidate(
            target_model=load.models[number],
            bytes=int(load.bytes[number]),
            load_seconds=float(load.load_seconds[number]),
            rate=probable_rate(int(lately[number]), _RATE_SECONDS, int(ever[number]), min(_HEAT_SECONDS, end)),
            last_used=probable_last_use(_WINDOW_SECONDS * (float(last_window[number]) + 1), _WINDOW_SECONDS, int(in_last[number])),
            service_seconds=float(load.service_seconds[number]),
        )
        for number in np.nonzero(last_window >= 0)[0].tolist()
    ]


def clairvoyant_order(load: Workload, now: float, missing: set[str]) -> list[str]:
    """Of the models that are not where they are looked for, those that will be asked for soon, in the best order that is known.

    By the requests that come while a load lasts and in the ten seconds after it, for each second of load, and then by the next use.
    """
    seconds, model = load.between(now, now + _CLAIRVOYANT_SECONDS)
    first: dict[int, float] = {}
    soon: dict[int, int] = {}
    for at, number in zip((seconds - now).tolist(), model.tolist(), strict=True):
        first.setdefault(number, at)
        if at <= load.load_seconds[number] + 10.0:
            soon[number] = soon.get(number, 0) + 1
    wanted = [number for number in first if load.models[number] in missing]
    wanted.sort(key=lambda number: (-soon.get(number, 0) / float(load.load_seconds[number]), first[number]))
    return [load.models[number] for number in wanted]
