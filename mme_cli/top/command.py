"""The command ``mme tenants top``."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from mme_cli.console import print_json, stdout
from mme_cli.errors import CommandError

__all__ = ["top"]

_SPAN = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class By(StrEnum):
    """What the table is sorted by."""

    REQUESTS = "requests"
    COLD = "cold"
    P99 = "p99"
    BYTES = "bytes"
    COST = "cost"


def top(
    last: Annotated[str, typer.Option(help="How far to look back: 30m, 6h, 7d.")] = "1h",
    start: Annotated[str | None, typer.Option(help="Beginning, such as 2026-11-30T12:00Z, instead of --last.")] = None,
    end: Annotated[str | None, typer.Option(help="End; left out, now.")] = None,
    by: Annotated[By, typer.Option(help="What to sort by.")] = By.REQUESTS,
    rows: Annotated[int, typer.Option(min=1, help="Tenants to show; --json has them all.")] = 20,
    usd_per_hour: Annotated[
        list[str] | None,
        typer.Option(help="Price of an instance-hour: 0.23, or ml.m5.xlarge=0.23 for a type. Without, costs are in instance-hours."),
    ] = None,
    memory_gb: Annotated[
        float | None, typer.Option(min=0.001, help="Memory of an instance for models, GB of 10^9 bytes; left out, 80 % of the type's.")
    ] = None,
    stack: Annotated[
        list[str] | None, typer.Option(help="Ask AWS: a stack with outputs of the platform; name each, such as MmePlatform and MmeStorage.")
    ] = None,
    log_group: Annotated[
        list[str] | None, typer.Option(help="A log group that an application writes its lines to (TenantClient's log); name each.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="AWS region; left out, the environment's.")] = None,
    profile: Annotated[str | None, typer.Option(help="AWS profile; left out, the environment's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> None:
    """Requests, cold loads, latency, bytes and cost share of each tenant, from the log of every request."""
    from mme_cli.local_state import LocalState
    from mme_cli.platform import local_status
    from mme_cli.top.fleet import Prices
    from mme_cli.top.report import print_report, report
    from mme_cli.top.sources import local_sources, stack_sources
    from mme_tenancy.clock import SystemClock

    prices = Prices.parse(usd_per_hour or ())
    if stack:
        sources, now = stack_sources(stack, region=region, profile=profile, log_groups=log_group or ()), time.time()
    else:
        state = LocalState.read()
        sources, now = local_sources(state, log_groups=log_group or ()), float(local_status(state)["clock"]["now"])
    begin, until = _range(last, start, end, now)
    memory = None if memory_gb is None else round(memory_gb * 1e9)
    try:
        found = report(sources, start=begin, end=until, prices=prices, clock=SystemClock(), memory_bytes=memory)
    except _aws_errors() as error:
        raise CommandError(f"a service could not be asked: {error}") from error
    if as_json:
        print_json(found.document(by.value))
    else:
        print_report(found, stdout, order=by.value, rows=rows)


def _aws_errors() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, ClientError

    from mme_tenancy.heat import HeatError

    return BotoCoreError, ClientError, HeatError


def _range(last: str, start: str | None, end: str | None, now: float) -> tuple[int, int]:
    until = int(now) + 1 if end is None else _moment("--end", end)
    if start is not None:
        begin = _moment("--start", start)
    else:
        match = _SPAN.fullmatch(last)
        if match is None:
            raise typer.BadParameter(f"--last is {last!r}: use a number and s, m, h or d, such as 30m")
        begin = until - int(match[1]) * _SECONDS[match[2]]
    if not 0 <= begin < until:
        raise typer.BadParameter(f"the range ends before it begins: {start or last} to {end or 'now'}")
    return begin, until


def _moment(option: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{option} is {text!r}: use ISO 8601, such as 2026-11-30T12:00Z") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
