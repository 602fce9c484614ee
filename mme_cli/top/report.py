"""``mme tenants top``: requests from the log, costs from heat, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table

from mme_cli.top.fleet import UNITS, EndpointFleet, Prices, endpoint_fleet
from mme_cli.top.residency import MODEL_OVERHEAD_BYTES, FleetSize, byte_seconds, sizes_of
from mme_cli.top.split import Share, Split, Use, split
from mme_cli.top.usage import Requests, TenantRequests, merged, requests_of
from mme_facts.grammar import VersionId
from mme_facts.heat import DEDICATED_POOL
from mme_facts.instances import InstanceTypeError, models_memory_bytes
from mme_tenancy.clock import Clock
from mme_tenancy.heat import HeatRange, PoolHeat, read

if TYPE_CHECKING:
    from rich.console import Console

    from mme_cli.top.sources import Sources

__all__ = ["OTHERS", "Order", "Report", "print_report", "report"]

OTHERS = "*"
"""Models in the tail of truncated windows: nobody knows whose they are."""
Order = Literal["requests", "cold", "p99", "bytes", "cost"]
LEAD_SECONDS = 3600
"""Heat before the range that fills the simulated memory."""
_BATCH = 100


@dataclass(frozen=True, slots=True)
class PoolCost:
    """What was known of one pool.

    Attributes:
        pool: its name; of an endpoint without heat, the endpoint's.
        endpoints: with their instances.
        cost: in `UNITS`.
        windows: windows of heat in the range.
        covered_seconds: what they cover of it.
        truncated: how many of them have a tail.
    """

    pool: str
    endpoints: tuple[EndpointFleet, ...]
    cost: int
    windows: int
    covered_seconds: int
    truncated: int


@dataclass(frozen=True, slots=True)
class Report:
    """The answer.

    Attributes:
        start: epoch seconds.
        end: epoch seconds.
        requests: by tenant.
        pools: what the cost is made of.
        split: who bears it.
        currency: ``USD``, or ``instance-hours`` where no price is given.
    """

    start: int
    end: int
    requests: Requests
    pools: tuple[PoolCost, ...]
    split: Split
    currency: str

    def share(self, tenant: str) -> float:
        """A tenant's part of the whole cost, 0 to 1."""
        cost = self.split.cost
        return self.split.shares.get(tenant, Share()).cost / cost if cost else 0.0

    def rows(self, order: Order) -> list[TenantRequests]:
        """Every tenant that asked or bears a cost, the greatest first."""
        asked = {row.tenant: row for row in self.requests.tenants}
        resident = [TenantRequests(who, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0) for who in self.split.shares if who not in asked]
        key: Mapping[Order, Callable[[TenantRequests], float]] = {
            "requests": lambda row: row.requests,
            "cold": lambda row: row.cold,
            "p99": lambda row: row.p99_ms,
            "bytes": lambda row: row.bytes_in + row.bytes_out,
            "cost": lambda row: self.share(row.tenant),
        }
        return sorted([*asked.values(), *resident], key=lambda row: (-key[order](row), row.tenant))

    def document(self, order: Order) -> dict[str, Any]:
        """The report as one JSON document; costs are exact decimal texts."""
        return {
            "from": _moment(self.start),
            "to": _moment(self.end),
            "total": _shown(self.requests.total) | {"cost": _amount(self.split.cost)},
            "currency": self.currency,
            "tenants": [self._tenant(row) for row in self.rows(order)],
            "not_listed_requests": self.requests.truncated,
            "unused_cost": _amount(self.split.unused),
            "pools": [
                asdict(pool) | {"cost": _amount(pool.cost), "range_seconds": self.end - self.start, "method": _method(pool)}
                for pool in self.pools
            ],
            "scanned_bytes": self.requests.scanned_bytes,
        }

    def _tenant(self, row: TenantRequests) -> dict[str, Any]:
        share = self.split.shares.get(row.tenant, Share())
        cost = {"cost": _amount(share.cost), "cost_memory": _amount(share.memory), "cost_time": _amount(share.time)}
        return {"tenant": row.tenant} | _shown(row) | cost | {"cost_share": self.share(row.tenant)}


def report(sources: Sources, *, start: int, end: int, prices: Prices, clock: Clock, memory_bytes: int | None = None) -> Report:
    """Count requests and split the cost.

    Args:
        sources: log, heat, registry and fleet.
        start: epoch seconds, inclusive.
        end: epoch seconds, exclusive.
        prices: of instances.
        clock: time.
        memory_bytes: of an instance, for models. Default: 80 percent of what its type has.

    Raises:
        CommandError: something cannot be asked.
    """
    requests = requests_of(sources.queries, start, end, clock)
    pools: list[PoolCost] = []
    uses: list[Use] = []
    seen: set[str] = set()
    for pool in sources.heat.pools():
        lead = read(sources.heat, pool, start=start - LEAD_SECONDS, end=end)
        within = HeatRange(start, end, tuple(window for window in lead.windows if window.key.start >= start))
        if not lead.windows:
            continue
        fleets = _fleets(sources, lead.windows[-1].endpoints, start, end)
        seen |= {fleet.name for fleet in fleets}
        cost = sum(fleet.cost(end - start, prices.hourly(fleet)) for fleet in fleets)
        sizes = _Sizes(sources)
        resident = _resident(pool, lead, fleets, sizes, memory_bytes, start, end)
        served = _served(within) if within.windows else merged(requests.served_ms, [fleet.name for fleet in fleets])
        uses.append(Use(cost, resident, served))
        covered = sum(window.key.seconds for window in within.windows)
        pools.append(PoolCost(pool, fleets, cost, len(within.windows), covered, sum(window.truncated for window in within.windows)))
    for endpoint in sorted(set(requests.served_ms) - seen):
        fleets = _fleets(sources, (endpoint,), start, end)
        cost = sum(fleet.cost(end - start, prices.hourly(fleet)) for fleet in fleets)
        uses.append(Use(cost, {}, requests.served_ms[endpoint]))
        pools.append(PoolCost(endpoint, fleets, cost, 0, 0, 0))
    return Report(start, end, requests, tuple(pools), split(uses), "USD" if prices.given else "instance-hours")


def _fleets(sources: Sources, endpoints: Iterable[str], start: int, end: int) -> tuple[EndpointFleet, ...]:
    return tuple(endpoint_fleet(sources.sagemaker, sources.cloudwatch, name, start=start, end=end) for name in endpoints)


def _served(heat: HeatRange) -> dict[str, float]:
    sums: dict[str, float] = {}
    for window in heat.windows:
        for row in window.rows:
            sums[row.tenant] = sums.get(row.tenant, 0.0) + row.counts.served_ms
        if window.tail.served_ms:
            sums[OTHERS] = sums.get(OTHERS, 0.0) + window.tail.served_ms
    return sums


def _resident(
    pool: str, heat: HeatRange, fleets: Sequence[EndpointFleet], sizes: _Sizes, memory_bytes: int | None, start: int, end: int
) -> dict[str, float]:
    known = sizes_of(sizes.of(heat.windows))
    if pool == DEDICATED_POOL:
        # A component has its model loaded from its first request in sight on: as in a memory without end.
        room = sum({(row.tenant, row.model, row.version): known(row) for window in heat.windows for row in window.rows}.values())
        return byte_seconds(heat.windows, known, FleetSize(1, room + 1, 0), start=start, end=end)
    instances = max(1, round(sum(fleet.instances for fleet in fleets)))
    memory = memory_bytes or min((_memory_of(fleet) for fleet in fleets), default=_memory_of(None))
    return byte_seconds(heat.windows, known, FleetSize(instances, memory, MODEL_OVERHEAD_BYTES), start=start, end=end)


def _memory_of(fleet: EndpointFleet | None) -> int:
    try:
        return models_memory_bytes((fleet and fleet.instance_type) or "ml.m5.xlarge")
    except InstanceTypeError:
        return _memory_of(None)


class _Sizes:
    """Bytes of versions by (tenant, model, version): measured in the container, else the artifact's."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def of(self, windows: Sequence[PoolHeat]) -> dict[tuple[str, str, str], int]:
        """Of every version with a row."""
        from mme_tenancy.registry import version_key

        wanted = list(dict.fromkeys((row.tenant, row.model, row.version) for window in windows for row in window.rows))
        found: dict[tuple[str, str, str], int] = {}
        for begin in range(0, len(wanted), _BATCH):
            batch = wanted[begin : begin + _BATCH]
            keys = [version_key(tenant, model, VersionId.parse(version).number) for tenant, model, version in batch]
            for name, version in zip(batch, self._sources.versions(keys), strict=True):
                if version is not None:
                    # What the container measured holds the worker's own memory, which the engine adds.
                    measured = None if version.memory_bytes is None else max(version.memory_bytes - MODEL_OVERHEAD_BYTES, 1)
                    found[name] = measured or version.size_bytes
        return found


def _method(pool: PoolCost) -> str:
    if not pool.windows:
        return "milliseconds served; there is no heat of the range, so that memory cannot be told"
    return "half by byte-seconds resident, estimated from heat; half by milliseconds served"


def _shown(row: TenantRequests) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if name != "tenant"}


def _amount(units: int) -> str:
    """A whole number of units as an exact decimal text."""
    return f"{units // UNITS}.{units % UNITS:09d}"


def _moment(epoch_seconds: int) -> str:
    return datetime.fromtimestamp(epoch_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def print_report(found: Report, console: Console, *, order: Order, rows: int) -> None:
    """The report as a table, and what the costs are made of."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("tenant", no_wrap=True)
    for title in ("requests", "cold", "failed", "p50 ms", "p99 ms", "in", "out", "cost", "share"):
        table.add_column(title, justify="right", no_wrap=True)
    listed = found.rows(order)
    total = replace(found.requests.total, tenant="all")
    for row in [*listed[:rows], total]:
        share = found.split.shares.get(row.tenant, Share())
        cost = found.split.cost if row is total else share.cost
        table.add_row(
            "(models beyond the first 10,000)" if row.tenant == OTHERS else row.tenant,
            *(str(value) for value in (row.requests, row.cold, row.failed)),
            *(f"{value:.1f}" for value in (row.p50_ms, row.p99_ms)),
            *(_bytes(value) for value in (row.bytes_in, row.bytes_out)),
            f"{cost / UNITS:.4f}",
            f"{(1.0 if row is total else found.share(row.tenant)) * 100:.1f} %",
            style="bold" if row is total else None,
        )
    console.print(f"{_moment(found.start)} to {_moment(found.end)}; cost in {found.currency}", markup=False, soft_wrap=True)
    console.print(table)
    if len(listed) > rows:
        console.print(f"and {len(listed) - rows} more tenants (--rows)", style="dim", markup=False)
    for pool in found.pools:
        sizes = ", ".join(f"{fleet.instances:.2f} x {fleet.instance_type or 'unknown type'}" for fleet in pool.endpoints)
        covered = f"heat covers {pool.covered_seconds} of {found.end - found.start} s" + (
            f", {pool.truncated} windows have a tail" if pool.truncated else ""
        )
        console.print(f"{pool.pool}: {sizes}; {covered}; {_method(pool)}", style="dim", markup=False, soft_wrap=True)
    if found.split.unused:
        console.print(f"used by nobody: {found.split.unused / UNITS:.4f} {found.currency}", style="dim", markup=False)


def _bytes(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
