"""An hour of autoscaling: load rises, instances are added after the cooldown and come up empty, load falls, they go again.

Everything is real but the hour: requests, model servers, metrics, alarms, Application Auto Scaling; the clock runs sixty times as fast.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from mme_local import LocalCloud
from tests.local.conftest import Workbench
from tests.local.scripted_endpoint import artifact, deploy, settings

pytestmark = pytest.mark.e2e

SCALE = 60.0
RESOURCE = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/story/variant/AllTraffic",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
DIMENSIONS = [{"Name": "EndpointName", "Value": "story"}, {"Name": "VariantName", "Value": "AllTraffic"}]
TARGET = 4.0
COOLDOWN_SECONDS = 300.0
WAIT_SECONDS = 240.0


class Load:
    """One caller at a time, at a pace in requests a scaled minute; it never catches up on what it missed."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.answered = 0
        self._call = call
        self._pause: float | None = None
        self._changed = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def pace(self, per_minute: float) -> None:
        self._pause = 60.0 / SCALE / per_minute if per_minute else None
        self._changed.set()

    def end(self) -> None:
        self._ended = True
        self._changed.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._ended:
            if self._changed.wait(None if self._pause is None else max(0.0, due - time.monotonic())):
                self._changed.clear()
                due = time.monotonic()
            elif self._pause is not None:
                due = max(due + self._pause, time.monotonic())
                self._call()
                self.answered += 1


@dataclass
class Story:
    bench: Workbench
    load: Load
    began: float

    @property
    def now(self) -> float:
        return float(self.bench.cloud.status()["clock"]["now"])

    def counts(self) -> tuple[int, int]:
        (variant,) = self.bench.client("sagemaker").describe_endpoint(EndpointName="story")["ProductionVariants"]
        return variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]

    def until_instances(self, count: int) -> None:
        self.bench.wait_for(lambda: self.counts() == (count, count), seconds=WAIT_SECONDS)

    def activities(self) -> list[dict[str, Any]]:
        """The scaling activities, oldest first, when none is under way."""

        def ended() -> list[dict[str, Any]]:
            client = self.bench.client("application-autoscaling")
            found = client.describe_scaling_activities(ServiceNamespace="sagemaker", ResourceId=RESOURCE["ResourceId"])["ScalingActivities"]
            return found if all("EndTime" in activity for activity in found) else []

        return list(reversed(self.bench.wait_for(ended, seconds=WAIT_SECONDS)))

    def minutes(self, name: str, statistic: str, namespace: str = "AWS/SageMaker") -> dict[float, float]:
        """A metric's minutes so far, by their beginning."""
        answer = self.bench.client("cloudwatch").get_metric_statistics(
            Namespace=namespace,
            MetricName=name,
            Dimensions=DIMENSIONS,
            StartTime=datetime.fromtimestamp(self.began // 60 * 60 - 60, UTC),
            EndTime=datetime.fromtimestamp(self.now + 60, UTC),
            Period=60,
            Statistics=[statistic],
        )
        return {point["Timestamp"].timestamp(): point[statistic] for point in answer["Datapoints"]}


@pytest.fixture
def story() -> Iterator[Story]:
    with LocalCloud(settings=settings(clock_scale=SCALE)) as cloud, closing(Workbench(cloud)) as bench:
        deploy(bench, "story", {"m.tar.gz": artifact()})
        runtime = bench.client("sagemaker-runtime")

        def call() -> None:
            runtime.invoke_endpoint(EndpointName="story", TargetModel="m.tar.gz", Body=b"x")["Body"].read()

        load = Load(call)
        try:
            yield Story(bench, load, float(cloud.status()["clock"]["now"]))
        finally:
            load.end()


def scaled_to_max(bench: Workbench) -> Callable[[], list[dict[str, Any]]]:
    """Collects Application Auto Scaling's events in a queue; what is called returns those that came, at least one."""
    sqs, events = bench.client("sqs"), bench.client("events")
    queue = sqs.create_queue(QueueName="scaled-to-max")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    pattern = {"source": ["aws.application-autoscaling"], "detail": {"scaledToMax": [True]}}
    events.put_rule(Name="scaled-to-max", EventPattern=json.dumps(pattern))
    events.put_targets(Rule="scaled-to-max", Targets=[{"Id": "queue", "Arn": arn}])

    def came() -> list[dict[str, Any]]:
        found = bench.wait_for(lambda: sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages"))
        return [json.loads(message["Body"]) for message in found]

    return came


def test_an_hour_of_autoscaling(story):
    scaling = story.bench.client("application-autoscaling")
    scaling.register_scalable_target(**RESOURCE, MinCapacity=1, MaxCapacity=3)
    alarms = scaling.put_scaling_policy(
        **RESOURCE,
        PolicyName="invocations",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": TARGET,
            "PredefinedMetricSpecification": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"},
            "ScaleOutCooldown": int(COOLDOWN_SECONDS),
            "ScaleInCooldown": 60,
        },
    )["Alarms"]
    assert [alarm["AlarmName"].rpartition("-Alarm")[2].partition("-")[0] for alarm in alarms] == ["High", "Low"]

    told = scaled_to_max(story.bench)

    # Load rises: more than an instance shall have, not more than two.
    story.load.pace(1.75 * TARGET)
    story.until_instances(2)
    first, second = story.bench.cloud.status()["endpoints"][0]["instances"]
    assert [len(first["models"]), len(second["models"])] == [1, 0], "the new instance is empty"

    # It rises again, but the cooldown has to pass.
    story.load.pace(3.3 * TARGET)
    story.until_instances(3)

    # It falls.
    story.load.pace(0)
    story.until_instances(1)

    activities = story.activities()
    assert [activity["Description"] for activity in activities] == [f"Setting desired instance count to {count}." for count in (2, 3, 2, 1)]
    assert {activity["StatusCode"] for activity in activities} == {"Successful"}
    assert [activity["Cause"].rpartition("-Alarm")[2].partition("-")[0] for activity in activities] == ["High", "High", "Low", "Low"]
    waited = (activities[1]["StartTime"] - activities[0]["EndTime"]).total_seconds()
    assert waited >= COOLDOWN_SECONDS

    events = told()
    assert {(event["detail"]["newDesiredCapacity"], event["detail"]["oldDesiredCapacity"]) for event in events} == {(3, 2)}, (
        "only the maximum"
    )
    assert {event["detail"]["resourceId"] for event in events} == {RESOURCE["ResourceId"]}

    asked = story.minutes("Invocations", "Sum")
    per_instance = story.minutes("InvocationsPerInstance", "Sum")
    hits = story.minutes("ModelCacheHit", "SampleCount")
    assert sum(asked.values()) == sum(hits.values()) == story.load.answered
    before = [value for moment, value in per_instance.items() if moment < activities[0]["StartTime"].timestamp()]
    assert max(before) > TARGET
    assert per_instance[max(per_instance)] == 0.0, "nobody asks any more"
    models = story.minutes("LoadedModelCount", "SampleCount", "/aws/sagemaker/Endpoints")
    assert max(models.values()) == 3, "one value of each instance a minute"
    emptiest = story.minutes("LoadedModelCount", "Minimum", "/aws/sagemaker/Endpoints")
    assert min(emptiest.values()) == 0
    misses = sum(asked.values()) - sum(story.minutes("ModelCacheHit", "Sum").values())
    assert misses == 1, "one cold start in all"
