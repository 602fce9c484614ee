"""What several tests of the run time share: archives, versions and a clock that nobody waits for."""

from __future__ import annotations

import base64
import hashlib
import importlib
import io
import json
import tarfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from mme_facts.environment import Pool
from mme_facts.table import DEDICATED_INDEX, DEDICATED_KEY, MOVING_INDEX, MOVING_KEY, PARTITION_KEY, SORT_KEY, UPDATED_AT
from mme_local import LocalCloud
from mme_tenancy.aws.clients import dynamodb_client, s3_client
from mme_tenancy.testing import FakeClock, booster
from mme_tenancy.versions import Sample, State, Version

NOW = "2026-11-29T12:00:00.000Z"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def pool() -> Pool:
    return Pool("shared", "xgboost", "endpoint-a", "AllTraffic")


@pytest.fixture(scope="session")
def make_archive() -> Callable[..., bytes]:
    """Makes a .tar.gz from names and contents, as Python's tarfile writes it; entries may also be ready TarInfo objects."""

    def make(*entries: tuple[str, bytes] | tarfile.TarInfo, tar_format: int = tarfile.PAX_FORMAT, compress: str = "gz") -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode=f"w:{compress}", format=tar_format) as archive:
            for entry in entries:
                if isinstance(entry, tarfile.TarInfo):
                    archive.addfile(entry)
                else:
                    name, content = entry
                    header = tarfile.TarInfo(name)
                    header.size = len(content)
                    archive.addfile(header, io.BytesIO(content))
        return buffer.getvalue()

    return make


@pytest.fixture(scope="session")
def artifact(make_archive: Callable[..., bytes]) -> bytes:
    """A right artifact."""
    return make_archive(("xgboost-model", booster()))


@pytest.fixture(scope="session")
def make_version() -> Callable[..., Version]:
    """Makes a version's record of tenant acme's model iris."""

    def make(state: State = State.AWAITING_UPLOAD, *, number: int = 1, artifact: bytes = b"artifact", **changes: object) -> Version:
        fields: dict[str, object] = {
            "tenant": "acme",
            "model": "iris",
            "number": number,
            "sha256": hashlib.sha256(artifact).hexdigest(),
            "size_bytes": len(artifact),
            "framework": "xgboost",
            "pool": "shared",
            "sample": Sample("text/csv", b"5.1,3.5,1.4,0.2", "text/csv"),
            "state": state,
            "created_at": NOW,
            "updated_at": NOW,
        }
        return Version(**{**fields, **changes})  # type: ignore[arg-type]

    return make


@pytest.fixture
def cloud_session(module_cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> boto3.Session:
    """A session against the local cloud, found by the environment as inside Lambda."""
    for name, value in module_cloud.environment().items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    return boto3.Session()


@pytest.fixture
def table_name(cloud_session: boto3.Session) -> str:
    """A new registry table in the local cloud."""
    name = f"registry-{uuid.uuid4().hex[:12]}"
    client = dynamodb_client(cloud_session)
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": attribute, "AttributeType": "S"}
            for attribute in (PARTITION_KEY, SORT_KEY, MOVING_KEY, UPDATED_AT, DEDICATED_KEY)
        ],
        KeySchema=[{"AttributeName": PARTITION_KEY, "KeyType": "HASH"}, {"AttributeName": SORT_KEY, "KeyType": "RANGE"}],
        GlobalSecondaryIndexes=[
            {
                "IndexName": index,
                "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
            for index, key, sort in ((MOVING_INDEX, MOVING_KEY, UPDATED_AT), (DEDICATED_INDEX, DEDICATED_KEY, PARTITION_KEY))
        ],
    )
    return name


@pytest.fixture
def bucket_name(cloud_session: boto3.Session) -> str:
    """A new artifacts' bucket in the local cloud."""
    name = f"artifacts-{uuid.uuid4().hex[:12]}"
    s3_client(cloud_session).create_bucket(Bucket=name)
    return name


class Context:
    """Lambda's context object, as far as handlers use it."""

    function_name = "function"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


@pytest.fixture
def context() -> Context:
    return Context(30)


@pytest.fixture(scope="session")
def load_event() -> Callable[..., dict[str, Any]]:
    """Loads an event file; ``names`` replace path parameters, ``body`` and ``headers`` the request's, ``query`` its parameters."""

    def load(
        name: str,
        *,
        names: dict[str, str] | None = None,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        query: dict[str, str] | None = None,
        method: str | None = None,
    ) -> dict[str, Any]:
        event: dict[str, Any] = json.loads((Path(__file__).parent / "events" / f"{name}.json").read_text("utf-8"))
        if names:
            event["pathParameters"] |= names
            event["path"] = event["resource"].format(**event["pathParameters"])
        if body is not None:
            event |= {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
        if headers:
            event["headers"] |= headers
            event["multiValueHeaders"] |= {header: [value] for header, value in headers.items()}
        if query:
            event["queryStringParameters"] = query
            event["multiValueQueryStringParameters"] = {key: [value] for key, value in query.items()}
        if method:
            event["httpMethod"] = method
        return event

    return load


@pytest.fixture
def log_lines(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[dict[str, Any]]]:
    """The lines that a service's logger wrote since the test began."""
    streams: dict[str, io.StringIO] = {}
    for service in ("onboarding", "admission"):
        streams[service] = io.StringIO()
        (handler,) = importlib.import_module(f"mme_tenancy.handlers.{service}").logger.handlers
        monkeypatch.setattr(handler, "stream", streams[service])
    return lambda service: [json.loads(line) for line in streams[service].getvalue().splitlines()]
