"""One tenant's way through the API over HTTP: register a version, upload the artifact, wait until it is active, predict."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from mme_cli.errors import CommandError
from mme_cli.signed_http import Answer, SignedClient

__all__ = ["Activated", "onboard", "predict"]

_FAILED_STATES = ("rejected", "expired", "retired", "purged")
"""What a version never leaves for ``active``; ``ready`` it leaves when its route flips."""
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Activated:
    """A version that serves.

    Attributes:
        version: its id.
        first_invocation_seconds: what the platform measured for the invocation of its sample, which loaded it.
    """

    version: str
    first_invocation_seconds: float


def onboard(
    client: SignedClient, tenant: str, model: str, artifact: bytes, sample: str, *, deadline_seconds: float, tell: Callable[[str], None]
) -> Activated:
    """Bring one artifact of one model to ``active``.

    Args:
        client: signs as the tenant.
        tenant: tenant id.
        model: model id.
        artifact: the ``.tar.gz``.
        sample: one CSV row the model can answer.
        deadline_seconds: how long admission may take.
        tell: is called with the version's state as it changes.

    Raises:
        CommandError: a call failed, the version was rejected, or the deadline passed.
    """
    started = time.monotonic()
    versions = f"/tenants/{tenant}/models/{model}/versions"
    digest = hashlib.sha256(artifact).hexdigest()
    registered = client.expect(
        (200, 201),
        "POST",
        versions,
        {
            "sha256": digest,
            "size_bytes": len(artifact),
            "framework": "xgboost",
            "sample": {"content_type": "text/csv", "body": base64.b64encode(sample.encode()).decode(), "encoding": "base64"},
        },
        {"idempotency-key": f"{model}-{digest[:32]}"},
    ).json()
    upload = registered["upload"]
    assert isinstance(upload, dict)
    put = client.upload(upload["method"], upload["url"], artifact, upload["headers"])
    if put.status != 200:
        raise CommandError(f"the upload of {tenant}/{model} answered {put.status}: {put.body.decode('utf-8', 'replace')[:300]}")
    seen = None
    while True:
        document = client.expect((200,), "GET", f"{versions}/{registered['version']}").json()
        if document["state"] != seen:
            seen = str(document["state"])
            tell(seen)
        if seen == "active":
            timings = document["timings"]
            assert isinstance(timings, dict)
            return Activated(str(registered["version"]), timings["first_invocation_seconds"])
        if seen in _FAILED_STATES:
            raise CommandError(f"{tenant}/{model} {registered['version']} became {seen}: {document['reasons']}")
        if time.monotonic() - started > deadline_seconds:
            raise CommandError(f"{tenant}/{model} {registered['version']} is still {seen} after {deadline_seconds:.0f} s")
        time.sleep(_POLL_SECONDS)


def predict(client: SignedClient, tenant: str, model: str, rows: list[str]) -> tuple[list[list[float]], Answer, float]:
    """Invoke a model through the API; returns its predictions, the answer, and the seconds it took; raises `CommandError`."""
    path = f"/tenants/{tenant}/models/{model}/invocations"
    started = time.monotonic()
    answer = client.call("POST", path, "\n".join(rows).encode(), {"content-type": "text/csv", "accept": "application/json"})
    seconds = time.monotonic() - started
    if answer.status != 200:
        raise CommandError(f"POST {path} answered {answer.status}: {answer.body.decode('utf-8', 'replace')[:300]}")
    # A list with one number, or one list of numbers, a row: the answer of SageMaker's XGBoost image.
    predictions = json.loads(answer.body)
    return [row if isinstance(row, list) else [row] for row in predictions], answer, seconds
