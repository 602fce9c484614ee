"""What a figure is, and how figures are shown and stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

__all__ = ["Figure", "store", "table"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure.

    Attributes:
        name: as the design lists it.
        value: what was measured.
        unit: its unit; ``ratio`` for a quotient of two things measured in the same run.
        bound: greatest value that is right.
        baseline: what it was measured against.
        conditions: how: runs, machine, constants.
    """

    name: str
    value: float
    unit: str
    bound: float
    baseline: str
    conditions: Mapping[str, object]

    @property
    def holds(self) -> bool:
        """Whether the value is within the bound."""
        return self.value <= self.bound

    def document(self) -> dict[str, object]:
        """The figure as one entry of ``bench.json``."""
        return {**asdict(self), "bound": f"<= {self.bound}", "holds": self.holds}


def table(figures: Iterable[Figure]) -> Table:
    """A row a figure."""
    shown = Table(box=None, padding=(0, 1, 0, 0))
    for title in ("figure", "value", "unit", "bound", "holds", "baseline"):
        shown.add_column(title)
    for figure in figures:
        style = None if figure.holds else "red"
        shown.add_row(
            figure.name,
            f"{figure.value:.3g}",
            figure.unit,
            f"<= {figure.bound:g}",
            "yes" if figure.holds else "NO",
            figure.baseline,
            style=style,
        )
    return shown


def store(figures: Iterable[Figure], path: Path) -> None:
    """Write ``bench.json``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([figure.document() for figure in figures], indent=1) + "\n", "utf-8")
