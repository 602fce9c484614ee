"""Measure the table, resume what was begun, judge it, and write it down."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.figure import Figure
from benchmarks.warm_up.cells import ROUTERS, STARTS, Cell, cells, starts
from benchmarks.warm_up.judge import CellResult, Measured, bad_variants, judge
from benchmarks.warm_up.plot import plot
from benchmarks.warm_up.report import markdown
from benchmarks.warm_up.results import Results
from benchmarks.warm_up.runs import BEFORE, jobs, key_of, run_all
from benchmarks.warm_up.variants import BAD, VARIANTS
from mme_cli.console import stderr

__all__ = ["BUILD", "Report", "measure", "measure_table", "write_docs"]

BUILD = Path("build")
_PLOTTED_TRACE, _PLOTTED_CONCURRENCY = "azure", 8
_BOUND_REDUCTION, _BOUND_HARM, _BOUND_TRAFFIC = 0.8, 0.1, 1.0


def measure(tell: Callable[[str], object]) -> Iterator[Figure]:
    """The figures of the whole table."""
    report = measure_table(BUILD)
    tell(f"warm-up: {len(report.results)} cells in {report.seconds:.0f} s")
    if report.good_bad_variants:
        raise RuntimeError(f"the bad variant {report.good_bad_variants[0]!r} misses no bound: the bounds do not tell good from bad")
    yield from report.figures()


class Report:
    """What was measured.

    Args:
        measured: of every cell.
        seconds: that this took, without what was measured earlier.
        starts: of each cell.
    """

    def __init__(self, measured: Sequence[Measured], seconds: float, starts: int) -> None:
        self.measured, self.seconds, self.starts = measured, seconds, starts
        self.results: Sequence[CellResult] = [judge(one) for one in measured]
        self.bad: Mapping[str, Mapping[str, int]] = bad_variants(measured)

    @property
    def good_bad_variants(self) -> list[str]:
        """Bad variants that miss no bound in no cell: something is wrong with the bounds."""
        return [name for name in BAD if not self.bad[name]]

    def figures(self) -> Iterator[Figure]:
        """For ``bench.json``."""
        judged = [one for one in self.results if not one.overloaded]
        reductions = [one.later["warm-up"] for one in judged if "after_first_minute" in one.judged]
        conditions: dict[str, Any] = {
            "cells": len(self.results),
            "overloaded_cells": len(self.results) - len(judged),
            "starts": self.starts,
            "routers": list(ROUTERS),
            "missed": {name: sum(name in one.missed for one in judged) for name in sorted({name for one in judged for name in one.missed})},
            "bad_variants_missed": self.bad,
        }
        baseline = "none: no warm-up, and a fleet whose caches a perfect copy kept"
        yield Figure(
            "warmup_cold_reduction_min",
            min(reductions, default=math.nan),
            "ratio",
            _BOUND_REDUCTION,
            f"{baseline}; minutes 1 to 5",
            {**conditions, "judged_cells": len(reductions)},
            at_least=True,
        )
        harms = [max(one.harm) for one in judged]
        yield Figure("warmup_later_harm_max_points", max(harms, default=math.nan), "points", _BOUND_HARM, "no warm-up", conditions)
        traffic = max((one.traffic for one in judged), default=math.nan)
        yield Figure("warmup_traffic_share_max", traffic, "ratio", _BOUND_TRAFFIC, "25 % of users' requests, or 20/s", conditions)


def measure_table(
    folder: Path, *, quick: bool = False, count: int = STARTS, fresh: bool = False, processes: int | None = None, only: str = "*"
) -> Report:
    """All cells.

    Args:
        folder: where results are kept.
        quick: a part of the cells.
        count: starts of each cell.
        fresh: measure again what is there.
        processes: at once; one for each processor by default.
        only: cells whose name matches this pattern of a shell.

    Raises:
        LookupError: none does.
    """
    began = time.monotonic()
    results = Results(folder / "warm-up.jsonl", fresh=fresh)
    wanted = [cell for cell in cells(quick=quick) if fnmatchcase(cell.key, only)]
    if not wanted:
        raise LookupError(f"no cell matches {only!r}: use a pattern of names such as {next(cells()).key!r}")
    times = starts(count)
    todo = list(jobs(wanted, times, results))
    columns = (TextColumn("warm-up"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=stderr, transient=True) as bar:
        task = bar.add_task("", total=sum(len(job.wanted) for job in todo))

        def done(outcomes: Mapping[tuple[str, bool], Any]) -> None:
            results.put(outcomes)
            bar.advance(task, sum(key.split("|")[-2] != BEFORE for key, _ in outcomes))

        run_all(todo, processes or os.cpu_count() or 1, done)
    return Report([_measured(cell, times, results) for cell in wanted], time.monotonic() - began, count)


def _measured(cell: Cell, times: Sequence[float], results: Results) -> Measured:
    engines = {BEFORE: False, **{name: variant.engine for name, variant in VARIANTS.items()}}
    outcomes: dict[str, list[Any]] = {
        name: [results.get(key_of(cell.fleet, start, cell.change, name), engine=engine) for start in times]
        for name, engine in engines.items()
    }
    return Measured(cell, outcomes)


def write_docs(report: Report, docs: Path) -> list[Path]:
    """Write the tables and the plots below the folder of the documentation; the files."""
    path = docs / "warm-up-measured-table.md"
    path.write_text(markdown(report.results, report.bad, report.starts), "utf-8")
    written = [path]
    for router in ROUTERS:
        shown = [
            one
            for one in report.measured
            if (one.cell.fleet.trace, one.cell.fleet.router, one.cell.fleet.concurrency) == (_PLOTTED_TRACE, router, _PLOTTED_CONCURRENCY)
        ]
        if shown:
            path = docs / "images" / f"warm-up-{router.replace(' ', '-')}.svg"
            path.write_text(plot(f"Router: {router}. Azure sample, {_PLOTTED_CONCURRENCY} loads at once", shown), "utf-8")
            written.append(path)
    return written
