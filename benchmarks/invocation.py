"""What the invocation path costs beside raw boto3: warm calls, and the start of the function's module."""

from __future__ import annotations

import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import boto3

from benchmarks.figure import Figure
from mme_facts.table import PARTITION_KEY, SORT_KEY
from mme_local import LocalCloud, LocalSettings
from mme_local.dataplane import DataPlaneSettings
from mme_tenancy import TenantClient
from mme_tenancy.aws.clients import dynamodb_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.registry import Change
from mme_tenancy.routes import Model, Route
from mme_tenancy.tenants import Quotas, Tenant

__all__ = ["measure"]

_RUNS, _CALLS, _WARM_UP = 5, 600, 200
_P50_BOUND, _P50_AT_ONCE_BOUND, _P99_BOUND = 1.05, 1.15, 1.25
_COLD_RUNS, _COLD_BOUND = 9, 1.2

_NAME, _BUCKET, _TABLE, _ROLE = "bench", "bench-models", "bench-registry", "bench-tenant"
_NOW, _DIGEST = "2026-01-01T00:00:00.000Z", "0123456789ab"
_BODY = b"5.1,3.5,1.4,0.2"
_RATE = Quotas(requests_per_second=1_000_000)


def measure(tell: Callable[[str], object]) -> Iterator[Figure]:
    """The figures of the invocation path."""
    yield _cold_start(tell)
    with _platform(tell) as platform:
        yield from _warm(platform, tell)


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


@dataclass(frozen=True, slots=True)
class _Platform:
    """An endpoint of simulated servers, a registry with routes, and the tenants' role.

    Attributes:
        cloud: where it is.
        session: the administrator's.
        role_arn: the tenants' role.
        log: takes the log lines.
    """

    cloud: LocalCloud
    session: boto3.Session
    role_arn: str
    log: TextIO

    def client(self) -> TenantClient:
        """The library, with isolation and telemetry on."""
        return TenantClient(table_name=_TABLE, session=self.session, tenant_role_arn=self.role_arn, log=self.log.write)

    def raw(self) -> Any:
        """boto3's own client, which sends once, as ours does."""
        from botocore.config import Config

        make: Any = self.session.client
        return make("sagemaker-runtime", config=Config(retries={"mode": "standard", "total_max_attempts": 1}))


@contextmanager
def _platform(tell: Callable[[str], object]) -> Iterator[_Platform]:
    tell("starting an endpoint of simulated servers")
    with LocalCloud(settings=LocalSettings(data_plane=DataPlaneSettings(servers={"*": "simulated"}))) as cloud, _environment(cloud):
        session = boto3.Session()
        iam, s3, sagemaker, dynamodb = (cloud.client(service) for service in ("iam", "s3", "sagemaker", "dynamodb"))
        s3.create_bucket(Bucket=_BUCKET)
        for model, seconds in (("slow", 0.003), ("fast", 0.0)):
            s3.put_object(Bucket=_BUCKET, Key=f"models/{_target('acme', model)}", Body=_artifact(seconds))
        reader = _role(iam, "bench-endpoint", {"Service": "sagemaker.amazonaws.com"}, ["sts:AssumeRole"], ["s3:GetObject", "s3:ListBucket"])
        own = {"StringLike": {"sagemaker:TargetModel": "${aws:PrincipalTag/tenant}/*"}}
        role = _role(iam, _ROLE, {"AWS": cloud.account}, ["sts:AssumeRole", "sts:TagSession"], ["sagemaker:InvokeEndpoint"], own)
        container = {"Image": "bench:1", "Mode": "MultiModel", "ModelDataUrl": f"s3://{_BUCKET}/models/"}
        sagemaker.create_model(ModelName=_NAME, ExecutionRoleArn=reader, PrimaryContainer=container)
        variant = {"VariantName": "AllTraffic", "ModelName": _NAME, "InstanceType": "ml.m5.4xlarge", "InitialInstanceCount": 1}
        sagemaker.create_endpoint_config(EndpointConfigName=_NAME, ProductionVariants=[variant])
        sagemaker.create_endpoint(EndpointName=_NAME, EndpointConfigName=_NAME)
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=_NAME, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
        keys = [{"AttributeName": name, "AttributeType": "S"} for name in (PARTITION_KEY, SORT_KEY)]
        schema = [{"AttributeName": PARTITION_KEY, "KeyType": "HASH"}, {"AttributeName": SORT_KEY, "KeyType": "RANGE"}]
        dynamodb.create_table(TableName=_TABLE, AttributeDefinitions=keys, KeySchema=schema, BillingMode="PAY_PER_REQUEST")
        registry = DynamoRegistry(dynamodb_client(session), _TABLE)
        registry.write(Change(None, Tenant("acme", _NOW, _NOW, quotas=_RATE)))
        for model in ("slow", "fast"):
            registry.write(
                Change(None, Model("acme", model, 1, _NOW, _NOW, Route(_NAME, "AllTraffic", f"v1-{_DIGEST}", _target("acme", model))))
            )
        with Path(os.devnull).open("w", encoding="utf-8") as log:
            yield _Platform(cloud, session, role, log)


@contextmanager
def _environment(cloud: LocalCloud) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update({name: value for name, value in cloud.environment().items() if name.startswith("AWS_")})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _role(
    iam: Any, name: str, principal: dict[str, str], trusted: Sequence[str], actions: Sequence[str], condition: dict[str, Any] | None = None
) -> str:
    trust = {"Effect": "Allow", "Principal": principal, "Action": list(trusted)}
    arn: str = iam.create_role(RoleName=name, AssumeRolePolicyDocument=_document(trust))["Role"]["Arn"]
    statement: dict[str, Any] = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    if condition is not None:
        statement["Condition"] = condition
    iam.put_role_policy(RoleName=name, PolicyName="bench", PolicyDocument=_document(statement))
    return arn


def _document(statement: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _target(tenant: str, model: str) -> str:
    return f"{tenant}/{model}/v1-{_DIGEST}.tar.gz"


def _artifact(invoke_seconds: float) -> bytes:
    script = json.dumps({"invoke_seconds": invoke_seconds}).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("simulated.json")
        member.size = len(script)
        archive.addfile(member, io.BytesIO(script))
    return packed.getvalue()


def _warm(platform: _Platform, tell: Callable[[str], object]) -> Iterator[Figure]:
    """One caller, calls of both kinds in turn: a tenth of a millisecond of drift meets both alike."""
    raw, client = platform.raw(), platform.client()
    ratios: dict[str, list[tuple[float, float]]] = {}
    medians: dict[str, list[float]] = {}
    for model in ("slow", "fast"):
        target = _target("acme", model)

        def theirs(target: str = target) -> None:
            raw.invoke_endpoint(EndpointName=_NAME, TargetModel=target, ContentType="text/csv", Body=_BODY)["Body"].read()

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
    baseline = "boto3's invoke_endpoint on the same endpoint, interleaved"
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
