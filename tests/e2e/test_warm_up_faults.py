"""A warm-up on the deployed app, with real model servers: a payload fails, a tenant has a quota, and the process is killed."""

import contextlib
import json
import random
import time
from contextlib import closing

import httpx
import psutil
import pytest

from mme_facts.environment import TABLE_NAME, WARM_UP
from mme_facts.grammar import ArtifactName, HeatKey
from mme_facts.own_events import WarmUpTask, warm_up_event
from mme_facts.table import PARTITION_KEY, SORT_KEY, tenant_partition
from mme_facts.warm_up import WarmUpRules
from mme_tenancy.aws.heat import S3Heat
from mme_tenancy.aws.items import version_sort_key
from mme_tenancy.aws.warm_up_store import DynamoWarmUpStore
from mme_tenancy.clock import SystemClock
from mme_tenancy.heat import Counts, ModelHeat, PoolHeat
from mme_tenancy.warm_up.ports import WarmUpState
from tests.e2e.support import onboard_model, only_endpoint, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

TENANT, MODELS = "warmed", 5
QUOTA = 1
KILLS = 1


class Warmed:
    """The warm-up function of a platform, and a tenant's models that were used lately."""

    def __init__(self, platform, artifact, row):
        self.platform, self.row = platform, row
        self.functions = platform.client("lambda")
        self.name = platform.state.output("WarmUpFunction")
        variables = self.functions.get_function_configuration(FunctionName=self.name)["Environment"]["Variables"]
        (self.target,) = WarmUpRules.load(variables[WARM_UP]).endpoints
        self.dynamodb, self.table = platform.client("dynamodb"), variables[TABLE_NAME]
        self.store = DynamoWarmUpStore(self.dynamodb, self.table, SystemClock())
        platform.admin_client().expect((200, 201), "PUT", f"/tenants/{TENANT}", {"quotas": {"requests_per_second": QUOTA}})
        self.client = platform.tenant_client(TENANT)
        self.models = [f"m{number}" for number in range(MODELS)]
        self.names = {}
        for model in self.models:
            version = onboard_model(self.client, TENANT, model, artifact, row)
            self.names[model] = ArtifactName.parse(f"{TENANT}/{model}/{version}.tar.gz")
        start = int(SystemClock().time()) // 300 * 300 - 300
        rows = tuple(ModelHeat(TENANT, model, str(name.version), Counts(10, served_ms=50.0)) for model, name in self.names.items())
        heat = PoolHeat(HeatKey(self.target.pool, start, 300), (self.target.endpoint,), rows, collected_at="2026-11-29T12:07:00.000Z")
        assert S3Heat(platform.client("s3"), platform.state.output("BucketName")).create(heat)

    @property
    def record(self):
        return self.store.read(self.target.endpoint)

    def wait_for(self, what, seconds=90.0):
        """The record, once its warm-up is such a one."""
        return wait_until(lambda: (record := self.record) is not None and record.warm_up and what(record) and record, seconds=seconds)

    def send(self, event):
        self.functions.invoke(FunctionName=self.name, InvocationType="Event", Payload=json.dumps(event).encode())

    def break_sample(self, model):
        """From now on the model refuses the payload that it was admitted with."""
        name = self.names[model]
        self.dynamodb.update_item(
            TableName=self.table,
            Key={
                PARTITION_KEY: {"S": tenant_partition(TENANT)},
                SORT_KEY: {"S": version_sort_key(model, name.version.number)},
            },
            UpdateExpression="SET #sample.#body = :body",
            ExpressionAttributeNames={"#sample": "sample", "#body": "body"},
            ExpressionAttributeValues={":body": {"B": b"no,numbers"}},
        )

    def lines(self, group, since_ms):
        """What a log group got since a moment."""
        with closing(self.platform.client("logs")) as logs:
            pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group, startTime=since_ms)
            return [event["message"] for page in pages for event in page["events"]]

    def metrics(self, since_ms):
        """The lines of warm-ups that ended since a moment."""
        group = self.functions.get_function_configuration(FunctionName=self.name)["LoggingConfig"]["LogGroup"]
        told = []
        for line in self.lines(group, since_ms):
            with contextlib.suppress(ValueError):
                told.append(json.loads(line))
        return [line for line in told if isinstance(line, dict) and "_aws" in line]

    def workers(self):
        """The processes that run the function in this cloud."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if any(f"ministack-lambda-{self.name}-" in part for part in process.cmdline()):
                    variables = process.environ()
                    url = self.platform.state.endpoint_url
                    if url in (variables.get("AWS_ENDPOINT_URL"), f"http://127.0.0.1:{variables.get('GATEWAY_PORT')}"):
                        found.append(process)
        return found

    def invocations(self):
        """How often the endpoints were called so far."""
        answer = httpx.get(f"{self.platform.state.endpoint_url}/_mme/calls", timeout=10)
        return answer.json()["calls"].get("sagemaker", {}).get("InvokeEndpoint", 0)

    def kill(self):
        """Kill the function's processes, as the kernel would; how many there were."""
        killed = 0
        for process in self.workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                killed += 1
        return killed


@pytest.fixture(scope="module")
def warmed(own_platform, demo_models):
    folder, prepared = demo_models
    demo = prepared[0]
    return Warmed(own_platform, (folder / demo.artifact).read_bytes(), demo.rows[0])


def scale(warmed, by):
    """One instance more, or less; waits until it is there."""
    sagemaker, endpoint = warmed.platform.client("sagemaker"), warmed.target.endpoint
    described = sagemaker.describe_endpoint(EndpointName=endpoint)
    count = described["ProductionVariants"][0]["CurrentInstanceCount"] + by
    change = {"VariantName": warmed.target.variant, "DesiredInstanceCount": count}
    sagemaker.update_endpoint_weights_and_capacities(EndpointName=endpoint, DesiredWeightsAndCapacities=[change])
    wait_until(
        lambda: (
            (now := sagemaker.describe_endpoint(EndpointName=endpoint))["EndpointStatus"] == "InService"
            and now["ProductionVariants"][0]["CurrentInstanceCount"] == count
        ),
        seconds=90,
        what="the scaling",
    )


def test_a_scale_out_is_warmed_for_no_tenant_and_one_bad_payload_stops_nothing(warmed):
    warmed.send({})
    wait_until(lambda: warmed.record, seconds=60, what="the first look")
    warmed.break_sample("m2")
    usage = warmed.client.expect((200,), "GET", f"/tenants/{TENANT}").json()["usage"]
    since_ms = int(time.time() * 1000)
    scale(warmed, 1)
    record = warmed.wait_for(lambda record: not record.warm_up.is_open)
    assert (record.warm_up.state, record.warm_up.change.kind.value, record.lease) == (WarmUpState.DONE, "scale-out", None)
    summary = record.warm_up.summary
    bad = warmed.names["m2"].target_model
    assert (summary["planned"], summary["warmed"], [failed["target_model"] for failed in summary["failed"]]) == (MODELS, MODELS - 1, [bad])
    (line,) = wait_until(lambda: warmed.metrics(since_ms), what="the metrics' line")
    assert (line["models_warmed"], line["failed"], line["failed_models"]) == (MODELS - 1, 0, 1)
    assert line["first_failed"][0]["error"].startswith("input rejected")
    # At one request a second five calls in a moment would have been refused, and a tenant's own call finds its second unused.
    answer = warmed.client.call("POST", f"/tenants/{TENANT}/models/m0/invocations", warmed.row.encode(), {"content-type": "text/csv"})
    assert answer.status == 200
    invocations = wait_until(
        lambda: [line for line in warmed.lines(warmed.platform.state.output("InvocationLogGroup"), since_ms) if TENANT in line],
        what="the line of the tenant's own call",
    )
    assert len(invocations) == 1
    assert warmed.client.expect((200,), "GET", f"/tenants/{TENANT}").json()["usage"] == usage


def test_the_first_call_comes_within_five_seconds_of_the_event(warmed):
    sagemaker, before = warmed.platform.client("sagemaker"), warmed.record
    scale(warmed, -1)
    variant = {"VariantName": warmed.target.variant, "DesiredInstanceCount": before.seen.count}
    warmed.wait_for(lambda record: record.seen.count == before.seen.count - 1)
    calls = warmed.invocations()
    sagemaker.update_endpoint_weights_and_capacities(EndpointName=warmed.target.endpoint, DesiredWeightsAndCapacities=[variant])

    def in_service():
        return sagemaker.describe_endpoint(EndpointName=warmed.target.endpoint)["EndpointStatus"] == "InService"

    wait_until(in_service, seconds=90, what="the scaling")
    began = time.monotonic()
    wait_until(lambda: warmed.invocations() > calls, seconds=60, what="the first call")
    assert time.monotonic() - began <= 5
    record = warmed.wait_for(lambda record: not record.warm_up.is_open)
    assert record.warm_up.change.number == before.warm_up.change.number + 1


def test_a_killed_process_is_followed_by_one_that_ends_the_warm_up(warmed):
    dice, kills = random.Random(20261130), 0
    for _ in range(20 * KILLS):
        if kills == KILLS:
            break
        number = warmed.record.warm_up.change.number
        warmed.send(warm_up_event(warmed.target.endpoint, WarmUpTask.START))
        warmed.wait_for(lambda record: record.warm_up.change.number > number and record.warm_up.state is not WarmUpState.PLANNED)  # noqa: B023
        # The moment is what is random here; there is no condition to wait for.
        moment = time.monotonic() + dice.uniform(0, 0.2)
        wait_until(lambda: time.monotonic() >= moment)  # noqa: B023 - called at once
        killed, record = warmed.kill(), warmed.record
        if record.warm_up.is_open:
            assert killed
            kills += 1
            wait_until(lambda: record.lease.expires_at <= time.time(), seconds=60, what="the end of the lease")  # noqa: B023
            warmed.send({})
        record = warmed.wait_for(lambda record: not record.warm_up.is_open)
        assert (record.warm_up.state, record.lease) == (WarmUpState.DONE, None)
        assert record.warm_up.summary["warmed"] == MODELS - 1
    assert kills == KILLS
    answer = warmed.client.call("POST", f"/tenants/{TENANT}/models/m4/invocations", warmed.row.encode(), {"content-type": "text/csv"})
    assert answer.status == 200
    assert only_endpoint(warmed.platform)["name"] == warmed.target.endpoint
