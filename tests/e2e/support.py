"""What the end-to-end tests share."""

import hashlib
import io
import json
import tarfile
import time
from pathlib import Path

from mme_cli.demo.onboard import onboard
from mme_cli.platform import endpoint_status

PROJECT = Path(__file__).resolve().parents[2]


def wait_until(condition, *, seconds=60.0, every=0.05, what="the condition"):
    """Poll ``condition`` every so many seconds until it is true; its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come within {seconds} s"
        time.sleep(every)
    return value


def targz(*members):
    """A ``.tar.gz`` of ``(TarInfo, content)`` members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for info, content in members:
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def only_endpoint(platform):
    """Status of the shared endpoint."""
    return endpoint_status(platform.state)


def onboard_model(client, tenant, model, artifact, sample):
    """Bring an artifact to ``active``; its version."""
    return onboard(client, tenant, model, artifact, sample, deadline_seconds=120, tell=lambda _state: None).version


def register(client, tenant, model, artifact, sample="1,2,3,4", **headers):
    """Register a version of a model; the answer, whatever it is."""
    body = {
        "sha256": hashlib.sha256(artifact).hexdigest(),
        "size_bytes": len(artifact),
        "framework": "xgboost",
        "sample": {"content_type": "text/csv", "body": sample},
    }
    path = f"/tenants/{tenant}/models/{model}/versions"
    return client.call("POST", path, json.dumps(body).encode(), {"content-type": "application/json", **headers})


def upload(client, registered, artifact):
    """Upload as a registration's answer says; the store's answer."""
    signed = registered["upload"]
    return client.upload(signed["method"], signed["url"], artifact, signed["headers"])


def problem(answer, status, slug):
    """The problem document of an answer, which must be this one."""
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json"), answer
    document = answer.json()
    assert (document["status"], document["type"]) == (status, f"urn:mme:problem:{slug}"), document
    return document
