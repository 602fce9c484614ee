"""An artifact that is too large for one request: in parts over HTTP, broken off, continued, completed, served."""

import json
import random
import tarfile

import pytest
import xgboost

from mme_cli.demo.onboard import predict
from tests.e2e.support import problem, register, targz, wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def large(demo_models):
    """A model whose artifact has more than 8 MiB, and the demo's model that it predicts like."""
    folder, prepared = demo_models
    (model,) = (model for model in prepared if model.model == "iris-deep")
    with tarfile.open(folder / model.artifact) as archive:
        booster = xgboost.Booster(model_file=bytearray(archive.extractfile("xgboost-model").read()))
    booster.set_attr(note=random.Random(7).randbytes(9 << 20).hex())
    return targz((tarfile.TarInfo("xgboost-model"), bytes(booster.save_raw("ubj")))), model


def send(client, upload, artifact, *numbers):
    answers = []
    for part in upload["parts"]:
        if part["number"] in numbers:
            body = artifact[part["offset"] : part["offset"] + part["size_bytes"]]
            answers.append(client.upload(upload["method"], part["url"], body, part["headers"]).status)
    return answers


def test_a_large_artifact_goes_in_parts_continues_after_a_break_and_serves(platform, large):
    artifact, model = large
    platform.admin_client().expect((200, 201), "PUT", "/tenants/initech", {})
    client, row = platform.tenant_client("initech"), model.rows[0]
    first = register(client, "initech", "large", artifact, row)
    assert first.status == 201, first
    path = f"/tenants/initech/models/large/versions/{first.json()['version']}"
    upload = first.json()["upload"]
    assert [(part["number"], part["uploaded"]) for part in upload["parts"]] == [(1, False), (2, False)]
    assert send(client, upload, artifact[:-1] + bytes([artifact[-1] ^ 1]), 2) == [200]  # replaced below
    document = problem(client.call("POST", f"{path}/complete", b"{}", {"content-type": "application/json"}), 409, "upload-incomplete")
    assert (document["field"], document["value"]) == ("parts", "1")
    again = register(client, "initech", "large", artifact, row)
    assert (again.status, again.json()["version"]) == (200, first.json()["version"])
    upload = again.json()["upload"]
    assert [(part["number"], part["uploaded"]) for part in upload["parts"]] == [(1, False), (2, True)]
    short = {**upload["parts"][0], "size_bytes": upload["parts"][0]["size_bytes"] - 1, "headers": {}}
    assert send(client, {**upload, "parts": [short]}, artifact, 1) == [403]
    assert send(client, upload, artifact, 1, 2) == [200, 200]
    assert client.expect((200,), "POST", f"{path}/complete").json()["version"] == first.json()["version"]
    assert client.expect((200,), "POST", f"{path}/complete", {}).json()["size_bytes"] == len(artifact)
    wait_until(
        lambda: client.expect((200,), "GET", path).json()["state"] in {"active", "rejected"}, seconds=120, what="the end of admission"
    )
    shown = client.expect((200,), "GET", path).json()
    assert shown["state"] == "active", shown["reasons"]
    predictions, _answer, _seconds = predict(client, "initech", "large", model.rows)
    for predicted, expected in zip(predictions, model.expected, strict=True):
        assert predicted == pytest.approx(expected, abs=1e-6)


def test_parts_of_another_artifact_are_rejected_by_their_digest(platform, large):
    artifact, model = large
    platform.admin_client().expect((200, 201), "PUT", "/tenants/initech", {})
    client = platform.tenant_client("initech")
    changed = bytearray(artifact)
    changed[len(artifact) // 2] ^= 1
    registered = register(client, "initech", "changed", bytes(changed), model.rows[0]).json()
    assert send(client, registered["upload"], artifact, 1, 2) == [200, 200]
    path = f"/tenants/initech/models/changed/versions/{registered['version']}"
    client.expect((200,), "POST", f"{path}/complete")
    wait_until(lambda: client.expect((200,), "GET", path).json()["state"] == "rejected", seconds=120, what="the rejection")
    assert "sha256" in {reason["rule"] for reason in client.expect((200,), "GET", path).json()["reasons"]}


def test_nobody_completes_another_tenants_upload(platform, large):
    platform.admin_client().expect((200, 201), "PUT", "/tenants/globex", {})
    path = "/tenants/initech/models/large/versions/v1-0123456789ab/complete"
    problem(platform.tenant_client("globex").call("POST", path, json.dumps({}).encode()), 403, "forbidden")
