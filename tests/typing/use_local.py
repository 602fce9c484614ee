"""Type-checked only: a user's test starts a local cloud."""

from __future__ import annotations

from pathlib import Path

from mme_local import CloudStartError, Credentials, LocalCloud, LocalSettings, cdk_environment

try:
    with LocalCloud(directory=Path("cloud"), settings=LocalSettings(instance_limit=4)) as cloud:
        admin: Credentials = cloud.admin
        variables: dict[str, str] = cloud.environment(admin) | cdk_environment(Path("home"))
        buckets = cloud.client("s3", admin).list_buckets()
        endpoints: list[dict[str, object]] = cloud.status()["endpoints"]
        cloud.reset()
except CloudStartError as error:
    raise SystemExit(str(error)) from error
