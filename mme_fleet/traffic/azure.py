"""The sample of the Azure Functions trace of 2019 in three files: calls per minute, memory per app, run time per function.

Format: the trace's own (AzurePublicDataset, "Azure Functions Dataset 2019"), as vhive-serverless/invitro samples it: a line in each
file for every function, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mme_fleet.traffic.names import target_models, tenant_names
from mme_fleet.traffic.rows import Row, TraceFormatError, read_rows
from mme_fleet.traffic.trace import Floats, Integers, Population, Trace

__all__ = ["MIB", "AzureSample", "read_azure"]

MIB = 1_048_576
MINUTE = 60.0

_CALLS = "azure2019_1250_inv.csv.gz"
_MEMORY = "azure2019_1250_mem.csv.gz"
_RUNS = "azure2019_1250_run.csv.gz"

_FETCH_BYTES_PER_SECOND = 200e6
_LOAD_BYTES_PER_SECOND = 500e6
_LOAD_SECONDS = 0.3


@dataclass(frozen=True, eq=False)
class AzureSample:
    """Functions, one entry each in every array.

    Attributes:
        functions: their names (hashes).
        apps: the app of each: what takes memory.
        owners: the owner of each app: a tenant.
        calls: calls in each minute: ``[function, minute]``.
        memory_mib: average memory of its app.
        run_seconds: average run time.
    """

    functions: tuple[str, ...]
    apps: tuple[str, ...]
    owners: tuple[str, ...]
    calls: Integers
    memory_mib: Floats
    run_seconds: Floats

    def __len__(self) -> int:
        return len(self.functions)

    @property
    def calls_per_function(self) -> Integers:
        """All calls of each."""
        calls: Integers = self.calls.sum(axis=1, dtype=np.int64)
        return calls

    def tail(self, most_calls: int = 1440) -> AzureSample:
        """The functions that are called ``most_calls`` times at most: one a minute by default."""
        keep = np.nonzero(self.calls_per_function <= most_calls)[0]
        names = {name: tuple(getattr(self, name)[position] for position in keep) for name in ("functions", "apps", "owners")}
        return replace(self, calls=self.calls[keep], memory_mib=self.memory_mib[keep], run_seconds=self.run_seconds[keep], **names)

    def population(self) -> Population:
        """A model for each function, a tenant for each owner.

        Memory and service time are the files'. The sample has no load times: they are 0.3 s and the time for the bytes at 200 MB/s
        (download) and at 500 MB/s (load). Payloads are unknown, so 0.
        """
        owners, tenant = np.unique(np.array(self.owners), return_inverse=True)
        memory_bytes = np.maximum(1, np.rint(self.memory_mib * MIB)).astype(np.int64)
        return Population(
            models=target_models(tenant),
            tenants=tenant_names(len(owners)),
            tenant=tenant,
            memory_bytes=memory_bytes,
            load_seconds=_LOAD_SECONDS + memory_bytes / _FETCH_BYTES_PER_SECOND + memory_bytes / _LOAD_BYTES_PER_SECOND,
            service_seconds=self.run_seconds,
            payload_bytes=np.zeros(len(self), np.int64),
            born=np.zeros(len(self)),
            gone=np.full(len(self), np.inf),
        )

    def trace(self, seed: int) -> Trace:
        """The calls, each at a time of its own that is uniformly random within its minute."""
        function, minute = np.nonzero(self.calls)
        calls = self.calls[function, minute]
        seconds = np.repeat(minute * MINUTE, calls)
        seconds += np.random.default_rng(seed).random(len(seconds)) * MINUTE
        order = np.argsort(seconds)
        model = np.repeat(function.astype(np.int32), calls)[order]
        return Trace(self.population(), seconds[order], model, self.calls.shape[1] * MINUTE)


def read_azure(folder: Path, *, calls: str = _CALLS, memory: str = _MEMORY, runs: str = _RUNS) -> AzureSample:
    """Read the three files in ``folder``.

    Args:
        folder: where they are.
        calls: name of the file with HashFunction, HashApp, HashOwner and one column a minute.
        memory: name of the file with HashApp and AverageAllocatedMb.
        runs: name of the file with HashFunction and Average (milliseconds).

    Raises:
        TraceFormatError: a line is malformed, a function comes twice or has no memory or run time; the text names file and line.
        OSError: a file cannot be read.
    """
    memory_of = dict(_by_hash(read_rows(folder / memory, ("HashApp", "AverageAllocatedMb")), "AverageAllocatedMb"))
    run_of = dict(_by_hash(read_rows(folder / runs, ("HashFunction", "Average")), "Average"))
    functions: dict[str, None] = {}
    apps, owners, minutes, memory_mib, run_seconds = [], [], [], [], []
    for row in read_rows(folder / calls, ("HashFunction", "HashApp", "HashOwner"), rest=True):
        function, app, owner = (row.text(position, name) for position, name in enumerate(("HashFunction", "HashApp", "HashOwner")))
        if function in functions:
            raise row.error(f"function {function} comes a second time")
        functions[function] = None
        if app not in memory_of:
            raise row.error(f"app {app} has no line in {memory}")
        if function not in run_of:
            raise row.error(f"function {function} has no line in {runs}")
        apps.append(app)
        owners.append(owner)
        minutes.append(np.array(row.counts("minute"), np.int32))
        memory_mib.append(memory_of[app])
        run_seconds.append(run_of[function] / 1000)
    if not minutes[0].size:
        raise TraceFormatError(folder / calls, 1, "no column of a minute behind HashOwner")
    return AzureSample(tuple(functions), tuple(apps), tuple(owners), np.stack(minutes), np.array(memory_mib), np.array(run_seconds))


def _by_hash(rows: Iterator[Row], what: str) -> Iterator[tuple[str, float]]:
    seen: set[str] = set()
    for row in rows:
        name = row.text(0, "the hash")
        if name in seen:
            raise row.error(f"{name} comes a second time")
        seen.add(name)
        yield name, row.number(1, what)
