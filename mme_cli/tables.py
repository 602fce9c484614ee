"""The tables that commands print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from mme_cli.demo.run import DemoReport

__all__ = ["demo_table", "status_tables"]

_MEGABYTE = 1_000_000


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


def status_tables(document: Mapping[str, Any]) -> Iterator[Table]:
    """One table an endpoint: a row for each model that an instance holds."""
    for endpoint in document["endpoints"]:
        counters = (
            f"{endpoint['requests']} requests",
            f"hit ratio {endpoint['hits'] / max(1, endpoint['requests']):.3f}",
            f"{endpoint['evictions']} evictions",
        )
        table = Table(title=f"{endpoint['name']}: {endpoint['status']}, {', '.join(counters)}")
        for title in ("instance", "state", "memory MB", "restarts", "resident model", "MB"):
            table.add_column(title)
        for instance in endpoint["instances"]:
            head = (
                instance["id"],
                instance["state"],
                f"{instance['memory_bytes'] / _MEGABYTE:.0f} of {instance['memory_budget_bytes'] / _MEGABYTE:.0f}",
                str(instance["restarts"]),
            )
            resident = instance["models"] or [{"target_model": "-", "bytes": 0}]
            for number, model in enumerate(resident):
                table.add_row(*(head if number == 0 else [""] * len(head)), model["target_model"], f"{model['bytes'] / _MEGABYTE:.1f}")
        yield table
