"""The admission function's process is really killed, at random moments: a retry or the sweep finishes every version."""

import contextlib
import io
import json
import os
import random
import tarfile
import time
import urllib.request
from contextlib import closing

import psutil
import pytest

from mme_cli.demo.onboard import predict
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.sweeping import DynamoSweepIndex, EventAdmissions, S3SweepObjects
from mme_tenancy.clock import SystemClock
from mme_tenancy.sweep import Sweeper, SweepRules
from tests.e2e.support import onboard_model, register, targz, upload, wait_until

pytestmark = pytest.mark.e2e

KILLS, KILLS_OF_ALL_ATTEMPTS = 20, 5
TENANT = "killed"
ENDED = {"active", "rejected", "expired"}


@pytest.fixture(scope="module")
def tenant(platform):
    platform.admin_client().expect((200, 201), "PUT", f"/tenants/{TENANT}", {})
    return platform.tenant_client(TENANT)


@pytest.fixture(scope="module")
def admission(platform):
    """Name and dead-letter queue of the admission function."""
    with closing(platform.client("lambda")) as functions:
        found = [
            function["FunctionName"]
            for page in functions.get_paginator("list_functions").paginate()
            for function in page["Functions"]
            if function["Handler"] == "mme_tenancy.handlers.admission.handler"
        ]
        (name,) = found
        target = functions.get_function_configuration(FunctionName=name)["DeadLetterConfig"]["TargetArn"]
    with closing(platform.client("sqs")) as queues:
        return name, queues.get_queue_url(QueueName=target.rpartition(":")[2])["QueueUrl"]


def workers(platform, name):
    """The processes that run the function in this cloud; others may run beside it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(f"ministack-lambda-{name}-" in part for part in process.cmdline()):
                variables = process.environ()
                if platform.state.endpoint_url in (variables.get("AWS_ENDPOINT_URL"), f"http://127.0.0.1:{variables.get('GATEWAY_PORT')}"):
                    found.append(process)
    return found


def kill(platform, name):
    """Kill the function's processes, as the kernel would; how many there were."""
    killed = 0
    for process in workers(platform, name):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
            killed += 1
    return killed


def heavier(artifact, note):
    """The same model in another artifact, so large that its inspection takes a while."""
    with tarfile.open(fileobj=io.BytesIO(artifact)) as archive:
        (member,) = [member for member in archive if member.isreg()]
        content = archive.extractfile(member).read()
    return targz((member, content), (tarfile.TarInfo(f"docs/{note}"), os.urandom(1 << 20)))


def show(tenant, model, version):
    return tenant.expect((200,), "GET", f"/tenants/{TENANT}/models/{model}/versions/{version}").json()


def sweep(platform):
    """A tick of the sweep, which takes for stuck what has stayed as it is for a moment."""
    dynamodb, table = platform.client("dynamodb"), platform.state.output("TableName")
    bucket = platform.state.output("BucketName")
    return Sweeper(
        DynamoRegistry(dynamodb, table),
        DynamoSweepIndex(dynamodb, table),
        S3SweepObjects(platform.client("s3"), bucket, "models/"),
        EventAdmissions(platform.client("events"), bucket),
        SystemClock(),
        SweepRules(stuck_seconds=0.5, longest_rest_seconds=0.5),
    ).tick(deadline=time.monotonic() + 60)


def test_a_killed_admission_is_finished_by_a_retry_or_by_the_sweep(platform, tenant, admission, demo_models):
    name, _queue = admission
    folder, prepared = demo_models
    plain, row = (folder / prepared[0].artifact).read_bytes(), prepared[0].rows[0]
    onboard_model(tenant, TENANT, "warm-up", plain, row)
    started = time.monotonic()
    onboard_model(tenant, TENANT, "measured", heavier(plain, "measured"), row)
    usual_seconds = time.monotonic() - started
    dice, kills, cut_at = random.Random(20261130), 0, []
    for number in range(4 * KILLS):
        if kills == KILLS:
            break
        model, artifact = f"model-{number}", heavier(plain, f"{number}")
        registered = register(tenant, TENANT, model, artifact, row).json()
        assert upload(tenant, registered, artifact).status == 200
        # The moment is what is random here; there is no condition to wait for.
        moment = time.monotonic() + dice.uniform(0, usual_seconds)
        wait_until(lambda: time.monotonic() >= moment)  # noqa: B023 - called at once
        killed = kill(platform, name)
        state = show(tenant, model, registered["version"])["state"]
        if killed and state not in ENDED:
            kills += 1
            cut_at.append(state)
            if kills <= KILLS_OF_ALL_ATTEMPTS:
                finish_by_sweep(platform, tenant, admission, model, registered["version"])
        wait_until(lambda: show(tenant, model, registered["version"])["state"] == "active", seconds=90, what=f"{model} active")  # noqa: B023
        predictions, answer, _seconds = predict(tenant, TENANT, model, prepared[0].rows)
        assert answer.headers["x-mme-version"] == registered["version"]
        assert predictions[0] == pytest.approx(prepared[0].expected[0], abs=1e-6)
    assert kills == KILLS
    assert len(set(cut_at)) >= 2, cut_at
    models = tenant.expect((200,), "GET", f"/tenants/{TENANT}/models?limit=100").json()["models"]
    assert all(item["active_version"] for item in models)
    s3, bucket = platform.client("s3"), platform.state.output("BucketName")
    stored = s3.list_objects_v2(Bucket=bucket, Prefix=f"models/{TENANT}/")["Contents"]
    assert {item["Key"].split("/")[2] for item in stored} == {item["model"] for item in models}
    assert len(stored) == len(models)


def finish_by_sweep(platform, tenant, admission, model, version):
    """Kill the retries, too, until the event is a dead letter, and let the sweep bring the version on."""
    name, queue = admission
    sqs = platform.client("sqs")

    def dead():
        kill(platform, name)
        for message in sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", []):
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
            if f"/{model}/" in json.dumps(message["Body"]):
                return True
        return show(tenant, model, version)["state"] in ENDED

    wait_until(dead, seconds=60, what="the dead letter")

    def resumed():
        done = sweep(platform)
        assert done.failed == 0, done
        return done.resumed or show(tenant, model, version)["state"] in ENDED

    wait_until(resumed, seconds=30, what="the sweep's resumption")


def test_a_model_that_cannot_answer_its_sample_is_rejected_and_its_artifact_is_deleted_by_the_functions_own_right(
    platform, tenant, demo_models
):
    folder, prepared = demo_models
    artifact = heavier((folder / prepared[0].artifact).read_bytes(), "rejected")
    registered = register(tenant, TENANT, "rejected", artifact, "no,numbers").json()
    assert upload(tenant, registered, artifact).status == 200
    document = wait_until(
        lambda: (found := show(tenant, "rejected", registered["version"]))["state"] == "rejected" and found,
        seconds=90,
        what="the rejection",
    )
    assert [reason["rule"] for reason in document["reasons"]] == ["sample-invocation"]
    s3, bucket = platform.client("s3"), platform.state.output("BucketName")
    listed = s3.list_objects_v2
    wait_until(lambda: "Contents" not in listed(Bucket=bucket, Prefix=f"models/{TENANT}/rejected/"), what="the deletion")
    model = tenant.expect((200,), "GET", f"/tenants/{TENANT}/models/rejected").json()
    assert model["active_version"] is None


def test_an_admission_makes_nine_calls(platform, tenant, demo_models):
    def calls():
        with urllib.request.urlopen(f"{platform.state.endpoint_url}/_mme/calls", timeout=10) as answer:
            return json.load(answer)["calls"]

    folder, prepared = demo_models
    artifact = heavier((folder / prepared[0].artifact).read_bytes(), "counted")
    registered = register(tenant, TENANT, "counted", artifact, prepared[0].rows[0]).json()
    before = calls()
    assert upload(tenant, registered, artifact).status == 200
    wait_until(lambda: show(tenant, "counted", registered["version"])["state"] == "active", seconds=90, what="active")
    made = {
        f"{service}:{operation}": count - before.get(service, {}).get(operation, 0)
        for service, operations in calls().items()
        for operation, count in operations.items()
    }
    polling = {"dynamodb:GetItem", "lambda:Invoke", "execute-api:GET"}
    assert {name: count for name, count in made.items() if count and name not in polling} == {
        "s3:PutObject": 1,  # the tenant's upload
        "dynamodb:BatchGetItem": 1,
        "dynamodb:UpdateItem": 2,
        "dynamodb:TransactWriteItems": 1,
        "s3:GetObject": 1,
        "s3:CreateMultipartUpload": 1,
        "s3:UploadPartCopy": 1,
        "s3:CompleteMultipartUpload": 1,
        "sagemaker:InvokeEndpoint": 1,
    }
