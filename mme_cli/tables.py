"""The tables that commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from mme_cli.demo.run import DemoReport

__all__ = ["demo_table"]


def demo_table(report: DemoReport) -> Table:
    """One row a model: how fast it answered and where it is; narrow enough for 80 columns."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    for title in ("tenant", "model", "version"):
        table.add_column(title, no_wrap=True)
    for title in ("cold ms", "warm ms"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("instance", no_wrap=True)
    table.add_column("cold loads", justify="right", no_wrap=True)
    for row in report.rows:
        table.add_row(
            row.tenant,
            row.model,
            row.version,
            f"{row.cold_ms:.0f}",
            f"{row.warm_ms:.0f}",
            row.instance or "-",
            str(row.cold_loads),
            style="red" if row in report.wrong else None,
        )
    return table
