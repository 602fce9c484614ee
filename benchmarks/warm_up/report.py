"""The table, for a terminal and for the docs, and the document."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from benchmarks.warm_up.cells import CHANGES
from benchmarks.warm_up.judge import BOUNDS, CellResult

__all__ = ["document", "markdown", "summary", "table"]

_MARK = " !"

_Column = tuple[str, Sequence[str], Callable[[CellResult], str]]


def _number(value: float, digits: int = 1, factor: float = 1.0) -> str:
    return "-" if math.isnan(value) else f"{value * factor:.{digits}f}"


def _percent(value: float) -> str:
    return _number(value, 0, 100)


_COLUMNS: Sequence[_Column] = (
    ("trace", (), lambda one: one.cell.fleet.trace),
    ("router", (), lambda one: one.cell.fleet.router),
    ("change", (), lambda one: one.cell.change),
    ("memory", (), lambda one: f"{one.cell.fleet.memory_share:g}"),
    ("slots", (), lambda one: f"{one.cell.fleet.concurrency}"),
    ("miss %", (), lambda one: _number(one.before, 2, 100) + (" overloaded" if one.overloaded else "")),
    ("extra 0-5", (), lambda one: _number(one.extra[0], 0)),
    ("avoided %", ("five_minutes", "of_clairvoyant"), lambda one: _percent(one.reduction["warm-up"])),
    ("floor %", (), lambda one: _percent(one.reduction["floor"])),
    ("clairv. %", (), lambda one: _percent(one.reduction["clairvoyant"])),
    ("extra 1-5", (), lambda one: _number(one.extra[1], 0)),
    ("avoided 1-5 %", ("after_first_minute",), lambda one: _percent(one.later["warm-up"])),
    ("later, points", ("harm_mean",), lambda one: " ".join(f"{points:+.2f}" for points in one.harm)),
    ("worst (noise)", ("harm_worst",), lambda one: f"{one.harm_worst:+.2f} ({one.noise:.2f})"),
    ("calls", ("traffic",), lambda one: _number(one.traffic, 2)),
    ("s", ("done",), lambda one: _number(one.seconds, 0)),
    ("x bound", ("time",), lambda one: _number(one.times_bound, 2)),
    ("bytes %", ("bytes_back",), lambda one: _percent(one.bytes_back) if CHANGES[one.cell.change].update else ""),
    ("heat %", ("heat_back",), lambda one: _number(one.heat_back, 1, 100) if CHANGES[one.cell.change].update else ""),
)


def _cell(one: CellResult, column: _Column) -> tuple[str, bool]:
    _title, bounds, text = column
    missed = any(bound in one.missed for bound in bounds)
    return text(one) + (_MARK if missed else ""), missed


def table(results: Iterable[CellResult]) -> Table:
    """For a terminal: what misses its bound is red and marked."""
    shown = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for title, *_ in _COLUMNS:
        shown.add_column(title, justify="left" if title in {"trace", "router", "change"} else "right", no_wrap=True)
    for one in results:
        cells = [_cell(one, column) for column in _COLUMNS]
        shown.add_row(*(f"[red]{text}[/red]" if missed else text for text, missed in cells), style="dim" if one.overloaded else None)
    return shown


def markdown(results: Sequence[CellResult], bad: Mapping[str, Mapping[str, int]], starts: int) -> str:
    """For the docs: what misses its bound is bold and marked; a table of bounds, and one for each router and trace."""
    cells = (
        f"{len(results)} cells, {starts} starts each; {sum(one.overloaded for one in results)} of them overloaded, reported and not judged."
    )
    parts = [f"{cells}\n", _rows(_SUMMARY_TITLES + tuple(f"missed by *{name}*" for name in bad), _summary_rows(results, bad))]
    for router, trace in dict.fromkeys((one.cell.fleet.router, one.cell.fleet.trace) for one in results):
        shown = [one for one in results if (one.cell.fleet.router, one.cell.fleet.trace) == (router, trace)]
        columns = [column for column in _COLUMNS if column[0] not in {"router", "trace"}]
        rows = [[f"**{text}**" if missed else text for text, missed in (_cell(one, column) for column in columns)] for one in shown]
        parts += [f"**Router: {router}, trace: {trace}**\n", _rows([title for title, *_ in columns], rows)]
    return "\n".join(parts)


def _rows(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles), *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines) + "\n"


_SUMMARY_TITLES = ("bound", "cells judged", "missed")


def _summary_rows(results: Sequence[CellResult], bad: Mapping[str, Mapping[str, int]]) -> Iterator[list[str]]:
    for bound, text in BOUNDS.items():
        judged = [one for one in results if bound in one.judged]
        missed = sum(not one.judged[bound] for one in judged)
        yield [text, f"{len(judged)}", f"{missed}", *(f"{missed_by.get(bound, 0)}" for missed_by in bad.values())]


def summary(results: Sequence[CellResult], bad: Mapping[str, Mapping[str, int]]) -> Table:
    """Bounds, and how many cells hold them."""
    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in (*_SUMMARY_TITLES, *(f"missed by '{name}'" for name in bad)):
        shown.add_column(title, justify="left" if title == "bound" else "right")
    for row in _summary_rows(results, bad):
        shown.add_row(*row, style=None if row[2] == "0" else "red")
    return shown


def document(results: Iterable[CellResult]) -> list[dict[str, Any]]:
    """For programs."""
    return [{**_plain(asdict(one)), "missed": one.missed} for one in results]


def _plain(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value
