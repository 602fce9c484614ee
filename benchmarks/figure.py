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
        bound: greatest value that is right, or the least with ``at_least``.
        baseline: what it was measured against.
        conditions: how: runs, machine, constants.
        at_least: whether more is better.
    """

    name: str
    value: float
    unit: str
    bound: float
    baseline: str
    conditions: Mapping[str, object]
    at_least: bool = False

    @property
    def holds(self) -> bool:
        """Whether the value is within the bound."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    @property
    def bound_text(self) -> str:
        """The bound with its direction, such as ``<= 1.15``."""
        return f"{'>=' if self.at_least else '<='} {self.bound:g}"

    def document(self) -> dict[str, object]:
        """The figure as one entry of ``bench.json``."""
        document = asdict(self)
        del document["at_least"]
        return {**document, "bound": self.bound_text, "holds": self.holds}


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
            figure.bound_text,
            "yes" if figure.holds else "NO",
            figure.baseline,
            style=style,
        )
    return shown


def store(figures: Iterable[Figure], path: Path) -> None:
    """Write ``bench.json``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([figure.document() for figure in figures], indent=1) + "\n", "utf-8")
