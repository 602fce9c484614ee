"""Fault control over HTTP: faults strike real calls, and nobody but a local program of a cloud that has it can ask for them."""

from __future__ import annotations

import json
from contextlib import closing

import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from mme_local import (
    DuplicateEvent,
    FailInvoke,
    FailLoad,
    FaultError,
    InsufficientCapacity,
    JumpClock,
    KillInstance,
    LocalCloud,
    LocalSettings,
    LoseEvent,
    ThrottleControl,
    ThrottleInvoke,
)
from tests.local.conftest import Workbench

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
STATE = "SageMaker Endpoint State Change"
ONCE = Config(retries={"total_max_attempts": 1, "mode": "standard"})


@pytest.fixture(scope="module")
def faulty():
    """A cloud with fault control and an endpoint."""
    with LocalCloud(settings=LocalSettings(faults=True, duplicate_event_share=0)) as cloud, closing(Workbench(cloud)) as bench:
        sagemaker = bench.client("sagemaker")
        bucket = bench.bucket()
        role = bench.service_role(
            "sagemaker.amazonaws.com",
            {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": f"arn:aws:s3:::{bucket}*"},
        )
        container = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": f"s3://{bucket}/models/"}
        sagemaker.create_model(ModelName="m", ExecutionRoleArn=role, PrimaryContainer=container)
        variant = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
        sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
        sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
        settle(bench)
        yield bench


@pytest.fixture
def bench(faulty):
    yield faulty
    faulty.cloud.faults.clear()


def settle(bench):
    describe = bench.client("sagemaker").describe_endpoint
    bench.wait_for(lambda: describe(EndpointName="e")["EndpointStatus"] not in ("Creating", "Updating", "RollingBack"))
    return describe(EndpointName="e")


def failure(bench, service, operation, **parameters):
    client = bench.cloud.client(service, config=ONCE)
    with closing(client), pytest.raises(ClientError) as caught:
        getattr(client, operation)(**parameters)
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"], answer.get("OriginalStatusCode")


def invocation(bench, model="none/there.tar.gz"):
    """A request whose model is not there: what it gets when no fault comes first."""
    return failure(bench, "sagemaker-runtime", "invoke_endpoint", EndpointName="e", TargetModel=model, Body=b"1")


@pytest.mark.parametrize(
    ("fault", "answer"),
    [
        (ThrottleInvoke, (400, "ThrottlingException", None)),
        (lambda **more: FailInvoke(error="InternalDependencyException", **more), (530, "InternalDependencyException", None)),
        (lambda **more: FailInvoke(error="InternalFailure", **more), (500, "InternalFailure", None)),
        (lambda **more: FailInvoke(error="ServiceUnavailable", **more), (503, "ServiceUnavailable", None)),
        (lambda **more: FailInvoke(error="ModelError", status=0, **more), (424, "ModelError", 0)),
        (lambda **more: FailInvoke(error="ModelError", status=418, **more), (424, "ModelError", 418)),
    ],
)
def test_invocations_fail_as_asked_as_often_as_asked(bench, fault, answer):
    put = bench.cloud.faults.put(fault(endpoint="e", model="none/*", count=2))
    assert invocation(bench, "other.tar.gz") == (400, "ValidationError", None)
    assert [invocation(bench) for _ in range(3)] == [answer, answer, (400, "ValidationError", None)]
    now = bench.cloud.faults.get(put.id)
    assert (put.struck, now.struck, now.active) == (0, 2, False)


def test_calls_of_the_control_planes_are_throttled(bench):
    faults = bench.cloud.faults
    with faults.during(ThrottleControl(operation="Describe*")) as fault:
        assert failure(bench, "sagemaker", "describe_endpoint", EndpointName="e")[:2] == (400, "ThrottlingException")
        targets = failure(bench, "application-autoscaling", "describe_scalable_targets", ServiceNamespace="sagemaker")
        assert targets[:2] == (400, "ThrottlingException")
        bench.client("sagemaker").list_endpoints()
        assert faults.get(fault.id).struck == 2
    bench.client("sagemaker").describe_endpoint(EndpointName="e")


def test_a_killed_instance_is_counted_and_started_again(bench):
    def instance():
        return bench.cloud.status()["endpoints"][0]["instances"][0]

    before = instance()
    assert bench.cloud.faults.put(KillInstance(endpoint="e")).struck == 1
    bench.wait_for(lambda: instance()["restarts"] == before["restarts"] + 1 and instance()["state"] == "up")
    with pytest.raises(FaultError, match="no instance matches endpoint 'f'"):
        bench.cloud.faults.put(KillInstance(endpoint="f"))


def test_a_scale_out_without_capacity_keeps_the_fleet_and_tells_why(bench):
    bench.cloud.faults.put(InsufficientCapacity(endpoint="e"))
    bench.client("sagemaker").update_endpoint_weights_and_capacities(
        EndpointName="e", DesiredWeightsAndCapacities=[{"VariantName": "v", "DesiredInstanceCount": 2}]
    )
    described = settle(bench)
    assert described["ProductionVariants"][0]["CurrentInstanceCount"] == 1
    assert "InsufficientInstanceCapacity" in described["FailureReason"]


def test_events_are_lost_and_multiplied(bench):
    queues, events = bench.client("sqs"), bench.client("events")
    queue = queues.create_queue(QueueName="events")["QueueUrl"]
    arn = queues.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="all", EventPattern=json.dumps({"source": ["aws.sagemaker"], "detail-type": [STATE]}))
    events.put_targets(Rule="all", Targets=[{"Id": "queue", "Arn": arn}])
    got = []

    def more():
        got.extend(
            json.loads(message["Body"]) for message in queues.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
        )
        return [event["detail"]["EndpointStatus"] for event in got]

    lost = bench.cloud.faults.put(LoseEvent(detail_type=STATE, endpoint="e", count=1))  # UPDATING
    bench.cloud.faults.put(DuplicateEvent(detail_type=STATE, endpoint="e", copies=3))  # IN_SERVICE
    bench.client("sagemaker").update_endpoint_weights_and_capacities(
        EndpointName="e", DesiredWeightsAndCapacities=[{"VariantName": "v", "DesiredWeight": 2}]
    )
    bench.wait_for(lambda: len(more()) >= 3)
    assert more() == ["IN_SERVICE"] * 3
    assert bench.cloud.faults.get(lost.id).struck == 1


def test_the_clock_jumps_and_says_so(bench):
    def modified():
        bench.client("sagemaker").update_endpoint_weights_and_capacities(
            EndpointName="e", DesiredWeightsAndCapacities=[{"VariantName": "v", "DesiredWeight": 1}]
        )
        return settle(bench)["LastModifiedTime"].timestamp()

    before = modified()
    bench.cloud.faults.put(JumpClock(seconds=86_400))
    assert 86_400 <= modified() - before < 2 * 86_400
    bench.cloud.faults.put(JumpClock(seconds=-86_400))


class TestTheApi:
    def test_faults_are_listed_and_removed(self, bench):
        url = f"{bench.cloud.endpoint_url}/_mme/faults"
        put = httpx.post(url, json={"kind": "fail-load", "model": "acme/*", "status": 507})
        assert (put.status_code, put.json()["struck"], put.json()["active"]) == (201, 0, True)
        assert httpx.get(url).json() == {"faults": [put.json()]}
        assert httpx.delete(f"{url}/{put.json()['id']}").json() == {**put.json(), "active": False}
        assert httpx.delete(f"{url}/fault-0").status_code == 404
        assert httpx.delete(url).json() == {"faults": []}
        assert httpx.put(url).status_code == 405

    @pytest.mark.parametrize(
        ("body", "text"),
        [
            (b"{", "the body is not JSON"),
            (b"", "the body is not JSON"),
            (b'{"kind": "explode"}', "kind is 'explode': use one of kill-instance"),
            (b'{"kind": "fail-load", "pad": "' + b"x" * 70_000 + b'"}', "the body is longer than 65536 bytes"),
        ],
    )
    def test_what_is_no_fault_is_refused(self, bench, body, text):
        answer = httpx.post(f"{bench.cloud.endpoint_url}/_mme/faults", content=body)
        assert answer.status_code == 400
        assert text in answer.json()["message"]

    @pytest.mark.parametrize(
        "headers",
        [
            {"origin": "https://evil.example"},
            {"origin": "http://127.0.0.1"},
            {"sec-fetch-site": "cross-site"},
            {"host": "evil.example"},
            {"host": "127.0.0.1.evil.example:80"},
            {"host": ""},
        ],
    )
    @pytest.mark.parametrize(("method", "path"), [("GET", "/_mme/status"), ("POST", "/_mme/faults"), ("POST", "/_mme/reset")])
    def test_web_pages_and_foreign_names_are_refused(self, bench, headers, method, path):
        answer = httpx.request(method, bench.cloud.endpoint_url + path, headers=headers, json={"kind": "fail-load"})
        assert answer.status_code == 403
        assert bench.cloud.faults.list() == []

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "[::1]:80", "[::1]"])
    def test_names_of_this_machine_are_served(self, bench, host):
        assert httpx.get(f"{bench.cloud.endpoint_url}/_mme/status", headers={"host": host}).status_code == 200


def test_a_reset_ends_all_faults():
    with LocalCloud(settings=LocalSettings(faults=True)) as cloud:
        cloud.faults.put(FailLoad())
        cloud.reset()
        assert cloud.faults.list() == []


def test_a_cloud_without_fault_control_has_no_such_path(shared_cloud):
    answer = httpx.post(f"{shared_cloud.endpoint_url}/_mme/faults", json={"kind": "fail-load"})
    assert answer.status_code == 404
    with pytest.raises(FaultError, match="Fault control is off: start with `mme up --faults`"):
        shared_cloud.faults.put(FailLoad())
