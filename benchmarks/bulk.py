"""What onboarding many models costs: ``mme onboard --manifest`` against the reference app on the local cloud with simulated servers."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.figure import Figure
from mme_cli.cdk import deploy
from mme_cli.local_state import LocalState
from mme_cli.platform import LocalPlatform
from mme_local import LocalCloud, LocalSettings
from mme_local.dataplane import DataPlaneSettings
from mme_tenancy.testing import booster

__all__ = ["COUNTED", "calls_between", "measure", "small_artifact", "write_models"]

_PROJECT = Path(__file__).parents[1]
_MODELS = 1000
_TENANTS = 10
_CONCURRENCY = 6
_RATE_BOUND = 10.0
_CALLS_BOUND = 16.0
COUNTED = ("s3", "dynamodb", "sagemaker", "lambda")
"""The services whose calls count; of Lambda the executions."""


def measure(tell: Callable[[str], object]) -> Iterator[Figure]:
    """Models a second from the start of the command to its end, and calls to AWS a model."""
    settings = LocalSettings(data_plane=DataPlaneSettings(servers={"*": "simulated"}))
    with TemporaryDirectory() as scratch, LocalCloud(settings=settings) as cloud:
        folder = Path(scratch)
        tell("deploying the reference app")
        state = LocalState(cloud.endpoint_url, cloud.region, cloud.account, os.getpid(), cloud.admin, cloud.environment())
        state = deploy(state, _PROJECT, lambda _line: None, "--output", str(folder / "cdk.out"))
        state.write(folder / ".mme")
        tenants = [f"tenant-{number}" for number in range(_TENANTS)]
        admin = LocalPlatform(state).admin_client()
        for tenant in tenants:
            admin.expect((200, 201), "PUT", f"/tenants/{tenant}", {})
        manifest = write_models(folder, [(tenants[number % _TENANTS], f"model-{number}") for number in range(_MODELS)])
        tell(f"onboarding {_MODELS} models by manifest")
        before, started = cloud.calls(), time.perf_counter()
        command = [sys.executable, "-m", "mme_cli.main", "onboard", "--manifest", str(manifest)]
        done = subprocess.run(
            [*command, "--concurrency", str(_CONCURRENCY), "--json"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
        )
        seconds = time.perf_counter() - started
        calls = calls_between(before, cloud.calls())
        states = Counter(outcome["state"] for outcome in json.loads(done.stdout)["outcomes"])
        if states != {"active": _MODELS}:
            raise RuntimeError(f"not every model is active: {states}")
    conditions = {
        "models": _MODELS,
        "tenants": _TENANTS,
        "concurrency": _CONCURRENCY,
        "server": "simulated",
        "cores": os.cpu_count(),
        "seconds": round(seconds, 1),
    }
    yield Figure("bulk_models_per_s", _MODELS / seconds, "1/s", _RATE_BOUND, "none: wall time of the command", conditions, at_least=True)
    by_call = {name: round(count / _MODELS, 2) for name, count in sorted(calls["calls"].items())}
    yield Figure(
        "bulk_aws_calls_per_model",
        sum(calls["calls"].values()) / _MODELS,
        "calls",
        _CALLS_BOUND,
        "none: S3, DynamoDB, SageMaker and executions of functions, counted at the gateway, with the questions for states",
        {**conditions, "calls": by_call, "downloads_by_sagemaker": sum(calls["by_services"].values()) / _MODELS},
    )


def calls_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """The counted calls between two documents of `LocalCloud.calls`, as ``service Operation``, by who made them."""
    return {kind: _flat(after[kind]) - _flat(before[kind]) for kind in ("calls", "by_services")}


def _flat(services: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    return Counter(
        {
            f"{service} {operation}": count
            for service in COUNTED
            for operation, count in services.get(service, {}).items()
            if service != "lambda" or operation == "Invoke"
        }
    )


def small_artifact(number: int) -> bytes:
    """An artifact of a small booster, another one for each number."""
    plain, content = io.BytesIO(), booster()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        member = tarfile.TarInfo("xgboost-model")
        member.size, member.mtime = len(content), number
        archive.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


def write_models(folder: Path, names: list[tuple[str, str]]) -> Path:
    """Write an artifact for each tenant and model, and the manifest; its path."""
    (folder / "row.csv").write_text("5.1,3.5,1.4,0.2\n")
    manifest = folder / "models.csv"
    with manifest.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["tenant", "model", "artifact", "sample"])
        for number, (tenant, model) in enumerate(names):
            artifact = folder / f"{tenant}-{model}.tar.gz"
            artifact.write_bytes(small_artifact(number))
            lines.writerow([tenant, model, artifact.name, "row.csv"])
    return manifest
