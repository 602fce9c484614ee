"""The reference app's own alarms, on a clock that runs 20 times as fast: real traffic sets them off, better traffic ends them."""

import itertools
import threading
import time
from contextlib import closing, suppress

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from mme_cli.cdk import deploy
from mme_cli.cloud import running_cloud
from mme_cli.platform import LocalPlatform
from mme_facts.thresholds import RULES, USERS_HURT
from mme_local import FailDownload, FaultsClient
from tests.e2e.support import PROJECT

pytestmark = pytest.mark.e2e

SCALE = 20.0
CACHE, ERRORS = ("low-cache-hit", "thrashing"), ("server-errors", "model-errors", "client-errors", USERS_HURT.id)
QUIET = ("rejected-artifacts", "function-throttles")
"""Alarms whose cause is not there: they must not go off with the others."""


@pytest.fixture(scope="module")
def quick_platform(tmp_path_factory):
    """The reference app as the real CLI deploys it, with room for two models an instance."""
    with running_cloud(models_per_instance=2, clock_scale=SCALE, faults=True) as state:
        yield LocalPlatform(deploy(state, PROJECT, print, "--output", str(tmp_path_factory.mktemp("cdk.out"))))


class Traffic:
    """Invokes models in turn, from several threads with a pause each, until it is ended."""

    def __init__(self, platform, requests, *, threads=3, pause_seconds=0.02):
        keys = platform.state.admin
        session = boto3.Session(keys.access_key_id, keys.secret_access_key, region_name=platform.state.region)
        # Whoever waits to try again asks too seldom.
        options = {"endpoint_url": platform.state.endpoint_url, "config": Config(retries={"total_max_attempts": 1})}
        self._clients = [session.client("sagemaker-runtime", **options) for _ in range(threads)]
        self._endpoint, self._requests = platform.state.output("EndpointName"), itertools.cycle(requests)
        self._pause_seconds = pause_seconds
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._threads = [threading.Thread(target=self._invoke, args=(client,)) for client in self._clients]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        for thread, client in zip(self._threads, self._clients, strict=True):
            thread.join()
            client.close()

    def _invoke(self, client):
        while not self._ended.wait(self._pause_seconds):
            with self._lock:
                key, body = next(self._requests)
            with suppress(ClientError):
                client.invoke_endpoint(EndpointName=self._endpoint, TargetModel=key, ContentType="text/csv", Body=body)


@pytest.fixture(scope="module")
def alarms(quick_platform):
    """The names of the alarms by their rules, and how to ask for their states."""
    with closing(quick_platform.client("cloudwatch")) as cloudwatch:
        described = [alarm for page in cloudwatch.get_paginator("describe_alarms").paginate() for alarm in page["MetricAlarms"]]
        composite = cloudwatch.describe_alarms(AlarmTypes=["CompositeAlarm"])["CompositeAlarms"]
        names = {
            rule.id: next(
                alarm["AlarmName"] for alarm in [*described, *composite] if alarm.get("AlarmDescription", "").startswith(rule.title)
            )
            for rule in [*(RULES[name] for name in (*CACHE, *ERRORS[:-1], *QUIET)), USERS_HURT]
        }

        def states(*rules):
            wanted = {names[rule]: rule for rule in rules}
            answer = cloudwatch.describe_alarms(AlarmNames=list(wanted), AlarmTypes=["MetricAlarm", "CompositeAlarm"])
            return {wanted[alarm["AlarmName"]]: alarm["StateValue"] for alarm in [*answer["MetricAlarms"], *answer["CompositeAlarms"]]}

        states.names = names
        yield states


def all_in(state, alarms, rules, seconds=120):
    """Wait until all alarms that are meant are in a state; fails with those that are not."""
    deadline = time.monotonic() + seconds
    while others := {rule: now for rule, now in alarms(*rules).items() if now != state}:
        assert time.monotonic() < deadline, others
        time.sleep(0.5)


def test_real_traffic_sets_five_alarms_off_and_better_traffic_ends_them(quick_platform, demo_models, alarms):
    folder, prepared = demo_models
    s3, bucket = quick_platform.client("s3"), quick_platform.state.output("BucketName")
    artifact, row = (folder / prepared[0].artifact).read_bytes(), prepared[0].rows[0]
    good = [f"acme/copy{number}/v1-000000000000.tar.gz" for number in range(8)]
    for key in [*good, "acme/far/v1-000000000000.tar.gz"]:
        s3.put_object(Bucket=bucket, Key=f"models/{key}", Body=artifact)
    missing, far = "acme/nowhere/v1-000000000000.tar.gz", "acme/far/v1-000000000000.tar.gz"
    # Every model is asked for four times, then seven others push it out of memory.
    with Traffic(quick_platform, [(key, row) for key in good for _ in range(4)], threads=4):
        all_in("ALARM", alarms, CACHE)
        assert "ALARM" not in alarms(*ERRORS, *QUIET).values()
    faults = FaultsClient(lambda: quick_platform.state.endpoint_url)
    errors = Traffic(quick_platform, [(good[0], "no row of numbers"), (missing, row), (far, row)])
    with faults.during(FailDownload(model="acme/far/*", error="unavailable")), errors:
        all_in("ALARM", alarms, ERRORS)
        assert "ALARM" not in alarms(*QUIET).values()
    with Traffic(quick_platform, [(good[0], row)]):
        all_in("OK", alarms, (*CACHE, *ERRORS), seconds=180)
