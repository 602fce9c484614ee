"""Warm-up as it is deployed: Application Auto Scaling adds an instance under load, and the models that move are there before their callers.

Everything is real but the time and the models' size: templates, roles and functions, EventBridge, alarms and scaling, heat from the log,
model servers. The clock runs eight times as fast, loads do not: they take as long as those of larger artifacts would.
"""

import hashlib
import json
import random
import shutil
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import boto3
import pytest

from mme_cli.cdk import deploy
from mme_cli.local_state import LocalState
from mme_facts.scaled_time import CLOCK_VARIABLE, ScaledTime
from mme_local import LocalCloud, LocalSettings
from mme_local.dataplane import DataPlaneSettings
from mme_tenancy import TenantClient
from mme_tenancy.aws.clients import dynamodb_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.heat import S3Heat
from mme_tenancy.heat import read
from mme_tenancy.registry import Change
from mme_tenancy.routes import Model, Route
from mme_tenancy.tenants import Quotas, Tenant
from mme_tenancy.versions import Sample, State, Version
from tests.e2e.support import PROJECT, wait_until
from tests.e2e.warm_up_app.slow_loading import JOURNAL, LOAD_SECONDS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

APP = Path(__file__).parent / "warm_up_app"
SCALE = 8.0
MINUTE = 60.0 / SCALE
TENANTS, MODELS, HOT = ("acme", "globex", "initech"), 18, 2
"""So many models has each tenant, and so many of them are asked for every half minute; the others once in a minute or two."""
CALM, BUSY = 2.8, 4.4
"""Requests a second."""
TARGET = (CALM + BUSY) / 2 * MINUTE / 2
"""Requests an instance and minute, when two instances serve what lies between calm and busy times."""
MODEL_BYTES, SLOTS = 64 << 20, 8
MEMORY = MODEL_BYTES * len(TENANTS) * MODELS
SEED, NOW = 20_261_130, "2026-01-01T00:00:00.000Z"


@dataclass
class Request:
    """A user's request: when it was sent (epoch seconds), and whether it waited for a load."""

    sent: float
    cold: bool = False
    error: str = ""


class Users:
    """Callers by the library: the same requests in the same order in every run, at a pace that changes."""

    def __init__(self, cloud, outputs, names):
        self._local, self._lines = threading.local(), SimpleQueue()
        session = boto3.Session()
        session.events.register("after-call.sagemaker-runtime.InvokeEndpoint", self._answered)
        self._client = TenantClient(table_name=outputs["TableName"], session=session, log=self._lines.put)
        self._logs, self._group = cloud.client("logs"), outputs["Lines"]
        self._logs.create_log_stream(logGroupName=self._group, logStreamName="users")
        self._names = names
        self._weights = [3.0 if int(model.removeprefix("m")) < HOT else 1.0 for _tenant, model in names]
        self._threads = ThreadPoolExecutor(40)
        self.done = []

    def _answered(self, parsed, **_more):
        if parsed["ResponseMetadata"]["HTTPHeaders"].get("x-amzn-mme-local-cold") == "true":
            self._local.cold = True

    def _send(self, name):
        request = Request(time.time())
        self._local.cold = False
        try:
            self._client.invoke(*name, b"1,2", content_type="text/csv")
        except Exception as error:
            request.error = repr(error)
        request.cold = self._local.cold
        self.done.append(request)

    def all_once(self):
        """Every model is asked for, so that it is loaded where it belongs."""
        list(self._threads.map(self._send, self._names))

    @contextmanager
    def asking(self):
        """Requests for the length of the block; what is yielded starts the sequence anew at another pace."""
        chance, ended = [random.Random(SEED), CALM], threading.Event()

        def begin(rate):
            chance[:] = [random.Random(SEED), rate]

        def run():
            due = written = time.monotonic()
            while not ended.wait(max(0.0, due - time.monotonic())):
                numbers, rate = chance
                self._threads.submit(self._send, numbers.choices(self._names, self._weights)[0])
                due = max(due + numbers.expovariate(rate), time.monotonic() - 0.5)
                if time.monotonic() > written + 1:
                    self._write()
                    written = time.monotonic()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield begin
        finally:
            ended.set()
            thread.join()

    def _write(self):
        """The lines go to the log group, as those of an application do."""
        lines = [self._lines.get() for _ in range(self._lines.qsize())]
        events = [{"timestamp": json.loads(line)["_aws"]["Timestamp"], "message": line} for line in lines]
        events.sort(key=lambda event: event["timestamp"])
        if events:
            self._logs.put_log_events(logGroupName=self._group, logStreamName="users", logEvents=events)

    def close(self):
        self._threads.shutdown()
        self._client.close()


@dataclass
class Growth:
    """Of one scale-out: when the instance was there (epoch seconds); since then, users' cold requests by minute, and all loads."""

    began: float
    cold: Counter
    asked: Counter
    loads: int

    def between(self, first, last):
        return sum(self.cold[minute] for minute in range(first, last))

    def __str__(self):
        return " ".join(f"{self.cold[minute]}/{self.asked[minute]}" for minute in range(5))


class Story:
    """The deployed pool and its users."""

    def __init__(self, cloud, outputs, users, journal):
        self._cloud = cloud
        self.users, self._journal, self._log_group = users, journal, outputs["WarmUpLogGroup"]
        self._sagemaker, self._events, self._logs = cloud.client("sagemaker"), cloud.client("events"), cloud.client("logs")
        self._heat, self._endpoint = S3Heat(cloud.client("s3"), outputs["BucketName"]), outputs["EndpointName"]

    def instances(self):
        (variant,) = self._sagemaker.describe_endpoint(EndpointName=self._endpoint)["ProductionVariants"]
        return variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]

    def loads(self):
        """Loads of models on all instances until now, as the fleet counts them."""
        (endpoint,) = self._cloud.status()["endpoints"]
        return endpoint["cold_loads"]

    def settle(self):
        """Every model is loaded, and heat tells of it."""
        self.users.all_once()
        wait_until(self._are_known, seconds=120, every=1, what="heat of every model")

    def _are_known(self):
        return len(set(read(self._heat, "xgboost", start=0, end=1 << 40).models())) == len(TENANTS) * MODELS

    def grow(self, begin):
        """Busy times: Application Auto Scaling adds an instance; five minutes of what users get from then on."""
        begin(BUSY)
        wait_until(lambda: self.instances()[0] == 3, seconds=180, what="the third instance")
        began, loads = time.time(), self.loads()
        wait_until(lambda: time.time() >= began + 5 * MINUTE + 1, what="five minutes")
        requests = [request for request in self.users.done if 0 <= request.sent - began < 5 * MINUTE]
        assert [request for request in requests if request.error] == []
        minutes = [(int((request.sent - began) // MINUTE), request.cold) for request in requests]
        cold, asked = Counter(minute for minute, cold in minutes if cold), Counter(minute for minute, _ in minutes)
        return Growth(began, cold, asked, self.loads() - loads)

    def shrink(self, begin):
        """Calm times: two instances that hold everything."""
        begin(CALM)
        wanted = [{"VariantName": "AllTraffic", "DesiredInstanceCount": 2}]
        self._sagemaker.update_endpoint_weights_and_capacities(EndpointName=self._endpoint, DesiredWeightsAndCapacities=wanted)
        wait_until(lambda: self.instances() == (2, 2), seconds=60, what="two instances")
        self.users.all_once()

    def forget(self):
        """From now on nothing is warmed: both rules are off."""
        for rule in self._events.list_rules()["Rules"]:
            if "WarmUp" in rule["Name"]:
                self._events.disable_rule(Name=rule["Name"])

    def warmed(self):
        """What the function's log says of warm-ups that have ended."""
        events = self._logs.filter_log_events(logGroupName=self._log_group, filterPattern='"warmed up"')["events"]
        return [json.loads(event["message"]) for event in events]

    def marked(self):
        """The calls of warm-ups, as the models' container saw them."""
        return [json.loads(line) for line in self._journal.read_text().splitlines()] if self._journal.exists() else []


@pytest.fixture
def story(request, tmp_path, tmp_path_factory, demo_models):
    """The pool on a local cloud with this router, its models known and loaded, and its users asking."""
    folder, prepared = demo_models
    artifact = (folder / prepared[0].artifact).read_bytes()
    for name in ("app.py", "slow_loading.py"):
        shutil.copy(APP / name, tmp_path)
    shutil.copy(PROJECT / "cdk.json", tmp_path)
    plane = DataPlaneSettings(
        handlers={"slow-loading": f"{tmp_path / 'slow_loading.py'}:handle"},
        router=request.param,
        load_concurrency=SLOTS,
        instance_memory_bytes=MEMORY,
        model_overhead_bytes=MODEL_BYTES - (1 << 20),
    )
    with LocalCloud(settings=LocalSettings(data_plane=plane, clock_scale=SCALE)) as cloud, pytest.MonkeyPatch.context() as patch:
        for name, value in cloud.environment().items():
            patch.setenv(name, value)
        shown = cloud.status()
        patch.setenv(CLOCK_VARIABLE, ScaledTime(shown["now"], shown["clock"]["now"], SCALE).setting)
        state = LocalState(cloud.endpoint_url, cloud.region, cloud.account, 0, cloud.admin, cloud.environment())
        context = (
            item for name, value in {"target": TARGET, "memory": MEMORY, "slots": SLOTS}.items() for item in ("-c", f"{name}={value}")
        )
        outputs = deploy(state, tmp_path, print, "--output", str(tmp_path_factory.mktemp("cdk.out")), *context).outputs
        names = [(tenant, f"m{number}") for tenant in TENANTS for number in range(MODELS)]
        bring(cloud, outputs, names, artifact)
        users = Users(cloud, outputs, names)
        try:
            yield Story(cloud, outputs, users, tmp_path / JOURNAL.name)
        finally:
            users.close()


def bring(cloud, outputs, names, artifact):
    """Models as admission leaves them."""
    registry, digest = DynamoRegistry(dynamodb_client(boto3.Session()), outputs["TableName"]), hashlib.sha256(artifact).hexdigest()
    for tenant in TENANTS:
        registry.write(Change(None, Tenant(tenant, NOW, NOW, quotas=Quotas(requests_per_second=1_000_000))))
    for tenant, model in names:
        version = Version(
            tenant,
            model,
            1,
            digest,
            len(artifact),
            "xgboost",
            "xgboost",
            Sample("text/csv", b"1,2"),
            State.ACTIVE,
            NOW,
            NOW,
            timings={"first_invocation_seconds": LOAD_SECONDS + 0.2},
            memory_bytes=MODEL_BYTES,
            moving=False,
        )
        cloud.client("s3").put_object(Bucket=outputs["BucketName"], Key=version.name.artifact_key(), Body=artifact)
        registry.write(Change(None, version))
        route = Route(outputs["EndpointName"], "AllTraffic", str(version.id), version.name.target_model)
        registry.write(Change(None, Model(tenant, model, 1, NOW, NOW, route)))


@pytest.mark.parametrize("story", ["one-home"], indirect=True)
def test_models_that_move_to_a_new_instance_are_there_before_most_of_their_users(story, tell):
    with story.users.asking() as begin:
        story.settle()
        with_it = story.grow(begin)
        called = story.marked()
        story.shrink(begin)
        story.forget()
        without = story.grow(begin)
    tell(f"cold requests of all, in the minutes after a scale-out: without warm-up {without}; with it {with_it}, {len(called)} calls")
    (warmed,) = story.warmed()
    assert (warmed["why"], warmed["failed"], warmed["overrun"]) == ("scale-out 1: done", 0, 0), "one warm-up, whatever was told how often"
    assert len(called) == len(story.marked()) == warmed["calls"] >= warmed["models_warmed"] == len(TENANTS) * MODELS
    assert {call["mark"] for call in called} == {"mme-warm-up=scale-out"}
    assert called[0]["time"] - with_it.began <= 5, "from the instance to the first call"
    assert without.between(1, 5) >= 3, "enough to tell"
    assert with_it.between(0, 5) <= 0.7 * without.between(0, 5)
    assert with_it.between(1, 5) <= 0.2 * without.between(1, 5)


@pytest.mark.parametrize("story", ["sticky"], indirect=True)
def test_where_models_stay_no_user_waits_because_of_a_warm_up(story, tell):
    with story.users.asking() as begin:
        story.settle()
        grown = story.grow(begin)
    calls = len(story.marked())
    tell(f"cold requests of all, in the minutes after a scale-out, models stay: {grown}, {calls} calls, {grown.loads} loads")
    (warmed,) = story.warmed()
    assert warmed["calls"] == calls > 0
    assert grown.loads <= 0.1 * len(TENANTS) * MODELS, "hardly one of the calls went to the new instance"
    assert grown.between(0, 1) <= 0.1 * grown.asked[0]
    assert grown.between(1, 5) == 0
