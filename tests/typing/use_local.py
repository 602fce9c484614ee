"""Type-checked only: a user's test starts a local cloud."""

from __future__ import annotations

from pathlib import Path

from mme_local import (
    CloudStartError,
    ControlPlaneSettings,
    Credentials,
    DuplicateEvent,
    FailDownload,
    FailInvoke,
    FailLoad,
    Fault,
    FaultError,
    FaultsClient,
    FaultState,
    FreezeInstance,
    InsufficientCapacity,
    JumpClock,
    KillInstance,
    LocalCloud,
    LocalSettings,
    LoseEvent,
    SlowDownload,
    SlowInvoke,
    SlowLoad,
    ThrottleControl,
    ThrottleInvoke,
    cdk_environment,
)

try:
    with LocalCloud(
        directory=Path("cloud"), settings=LocalSettings(instance_limit=4, control_plane=ControlPlaneSettings(creating_seconds=60))
    ) as cloud:
        admin: Credentials = cloud.admin
        variables: dict[str, str] = cloud.environment(admin) | cdk_environment(Path("home"))
        buckets = cloud.client("s3", admin).list_buckets()
        endpoints: list[dict[str, object]] = cloud.status()["endpoints"]
        calls: dict[str, int] = cloud.calls()["calls"].get("s3", {})
        cloud.reset()
except CloudStartError as error:
    raise SystemExit(str(error)) from error

every: list[Fault] = [
    KillInstance(endpoint="shared", count=1),
    FreezeInstance(instance="AllTraffic-1", expires_seconds=30),
    SlowDownload(model="acme/*", seconds=2, bytes_per_second=1e6),
    FailDownload(error="unavailable", probability=0.1, seed=7),
    SlowLoad(seconds=3),
    FailLoad(status=507, count=2),
    ThrottleInvoke(model="acme/*"),
    SlowInvoke(seconds=1),
    FailInvoke(error="InternalDependencyException"),
    ThrottleControl(service="sagemaker", operation="Describe*"),
    InsufficientCapacity(endpoint="shared"),
    LoseEvent(detail_type="SageMaker Endpoint State Change"),
    DuplicateEvent(copies=3),
    JumpClock(seconds=3600),
]
with LocalCloud(settings=LocalSettings(faults=True)) as faulty:
    client: FaultsClient = faulty.faults
    try:
        states: list[FaultState] = [client.put(fault) for fault in every]
    except FaultError as error:
        raise SystemExit(str(error)) from error
    with client.during(FailLoad(model="acme/*")) as fault:
        struck: int = client.get(fault.id).struck
