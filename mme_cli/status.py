"""``mme status``: what the local cloud holds and does, for a terminal; the console's page shows the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["status_view", "watch"]

_TENANTS = 10
_FAULTS = 10
_BAR_CHARACTERS = 16
_TONES = {"InService": "green", "up": "green", "Failed": "red", "down": "red", "ALARM": "red"}
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def status_view(document: Mapping[str, Any], models: int) -> RenderableType:
    """The status as something to print.

    Args:
        document: of ``GET /_mme/status``.
        models: resident models to list per instance, the last used first.
    """
    parts: list[RenderableType] = []
    for endpoint in document["endpoints"]:
        parts += [_headline(endpoint), Padding(_instances(endpoint, models, document["now"]), (0, 0, 1, 2))]
    if not document["endpoints"]:
        parts.append(Text("no endpoint: deploy one with 'mme deploy'"))
    sections = (
        _tenants(document["endpoints"]),
        _scaling(document["scaling"]),
        _alarms(document["alarms"]),
        _faults(document["faults"] or []),
    )
    parts += [Padding(table, (0, 0, 1, 2)) for table in sections if table.row_count]
    if document["clock"]["scale"] != 1:
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(document["clock"]["now"]))
        parts.append(Text(f"clock: {now}, {document['clock']['scale']:g} times real time", style="dim"))
    return Group(*parts)


def watch(ask: Callable[[], Mapping[str, Any]], models: int, console: Console, interval_seconds: float) -> None:
    """Show the status again and again until Ctrl-C, which ends it in order.

    Args:
        ask: gets the document; what it raises ends the watch.
        models: as in `status_view`.
        console: where.
        interval_seconds: between two looks.
    """
    live = Live(console=console, screen=console.is_terminal, auto_refresh=False, vertical_overflow="crop")
    try:
        live.update(status_view(ask(), models))
        live.start(refresh=True)
        while True:
            time.sleep(interval_seconds)
            live.update(status_view(ask(), models), refresh=True)
    except KeyboardInterrupt:
        return
    finally:
        live.stop()  # whatever came in between: cursor and screen are as before


def _bytes(value: float) -> str:
    for unit, size in _UNITS:
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _tone(word: str) -> Text:
    return Text(word, style=_TONES.get(word, "yellow"))


def _table(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold", no_wrap=column in right)
    return table


def _headline(endpoint: Mapping[str, Any]) -> RenderableType:
    counts = [
        f"hit ratio {_ratio(endpoint['hit_ratio'])}",
        *(f"{endpoint[member]} {member.replace('_', ' ')}" for member in ("requests", "cold_loads", "evictions", "errors")),
    ]
    line = Text.assemble((endpoint["name"], "bold"), "  ", _tone(endpoint["status"]), "  ", (", ".join(counts), ""))
    variants = [
        f"{variant['name']}: {variant['current_count']}"
        + ("" if variant["current_count"] == variant["desired_count"] else f" of {variant['desired_count']}")
        + (f" x {variant['instance_type']}" if variant["instance_type"] else "")
        for variant in endpoint["variants"]
    ]
    components = [f"{component['name']} x {component['copies']} ({component['status']})" for component in endpoint["components"]]
    lines: list[RenderableType] = [line, Text("  " + ", ".join([*variants, *components]), style="dim")]
    if endpoint["failure_reason"]:
        lines.append(Text("  " + endpoint["failure_reason"], style="red"))
    return Group(*lines)


def _instances(endpoint: Mapping[str, Any], models: int, now: float) -> Table:
    table = _table("instance", "state", "memory", "", "resident model", "size", "used", right=("size", "used"))
    for instance in endpoint["instances"]:
        head: list[RenderableType] = [
            " ".join(filter(None, (instance["id"], instance["component"], "" if instance["current"] else "*"))),
            _tone(instance["state"]),
            Bar(instance["memory_budget_bytes"], 0, instance["memory_bytes"], width=_BAR_CHARACTERS),
            f"{_bytes(instance['memory_bytes'])} of {_bytes(instance['memory_budget_bytes'])}",
        ]
        for number, row in enumerate(_models(instance, models, now)):
            table.add_row(*(head if number == 0 else [""] * len(head)), *row)
    return table


def _models(instance: Mapping[str, Any], models: int, now: float) -> Iterator[tuple[RenderableType, str, str]]:
    """Rows of an instance: at least one."""
    resident = sorted(instance["models"], key=lambda model: -(model["last_used"] or 0))
    for model in instance["moving"][:models]:
        yield Text(model["target_model"], style="cyan"), _bytes(model["bytes"]), model["state"]
    for model in resident[:models]:
        used = "-" if model["last_used"] is None else f"{max(0, now - model['last_used']):.0f} s ago"
        yield Text(model["target_model"]), _bytes(model["bytes"]), "in flight" if model["in_flight"] else used
    more = max(0, len(resident) - models) + max(0, len(instance["moving"]) - models)
    if more or not (resident or instance["moving"]):
        yield Text(f"and {more} more" if more else "-", style="dim"), "", ""


def _tenants(endpoints: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("tenant", "requests", "hit ratio", "errors", right=("requests", "hit ratio", "errors"))
    totals: dict[str, list[int]] = {}
    for tenant in (tenant for endpoint in endpoints for tenant in endpoint["tenants"]):
        total = totals.setdefault(tenant["tenant"], [0, 0, 0])
        for number, member in enumerate(("requests", "hits", "errors")):
            total[number] += tenant[member]
    busiest = sorted(totals.items(), key=lambda item: -item[1][0])
    for name, (requests, hits, errors) in busiest[:_TENANTS]:
        table.add_row(Text(name), str(requests), _ratio(hits / requests if requests else None), str(errors))
    if len(busiest) > _TENANTS:
        table.add_row(Text(f"and {len(busiest) - _TENANTS} more", style="dim"))
    return table


def _scaling(scaling: Mapping[str, Any]) -> Table:
    table = _table("scaling", "")
    for target in scaling["targets"]:
        suspended = f", suspended: {', '.join(target['suspended'])}" if target["suspended"] else ""
        table.add_row(Text(target["resource"]), f"{target['min']} to {target['max']}{suspended}")
    for activity in scaling["activities"][:3]:
        table.add_row(Text(activity["description"], style="dim"), Text(f"{activity['status']}: {activity['cause']}", style="dim"))
    return table


def _alarms(alarms: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("alarm", "state", "why")
    for alarm in alarms:
        if alarm["state"] == "ALARM":
            table.add_row(Text(alarm["name"]), _tone("ALARM"), Text(alarm["reason"], style="dim"))
    return table


def _faults(faults: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("fault", "kind", "struck", "")
    for fault in faults[-_FAULTS:]:
        table.add_row(fault["id"], fault["kind"], str(fault["struck"]), Text("on", "yellow") if fault["active"] else Text("ended", "dim"))
    return table
