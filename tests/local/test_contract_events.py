"""SageMaker's events on the emulator's EventBridge: rules that match get them, others never do."""

from __future__ import annotations

import json
import time

import pytest

from mme_local import LocalCloud, LocalSettings

STATE, DEPLOYMENT = "SageMaker Endpoint State Change", "SageMaker Endpoint Deployment State Change"


def rule(bench, **detail):
    """A queue that gets what a rule on SageMaker's events lets through."""
    queues, events, name = bench.client("sqs"), bench.client("events"), bench.name("rule")
    queue = queues.create_queue(QueueName=name)["QueueUrl"]
    arn = queues.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    pattern = {"source": ["aws.sagemaker"], **detail}
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
    return queue


def received(bench, queue, until):
    """The events of a queue, until one of them is what ``until`` says."""
    got = []

    def more():
        messages = bench.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
        got.extend(json.loads(message["Body"]) for message in messages)
        return any(map(until, got))

    bench.wait_for(more)
    return got


def left(bench, queue):
    return bench.client("sqs").receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])


def hosting(bench, name, count=1):
    sagemaker = bench.client("sagemaker")
    variant = {"VariantName": "AllTraffic", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": count}
    role = bench.service_role("sagemaker.amazonaws.com")
    sagemaker.create_endpoint_config(EndpointConfigName=name, ExecutionRoleArn=role, ProductionVariants=[variant])


def endpoint(bench, name):
    sagemaker = bench.client("sagemaker")
    hosting(bench, f"{name}-config")
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=f"{name}-config", Tags=[{"Key": "team", "Value": "a"}])
    settled(bench, name)


def settled(bench, name):
    bench.wait_for(lambda: bench.client("sagemaker").describe_endpoint(EndpointName=name)["EndpointStatus"] == "InService")


def test_every_status_of_an_endpoint_is_told_in_upper_snake(bench):
    queue = rule(bench, **{"detail-type": [STATE]})
    endpoint(bench, "shared")
    change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 3}
    bench.client("sagemaker").update_endpoint_weights_and_capacities(EndpointName="shared", DesiredWeightsAndCapacities=[change])
    settled(bench, "shared")
    bench.client("sagemaker").delete_endpoint(EndpointName="shared")
    got = received(bench, queue, lambda event: event["detail"]["EndpointStatus"] == "DELETING")
    statuses = [event["detail"]["EndpointStatus"] for event in got]
    order = [status for number, status in enumerate(statuses) if number == 0 or statuses[number - 1] != status]  # some come twice
    assert order == ["CREATING", "IN_SERVICE", "UPDATING", "IN_SERVICE", "DELETING"]
    last = got[-1]
    assert (last["source"], last["account"], last["region"]) == ("aws.sagemaker", "000000000000", "us-east-1")
    assert last["resources"] == [last["detail"]["EndpointArn"]]
    assert last["resources"][0].endswith(":endpoint/shared")
    detail = last["detail"]
    assert (detail["EndpointName"], detail["EndpointConfigName"], detail["Tags"]) == ("shared", "shared-config", {"team": "a"})
    assert detail["ProductionVariants"] == [{"DesiredWeight": 1.0, "DesiredInstanceCount": 3}]
    assert detail["CreationTime"] < detail["LastModifiedTime"] <= time.time() * 1000


def test_a_scale_out_is_told_with_its_counts(bench):
    endpoint(bench, "shared")
    queue = rule(bench, **{"detail-type": [DEPLOYMENT]})
    change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 3}
    bench.client("sagemaker").update_endpoint_weights_and_capacities(EndpointName="shared", DesiredWeightsAndCapacities=[change])
    detail = received(bench, queue, lambda _event: True)[0]["detail"]
    (variant,) = detail["ProductionVariants"]
    assert detail["EndpointStatus"] == "UPDATING"
    assert (variant["VariantName"], variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == ("AllTraffic", 1, 3)
    (status,) = variant["VariantStatus"]
    assert (status["Status"], status["StatusMessage"]) == ("Updating", "Scaling out desired instance count to 3.")


def test_an_update_is_told_as_a_pending_deployment(bench):
    endpoint(bench, "shared")
    queue = rule(bench, **{"detail-type": [DEPLOYMENT]})
    hosting(bench, "next", 2)
    bench.client("sagemaker").update_endpoint(EndpointName="shared", EndpointConfigName="next")
    detail = received(bench, queue, lambda _event: True)[0]["detail"]
    pending = detail["PendingDeploymentSummary"]
    assert (detail["EndpointConfigName"], pending["EndpointConfigName"]) == ("shared-config", "next")
    (variant,) = pending["ProductionVariants"]
    assert (variant["DesiredInstanceCount"], variant["VariantStatus"][0]["Status"]) == (2, "Creating")


@pytest.mark.parametrize(
    "detail",
    [
        {"EndpointStatus": ["InService"]},
        {"EndpointName": ["other"], "EndpointStatus": ["IN_SERVICE"]},
        {"EndpointName": [{"prefix": "share"}], "EndpointStatus": ["FAILED"]},
    ],
    ids=["the status as the API writes it", "another endpoint", "another status"],
)
def test_rules_that_do_not_match_never_fire(bench, detail):
    matching, other = rule(bench, **{"detail-type": [STATE]}), rule(bench, detail=detail)
    endpoint(bench, "shared")
    assert received(bench, matching, lambda event: event["detail"]["EndpointStatus"] == "IN_SERVICE")
    assert left(bench, other) == []


def test_a_rule_for_another_type_of_event_or_source_never_fires(bench):
    matching = rule(bench, **{"detail-type": [STATE]})
    others = [rule(bench, **{"detail-type": ["SageMaker Model State Change"]}), rule(bench, source=["aws.s3"])]
    endpoint(bench, "shared")
    assert received(bench, matching, lambda event: event["detail"]["EndpointStatus"] == "IN_SERVICE")
    assert [left(bench, queue) for queue in others] == [[], []]


def test_nobody_but_sagemaker_may_say_so(bench):
    entry = {"Source": "aws.sagemaker", "DetailType": STATE, "Detail": "{}"}
    answer = bench.client("events").put_events(Entries=[entry])
    assert (answer["FailedEntryCount"], answer["Entries"][0]["ErrorCode"]) == (1, "NotAuthorizedForSourceException")


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_of_duplicates_that_is_none_is_refused(share):
    with pytest.raises(ValueError, match=r"duplicate_event_share is .*: use a share from 0 to 1"):
        LocalCloud(settings=LocalSettings(duplicate_event_share=share))
