"""The three functions by their real entry points, wired from the environment: DynamoDB and S3 of the local cloud, and a small
server in SageMaker's place."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mme_facts.environment import dump_pools
from mme_tenancy.aws.clients import s3_client
from mme_tenancy.handlers import admission, invocation, onboarding
from mme_tenancy.testing import booster


class Endpoint(ThreadingHTTPServer):
    """Cold on the first request to a model; then the body comes back as the answer."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen = set()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body, target = self.rfile.read(int(self.headers["Content-Length"])), self.headers["X-Amzn-SageMaker-Target-Model"]
        cold = target not in self.server.seen
        self.server.seen.add(target)
        headers = {"x-amzn-errortype": "ModelNotReadyException"} if cold else {"Content-Type": "text/csv"}
        answer = b"{}" if cold else body
        self.send_response(429 if cold else 200)
        for name, value in {**headers, "Content-Length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def functions(cloud_session, table_name, bucket_name, pool, monkeypatch):
    """The environment of the deployed functions, and cold starts."""
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        variables = {
            "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": f"http://127.0.0.1:{server.server_address[1]}",
            "MME_TABLE_NAME": table_name,
            "MME_BUCKET_NAME": bucket_name,
            "MME_MODELS_PREFIX": "models/",
            "MME_MAX_ARTIFACT_BYTES": "1000000",
            "MME_RETIRED_SECONDS": "604800",
            "MME_POOLS": dump_pools([pool]),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        for function in (onboarding, admission, invocation):
            function._application.cache_clear()
        yield
        for function in (onboarding, admission, invocation):
            function._application.cache_clear()
        server.shutdown()
        thread.join()


@pytest.fixture
def upload(functions, load_event, context, bucket_name, cloud_session):
    """Registers and uploads an artifact; returns the version's id and the event that S3 sends."""

    def upload(artifact):
        registration = {
            "sha256": hashlib.sha256(artifact).hexdigest(),
            "size_bytes": len(artifact),
            "framework": "xgboost",
            "sample": {"content_type": "text/csv", "body": "5.1,3.5,1.4,0.2"},
        }
        event = load_event("register", body=json.dumps(registration).encode(), headers={"Idempotency-Key": "k-1"})
        registered = json.loads(onboarding.handler(event, context)["body"])
        to = registered["upload"]
        with urllib.request.urlopen(urllib.request.Request(to["url"], artifact, to["headers"], method=to["method"])) as answer:
            etag = answer.headers["ETag"].strip('"')
        created = load_event("object_created")
        created["detail"]["bucket"]["name"] = bucket_name
        key = f"incoming/acme/iris/{registered['version']}.tar.gz"
        created["detail"]["object"] |= {"key": key, "size": len(artifact), "etag": etag}
        return registered["version"], created

    return upload


def test_from_registration_to_prediction(upload, functions, load_event, context, artifact, bucket_name, cloud_session):
    assert onboarding.handler(load_event("put_tenant"), context)["statusCode"] == 201
    version, created = upload(artifact)

    refused = invocation.handler(load_event("invoke"), context)
    assert (refused["statusCode"], json.loads(refused["body"])["type"]) == (409, "urn:mme:problem:no-active-version")

    assert admission.handler(created, context)["state"] == "active"
    assert admission.handler(created, context) == {"ignored": "nothing is left to do"}

    shown = json.loads(onboarding.handler(load_event("get_version", names={"version": version}), context)["body"])
    assert (shown["state"], shown["active"]) == ("active", True)
    assert shown["timings"]["first_invocation_seconds"] > 0.05
    answered = invocation.handler(load_event("invoke"), context)
    assert (answered["statusCode"], base64.b64decode(answered["body"])) == (200, b"5.1,3.5,1.4,0.2")
    assert answered["headers"]["X-Mme-Version"] == version
    again = onboarding.handler(load_event("register"), context)
    assert again["statusCode"] == 201  # another artifact: the next version
    listed = json.loads(onboarding.handler(load_event("list_versions"), context)["body"])["versions"]
    assert [item["state"] for item in listed] == ["awaiting_upload", "active"]


def test_a_bad_artifact_is_rejected_and_nothing_lies_under_models(
    upload, functions, load_event, context, make_archive, bucket_name, cloud_session
):
    onboarding.handler(load_event("put_tenant"), context)
    version, created = upload(make_archive(("xgboost-model", booster()), ("../evil", b"x")))
    assert admission.handler(created, context)["state"] == "rejected"
    shown = json.loads(onboarding.handler(load_event("get_version", names={"version": version}), context)["body"])
    assert [(reason["rule"], reason["member"]) for reason in shown["reasons"]] == [("parent-path", "../evil")]
    keys = [item["Key"] for item in s3_client(cloud_session).list_objects_v2(Bucket=bucket_name)["Contents"]]
    assert keys == [f"incoming/acme/iris/{version}.tar.gz"]


def test_the_key_of_a_registration_is_replayed_from_the_table(functions, load_event, context):
    onboarding.handler(load_event("put_tenant"), context)
    answers = [onboarding.handler(load_event("register", headers={"Idempotency-Key": "k-2"}), context) for _ in range(2)]
    assert answers[0]["body"] == answers[1]["body"]
    assert [answer["statusCode"] for answer in answers] == [201, 201]
    other = load_event("register", names={"model": "wine"}, headers={"Idempotency-Key": "k-2"})
    assert onboarding.handler(other, context)["statusCode"] == 409
