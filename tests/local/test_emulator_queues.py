"""Asynchronous invocations: a queue of its own for each function, retries, throttles, and what a template reserves."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mme_local import LocalSettings
from mme_local.emulator_queues import Attempt, InvocationQueue
from tests.local.conftest import LAMBDA_TRUST

ERROR, THROTTLED, FINE = {"error": True}, {"error": True, "throttle": True}, {"body": "ok"}


class Runs:
    """A function that answers what it is told, and knows how many of its runs there were at once."""

    def __init__(self, *results, wait=None):
        self.results, self.wait, self.most, self.now, self.count = list(results), wait, 0, 0, 0
        self.given_up, self.done, self._lock = [], threading.Event(), threading.Lock()

    def __call__(self):
        with self._lock:
            self.now, self.count = self.now + 1, self.count + 1
            self.most = max(self.most, self.now)
            result = self.results.pop(0) if self.results else FINE
        if self.wait:
            assert self.wait.acquire(timeout=20)
        with self._lock:
            self.now -= 1
        if result is FINE:
            self.done.set()
        return result

    def failed(self, result):
        self.given_up.append(result)
        self.done.set()

    def attempt(self, **options):
        return Attempt("f", self, self.failed, **options)


def test_only_so_many_events_of_a_function_run_at_once_and_all_of_them_do(bench):
    go = threading.Semaphore(0)
    runs, queue = Runs(wait=go), InvocationQueue(3)
    for _ in range(20):
        queue.put(runs.attempt())
    bench.wait_for(lambda: runs.now == 3)
    for _ in range(20):
        go.release()
    bench.wait_for(lambda: runs.count == 20 and runs.now == 0)
    assert (runs.most, runs.given_up) == (3, [])


def test_a_function_reserves_less(bench):
    go = threading.Semaphore(20)
    runs, queue = Runs(wait=go), InvocationQueue(8)
    for _ in range(19):
        queue.put(runs.attempt(reserved=1))
    bench.wait_for(lambda: runs.count == 19)
    assert runs.most == 1


def test_throttles_cost_no_attempt_and_errors_do(monkeypatch):
    monkeypatch.setattr("mme_local.emulator_queues._RETRY_SECONDS", 0.001)
    monkeypatch.setattr("mme_local.emulator_queues._THROTTLED_SECONDS", 0.001)
    kept = Runs(ERROR, THROTTLED, THROTTLED, THROTTLED, ERROR, THROTTLED)
    InvocationQueue(1).put(kept.attempt())
    assert kept.done.wait(20)
    assert (kept.count, kept.given_up) == (7, [])
    lost = Runs(ERROR, ERROR, ERROR)
    InvocationQueue(1).put(lost.attempt())
    assert lost.done.wait(20)
    assert (lost.count, lost.given_up) == (3, [ERROR])


@pytest.mark.parametrize("options", [{"reserved": 0}, {"age_seconds": 0}], ids=["concurrency zero", "too old"])
def test_an_event_that_will_never_get_its_turn_is_given_up_at_once(options):
    runs = Runs(THROTTLED)
    InvocationQueue(1).put(runs.attempt(**options))
    assert runs.done.wait(20)
    assert (runs.count, runs.given_up) == (1, [THROTTLED])


def test_what_waits_is_forgotten_when_the_cloud_is_emptied(bench):
    go = threading.Semaphore(0)
    runs, queue = Runs(ERROR, wait=go), InvocationQueue(1)
    for _ in range(5):
        queue.put(runs.attempt())
    bench.wait_for(lambda: runs.now == 1)
    queue.clear()
    go.release()
    bench.wait_for(lambda: runs.now == 0)
    queue.clear()  # the retry of the first
    assert (runs.count, runs.given_up) == (1, [])


def test_the_setting_is_at_least_one():
    with pytest.raises(ValueError, match="asynchronous_executions is 0"):
        LocalSettings(asynchronous_executions=0)


SLOW = """
    import time
    import boto3
    def handler(event, context):
        boto3.client("sqs").send_message(QueueUrl=event["queue"], MessageBody="here")
        time.sleep(event.get("seconds", 0))
"""


def test_an_event_outlasts_a_time_without_free_concurrency(bench):
    send = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"}
    function, queues = bench.function(SLOW, send), bench.client("sqs")
    queue = queues.create_queue(QueueName=bench.name("queue"))["QueueUrl"]

    def received():
        for message in queues.receive_message(QueueUrl=queue).get("Messages", []):
            queues.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
            return True
        return False

    bench.client("lambda").put_function_concurrency(FunctionName=function, ReservedConcurrentExecutions=1)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(bench.invoke, function, {"queue": queue, "seconds": 3.5})  # longer than two retries take
        assert bench.wait_for(received)
        bench.client("lambda").invoke(FunctionName=function, InvocationType="Event", Payload=json.dumps({"queue": queue}).encode())
        held.result()
    assert bench.wait_for(received)


def test_a_template_reserves_concurrency_and_gives_it_back(bench):
    role, stacks, name = bench.role(LAMBDA_TRUST), bench.client("cloudformation"), bench.name("function")

    def template(**properties):
        function = {"FunctionName": name, "Runtime": "python3.13", "Handler": "index.handler", "Role": role, **properties}
        code = {"ZipFile": "def handler(event, context): return 1"}
        return json.dumps({"Resources": {"F": {"Type": "AWS::Lambda::Function", "Properties": {**function, "Code": code}}}})

    def reserved():
        return bench.client("lambda").get_function_concurrency(FunctionName=name).get("ReservedConcurrentExecutions")

    stacks.create_stack(StackName=name, TemplateBody=template(ReservedConcurrentExecutions=2))
    stacks.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
    assert reserved() == 2
    stacks.update_stack(StackName=name, TemplateBody=template(ReservedConcurrentExecutions=0))
    stacks.get_waiter("stack_update_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
    assert reserved() == 0
    refused = bench.client("lambda").invoke
    with pytest.raises(bench.client("lambda").exceptions.TooManyRequestsException):
        refused(FunctionName=name, Payload=b"{}")
    stacks.update_stack(StackName=name, TemplateBody=template())
    stacks.get_waiter("stack_update_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
    assert reserved() is None


def test_a_template_gives_a_function_a_dead_letter_queue_and_takes_it_back(bench):
    role, stacks, queues, name = bench.role(LAMBDA_TRUST), bench.client("cloudformation"), bench.client("sqs"), bench.name("function")
    queue = queues.create_queue(QueueName=bench.name("dead"))["QueueUrl"]
    arn = queues.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]

    def template(**properties):
        function = {"FunctionName": name, "Runtime": "python3.13", "Handler": "index.handler", "Role": role, **properties}
        code = {"ZipFile": "def handler(event, context): raise ValueError"}
        return json.dumps({"Resources": {"F": {"Type": "AWS::Lambda::Function", "Properties": {**function, "Code": code}}}})

    def target():
        return bench.client("lambda").get_function_configuration(FunctionName=name).get("DeadLetterConfig", {}).get("TargetArn")

    stacks.create_stack(StackName=name, TemplateBody=template(DeadLetterConfig={"TargetArn": arn}))
    stacks.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
    assert target() == arn
    bench.client("lambda").invoke(FunctionName=name, InvocationType="Event", Payload=b'{"lost": 1}')
    (message,) = bench.wait_for(lambda: queues.receive_message(QueueUrl=queue).get("Messages"))
    assert '"lost"' in message["Body"]
    stacks.update_stack(StackName=name, TemplateBody=template())
    stacks.get_waiter("stack_update_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
    assert target() is None
