"""What the invocation path costs beside raw boto3: warm calls, the start of the function's module, and many callers at once."""

from __future__ import annotations

import itertools
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

import psutil  # type: ignore[import-untyped]

from benchmarks.figure import Figure
from benchmarks.simulated_platform import ENDPOINT, SimulatedPlatform, simulated_platform, target_model
from mme_local import LocalSettings
from mme_local.dataplane import DataPlaneSettings
from mme_tenancy import PathSettings
from mme_tenancy.aws.clients import RUNTIME_CONNECTIONS
from mme_tenancy.stale_cache import Freshness

__all__ = ["measure"]

_RUNS, _CALLS, _WARM_UP = 5, 600, 200
_P50_BOUND, _P50_AT_ONCE_BOUND, _P99_BOUND = 1.05, 1.15, 1.25
_COLD_RUNS, _COLD_BOUND = 9, 1.2
_TENANTS, _CALLERS, _SECONDS, _SLICE_SECONDS = 1000, 200, 60.0, 2.5
_FIRST_SLICES = 3
"""Until all connections of both pools are there: what grows after that is a leak."""
_THROUGHPUT_BOUND, _GROWTH_BOUND = 0.9, 1.05
_BODY = b"5.1,3.5,1.4,0.2"


def measure(tell: Callable[[str], object]) -> Iterator[Figure]:
    """The figures of the invocation path."""
    yield _cold_start(tell)
    tell("starting an endpoint of simulated servers")
    models = {("acme", "slow"): {"invoke_seconds": 0.003}, ("acme", "fast"): {}}
    models |= {(f"tenant-{number}", "slow"): {"invoke_seconds": 0.003} for number in range(_TENANTS)}
    settings = LocalSettings(data_plane=DataPlaneSettings(servers={"*": "simulated"}))
    with simulated_platform(models, settings) as platform, Path(os.devnull).open("w", encoding="utf-8") as log:
        yield from _warm(platform, log, tell)
        yield from _many(platform, log, tell)


def _cold_start(tell: Callable[[str], object]) -> Figure:
    """Import of the function's module, wired as inside Lambda, against importing boto3 and making two clients."""
    clients = "session = boto3.Session(); session.client('dynamodb'); session.client('sagemaker-runtime')"
    programs = {
        "baseline": f"import boto3; {clients}",
        "module": "import mme_tenancy.handlers.invocation",
    }
    role = "arn:aws:iam::111122223333:role/bench"
    settings = {"AWS_LAMBDA_FUNCTION_NAME": "bench", "MME_TABLE_NAME": "registry", "MME_TENANT_ROLE_ARN": role}
    environment = {**os.environ, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", **settings}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(_COLD_RUNS):
        tell(f"cold start, run {number + 1} of {_COLD_RUNS}")
        for name, program in programs.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], env=environment, check=True)
            seconds[name].append(time.perf_counter() - started)
    ours, theirs = (statistics.median(seconds[name]) for name in ("module", "baseline"))
    return Figure(
        "cold_import_ratio",
        ours / theirs,
        "ratio",
        _COLD_BOUND,
        "import boto3 and two clients, in fresh interpreters, interleaved",
        {"runs": _COLD_RUNS, "module_s": round(ours, 3), "baseline_s": round(theirs, 3), "wiring": "isolation on, all clients made"},
    )


def _warm(platform: SimulatedPlatform, log: TextIO, tell: Callable[[str], object]) -> Iterator[Figure]:
    """One caller, calls of both kinds in turn: a tenth of a millisecond of drift meets both alike."""
    raw, client = platform.raw(), platform.client(log.write)
    ratios: dict[str, list[tuple[float, float]]] = {}
    medians: dict[str, list[float]] = {}
    for model in ("slow", "fast"):
        target = target_model("acme", model)

        def theirs(target: str = target) -> None:
            raw.invoke_endpoint(EndpointName=ENDPOINT, TargetModel=target, ContentType="text/csv", Body=_BODY)["Body"].read()

        def ours(model: str = model) -> None:
            client.invoke("acme", model, _BODY, content_type="text/csv")

        for _ in range(_WARM_UP):
            theirs()
            ours()
        for number in range(_RUNS):
            tell(f"warm calls of the {model} model, run {number + 1} of {_RUNS}")
            one, other = _interleaved(theirs, ours)
            p50, p99 = (_percentile(other, percent) / _percentile(one, percent) for percent in (50, 99))
            ratios.setdefault(model, []).append((p50, p99))
            medians.setdefault(model, []).append(_percentile(one, 50) * 1000)
    client.close()
    conditions = {
        "runs": _RUNS,
        "calls_a_run": _CALLS,
        "isolation": True,
        "telemetry": True,
        "server": "simulated, 3 ms",
        "raw_p50_ms": statistics.median(medians["slow"]),
    }
    at_once = statistics.median(ratio for ratio, _ in ratios["fast"])
    tell(f"against a server that answers at once: p50 ratio {at_once:.3f}, bound {_P50_AT_ONCE_BOUND}")
    baseline = "boto3's invoke_endpoint on the same endpoint, by a role's session, interleaved"
    at_once_p99 = statistics.median(ratio for _, ratio in ratios["fast"])
    fast = {**conditions, "server": "simulated, at once", "raw_p50_ms": statistics.median(medians["fast"])}
    yield Figure("invoke_p50_ratio", statistics.median(ratio for ratio, _ in ratios["slow"]), "ratio", _P50_BOUND, baseline, conditions)
    yield Figure("invoke_p99_ratio", statistics.median(ratio for _, ratio in ratios["slow"]), "ratio", _P99_BOUND, baseline, conditions)
    yield Figure("invoke_at_once_p50_ratio", at_once, "ratio", _P50_AT_ONCE_BOUND, baseline, fast)
    yield Figure("invoke_at_once_p99_ratio", at_once_p99, "ratio", _P99_BOUND, baseline, fast)


def _interleaved(theirs: Callable[[], None], ours: Callable[[], None]) -> tuple[list[float], list[float]]:
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(_CALLS):
        # Who comes first changes too: the second of a pair finds warmer caches.
        for which in (0, 1) if number % 2 else (1, 0):
            started = time.perf_counter()
            (theirs, ours)[which]()
            seconds[which].append(time.perf_counter() - started)
    return seconds


def _percentile(values: Sequence[float], percent: float) -> float:
    return sorted(values)[min(int(len(values) * percent / 100), len(values) - 1)]


def _many(platform: SimulatedPlatform, log: TextIO, tell: Callable[[str], object]) -> Iterator[Figure]:
    """Many callers over many tenants, in slices of both kinds in turn; and whether memory stays flat."""
    raw, client = platform.raw(max_pool_connections=RUNTIME_CONNECTIONS), platform.client(log.write)
    unwatched = platform.client(log.write, PathSettings(freshness=Freshness(0.0, 0.0)))
    tell(f"each of {_TENANTS} tenants once")
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda number: client.invoke(f"tenant-{number}", "slow", _BODY), range(_TENANTS)))

    def theirs(number: int) -> None:
        raw.invoke_endpoint(EndpointName=ENDPOINT, TargetModel=target_model(f"tenant-{number}", "slow"), Body=_BODY)["Body"].read()

    def ours(number: int) -> None:
        client.invoke(f"tenant-{number}", "slow", _BODY)

    for work in (theirs, ours) * _FIRST_SLICES:
        _throughput(work, _SLICE_SECONDS)
    memory = [_resident_bytes()]
    rates: tuple[list[float], list[float]] = ([], [])
    slices = int(_SECONDS / _SLICE_SECONDS)
    for number in range(slices):
        tell(f"{_CALLERS} callers, slice {number + 1} of {slices}")
        # Who comes first changes, so that drift meets both alike.
        for which in (0, 1) if number % 2 else (1, 0):
            rates[which].append(_throughput((theirs, ours)[which], _SLICE_SECONDS))
        memory.append(_resident_bytes())
    tell("the same with routes that are read for each request")
    bad = _throughput(lambda number: unwatched.invoke(f"tenant-{number}", "slow", _BODY), _SLICE_SECONDS) / statistics.median(rates[0])
    for each in (client, unwatched):
        each.close()
    if bad >= _THROUGHPUT_BOUND:
        raise RuntimeError(f"routes that are read for each request reach {bad:.3f} of boto3's throughput: the bound says nothing")
    conditions = {
        "callers": _CALLERS,
        "tenants": _TENANTS,
        "connections": RUNTIME_CONNECTIONS,
        "seconds": _SECONDS,
        "server": "simulated, 3 ms",
        "cores": os.cpu_count(),
        "raw_per_s": round(statistics.median(rates[0]), 1),
        "reading_each_time": round(bad, 3),
    }
    ratio = statistics.median(mine / others for mine, others in zip(rates[1], rates[0], strict=True))
    baseline = "boto3's invoke_endpoint by a role's session with as many connections, in slices in turn"
    yield Figure("concurrent_throughput_ratio", ratio, "ratio", _THROUGHPUT_BOUND, baseline, conditions, at_least=True)
    grown = max(memory) / memory[0]
    yield Figure("concurrent_memory_growth", grown, "ratio", _GROWTH_BOUND, "after every tenant was seen once", conditions)


def _throughput(work: Callable[[int], None], seconds: float) -> float:
    """Calls a second of `_CALLERS` threads."""
    done, numbers = itertools.count(), random.Random(1)  # noqa: S311 - spreads load
    over = time.perf_counter() + seconds
    errors: list[BaseException] = []

    def caller() -> None:
        try:
            while time.perf_counter() < over:
                work(numbers.randrange(_TENANTS))
                next(done)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=caller) for _ in range(_CALLERS)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return next(done) / (time.perf_counter() - started)


def _resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)
