"""What the local cloud costs: its start, a deployment with the real CLI, and its gateway in front of a model server."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil  # type: ignore[import-untyped]

from benchmarks.figure import Figure
from mme_cli.cdk import deploy
from mme_cli.cloud import running_cloud
from mme_cli.local_state import LocalState
from mme_local import Credentials, LocalCloud, LocalSettings
from mme_local.dataplane import DataPlaneSettings

__all__ = ["Plain", "measure", "plain_endpoint"]

_PROJECT = Path(__file__).parents[1]
_UP_RUNS = 5
_UP_BOUND_SECONDS = 2.0
_DEPLOY_BOUND_SECONDS = 30.0
_CALLERS = 8
_WARM_UP = 2000
_LATENCY_REQUESTS = 3000
_ROUND_REQUESTS = 1000
_ROUNDS = 15
_ADDED_BOUND_MS = 2.0
_THROUGHPUT_BOUND = 0.4

_ENDPOINT, _BUCKET, _TARGET_MODEL = "plain", "plain-models", "acme/plain/v1.tar.gz"
_BODY = b"5.1,3.5,1.4,0.2"
_TRUST = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
_READ = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}


def measure(tell: Callable[[str], object]) -> Iterator[Figure]:
    """The figures of the local cloud."""
    yield _up(tell)
    yield _deploy(tell)
    yield from _gateway(tell)


def _up(tell: Callable[[str], object]) -> Figure:
    """From the start of ``mme up`` until the cloud answers."""
    seconds = []
    for number in range(_UP_RUNS):
        tell(f"mme up, run {number + 1} of {_UP_RUNS}")
        with TemporaryDirectory() as folder:
            started = time.perf_counter()
            process = subprocess.Popen([sys.executable, "-m", "mme_cli.main", "up"], cwd=folder, stdout=subprocess.DEVNULL)
            try:
                _wait_until_healthy(Path(folder) / ".mme", process)
                seconds.append(time.perf_counter() - started)
            finally:
                process.send_signal(signal.SIGINT)
                process.wait()
    return Figure(
        "up_seconds",
        statistics.median(seconds),
        "s",
        _UP_BOUND_SECONDS,
        "none: wall time until the emulator's health and our status answer",
        {"runs": _UP_RUNS, "processes": "fresh", "endpoints": 0, "least": min(seconds), "most": max(seconds)},
    )


def _wait_until_healthy(folder: Path, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with suppress(Exception):
            state = LocalState.read(folder)
            for path in ("/_ministack/health", "/_mme/status"):
                with urllib.request.urlopen(state.endpoint_url + path, timeout=5) as answer:  # noqa: S310 - our own http URL
                    answer.read()
            return
        time.sleep(0.01)
    raise RuntimeError(f"mme up ended with status {process.returncode}")


def _deploy(tell: Callable[[str], object]) -> Figure:
    """The reference app into an empty local cloud."""
    tell("cdk bootstrap and cdk deploy")
    with running_cloud() as state:
        started = time.perf_counter()
        deployed = deploy(state, _PROJECT, lambda _line: None)
        seconds = time.perf_counter() - started
    if "ApiUrl" not in deployed.outputs:
        raise RuntimeError(f"the deployment has no API: {sorted(deployed.outputs)}")
    return Figure(
        "deploy_seconds",
        seconds,
        "s",
        _DEPLOY_BOUND_SECONDS,
        "none: wall time of the real CDK CLI",
        {"runs": 1, "commands": "cdk bootstrap, cdk deploy --all", "app": "app.py", "cloud": "running and empty"},
    )


@dataclass(frozen=True, slots=True)
class Plain:
    """An endpoint of one model server with the plain handler, its model loaded.

    Attributes:
        cloud: where it runs.
        server_port: where the model server itself listens.
        server_path: the model's path there.
    """

    cloud: LocalCloud
    server_port: int
    server_path: str

    def signed_request(self, credentials: Credentials | None = None) -> bytes:
        """The bytes of an InvokeEndpoint, signed now."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials as SigningKeys

        keys = credentials or self.cloud.admin
        path = f"/endpoints/{_ENDPOINT}/invocations"
        headers = {"Content-Type": "text/csv", "X-Amzn-SageMaker-Target-Model": _TARGET_MODEL}
        request = AWSRequest(method="POST", url=self.cloud.endpoint_url + path, data=_BODY, headers=headers)
        SigV4Auth(SigningKeys(keys.access_key_id, keys.secret_access_key, keys.session_token), "sagemaker", self.cloud.region).add_auth(
            request
        )
        return _request(path, self.cloud.endpoint_url.removeprefix("http://"), dict(request.headers))

    def direct_request(self) -> bytes:
        """The bytes of the call that the gateway makes to the model server for it."""
        headers = {"X-Amzn-SageMaker-Target-Model": _TARGET_MODEL, "Content-Type": "text/csv"}
        return _request(self.server_path, f"127.0.0.1:{self.server_port}", headers)


def plain_endpoint(cloud: LocalCloud) -> Plain:
    """Make the endpoint in a cloud whose settings name the plain handler, see `plain_settings`."""
    iam, s3, sagemaker = (cloud.client(service) for service in ("iam", "s3", "sagemaker"))
    role = iam.create_role(RoleName="plain", AssumeRolePolicyDocument=_policy(_TRUST))["Role"]["Arn"]
    iam.put_role_policy(RoleName="plain", PolicyName="read", PolicyDocument=_policy(_READ))
    s3.create_bucket(Bucket=_BUCKET)
    s3.put_object(Bucket=_BUCKET, Key=f"models/{_TARGET_MODEL}", Body=_artifact())
    container = {"Image": "plain:1", "Mode": "MultiModel", "ModelDataUrl": f"s3://{_BUCKET}/models/"}
    sagemaker.create_model(ModelName=_ENDPOINT, ExecutionRoleArn=role, PrimaryContainer=container)
    variant = {"VariantName": "AllTraffic", "ModelName": _ENDPOINT, "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName=_ENDPOINT, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=_ENDPOINT, EndpointConfigName=_ENDPOINT)
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=_ENDPOINT, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    runtime = cloud.client("sagemaker-runtime")
    runtime.invoke_endpoint(EndpointName=_ENDPOINT, TargetModel=_TARGET_MODEL, ContentType="text/csv", Body=_BODY)
    (instance,) = cloud.status()["endpoints"][0]["instances"]
    listening = [entry for entry in psutil.Process(instance["pid"]).net_connections("tcp") if entry.status == psutil.CONN_LISTEN]
    port = int(listening[0].laddr.port)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/models", timeout=10) as answer:
        (model,) = json.load(answer)["models"]
    return Plain(cloud, port, f"/models/{model['modelName']}/invoke")


def plain_settings() -> LocalSettings:
    """The default settings and the plain handler."""
    handler = f"{Path(__file__).with_name('plain_handler.py')}:handle"
    return LocalSettings(data_plane=DataPlaneSettings(handlers={"plain": handler}))


def _gateway(tell: Callable[[str], object]) -> Iterator[Figure]:
    """The same call through the gateway and straight to the model server."""
    tell("starting an endpoint with the plain handler")
    with LocalCloud(settings=plain_settings()) as cloud:
        plain = plain_endpoint(cloud)
        tell(f"{_LATENCY_REQUESTS} calls each by one caller, {_ROUNDS} rounds of {_ROUND_REQUESTS} by {_CALLERS}")
        document = _raw_client(plain)
    through, direct = (statistics.median(values) for values in document["latencies"])
    ratios = [ours / theirs for ours, theirs in zip(*document["throughputs"], strict=True)]
    conditions = {
        "client": "raw keep-alive connections, signed beforehand, in a process of its own",
        "model_server": "multi-model-server, plain handler, one instance, one worker",
        "cores": os.cpu_count(),
    }
    baseline = "the same call straight to the model server, interleaved"
    yield Figure(
        "gateway_added_ms_p50",
        through - direct,
        "ms",
        _ADDED_BOUND_MS,
        baseline,
        {**conditions, "callers": 1, "requests": _LATENCY_REQUESTS, "through_ms_p50": through, "direct_ms_p50": direct},
    )
    yield Figure(
        "gateway_throughput_ratio",
        statistics.median(ratios),
        "ratio",
        _THROUGHPUT_BOUND,
        baseline,
        {
            **conditions,
            "callers": _CALLERS,
            "rounds": _ROUNDS,
            "requests_a_round": _ROUND_REQUESTS,
            "least": min(ratios),
            "most": max(ratios),
            "through_per_s": statistics.median(document["throughputs"][0]),
            "direct_per_s": statistics.median(document["throughputs"][1]),
        },
        at_least=True,
    )


def _raw_client(plain: Plain) -> dict[str, Any]:
    targets = [
        (int(plain.cloud.endpoint_url.rpartition(":")[2]), plain.signed_request()),
        (plain.server_port, plain.direct_request()),
    ]
    order = {
        "targets": [{"port": port, "request": base64.b64encode(request).decode()} for port, request in targets],
        "callers": _CALLERS,
        "warm_up": _WARM_UP,
        "latency_requests": _LATENCY_REQUESTS,
        "round_requests": _ROUND_REQUESTS,
        "rounds": _ROUNDS,
    }
    script = Path(__file__).with_name("raw_client.py")
    done = subprocess.run([sys.executable, "-I", str(script)], input=json.dumps(order), text=True, stdout=subprocess.PIPE, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _policy(statement: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _artifact() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("nothing"), io.BytesIO())
    return packed.getvalue()


def _request(path: str, host: str, headers: dict[str, str]) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {host}",
        *(f"{name}: {value}" for name, value in headers.items()),
        f"Content-Length: {len(_BODY)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + _BODY
