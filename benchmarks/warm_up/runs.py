"""All runs, on several processors: one job is a fleet at one start, with its changes and their variants."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Any

from benchmarks.warm_up.before import live_until
from benchmarks.warm_up.cells import CHANGES, Cell, Fleet
from benchmarks.warm_up.results import Results
from benchmarks.warm_up.variants import VARIANTS, Scene, run
from benchmarks.warm_up.workload import Workload, workload

__all__ = ["BEFORE", "Job", "jobs", "key_of", "run_all"]

BEFORE = "before"
"""Name of the outcome of the time before the change."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one process does at a time.

    Attributes:
        fleet: before its change.
        start: when it changes.
        wanted: changes and variants that are not measured yet.
    """

    fleet: Fleet
    start: float
    wanted: Sequence[tuple[str, str]]


def key_of(fleet: Fleet, start: float, change: str, variant: str) -> str:
    """Name of an outcome."""
    return f"{fleet.key}|{change}|{variant}|{start:.0f}"


def jobs(cells: Iterable[Cell], starts: Sequence[float], results: Results) -> Iterator[Job]:
    """What is left to do."""
    changes: dict[Fleet, list[str]] = {}
    for cell in cells:
        changes.setdefault(cell.fleet, []).append(cell.change)
    for fleet, names in changes.items():
        for start in starts:
            wanted = [
                (change, name)
                for change in names
                for name, variant in VARIANTS.items()
                if results.get(key_of(fleet, start, change, name), engine=variant.engine) is None
            ]
            if wanted:
                yield Job(fleet, start, wanted)


def run_all(todo: Sequence[Job], processes: int, done: Callable[[Mapping[tuple[str, bool], Any]], object]) -> None:
    """Do all jobs.

    Args:
        todo: the jobs.
        processes: how many at once.
        done: hears of the outcomes of each job, by key and whether they depend on the warm-up's code.
    """
    context = get_context("spawn")  # the parent may have threads, of whatever shows its progress
    stop = context.Event()
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(stop,)) as pool:
        try:
            futures = [pool.submit(_do, job) for job in todo]
            for future in as_completed(futures):
                done(future.result())
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_stop: Event | None = None


def _begin(stop: Event) -> None:
    """Ctrl-C is the parent's business; what a simulation makes is freed by counting references."""
    global _stop  # noqa: PLW0603 - a pool's processes have no other place for it
    _stop = stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()


@cache
def _workload(name: str) -> Workload:
    return workload(name)


def _do(job: Job) -> dict[tuple[str, bool], Any]:
    load = _workload(job.fleet.trace)
    before = live_until(load, job.fleet, job.start)
    summary = {"misses": list(before.misses), "requests": list(before.requests)}
    outcomes: dict[tuple[str, bool], Any] = {}
    for change, name in job.wanted:
        if _stop is not None and _stop.is_set():
            break
        variant = VARIANTS[name]
        outcome = run(Scene(load, job.fleet, CHANGES[change], job.start, before), variant)
        outcomes[key_of(job.fleet, job.start, change, name), variant.engine] = asdict(outcome)
        outcomes[key_of(job.fleet, job.start, change, BEFORE), False] = summary
    gc.collect()
    return outcomes
