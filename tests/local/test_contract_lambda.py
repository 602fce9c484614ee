"""Limits of functions: size of event and answer, time, memory; and how the end of a runtime is told."""

from __future__ import annotations

import json
import re

import psutil
import pytest
from botocore.exceptions import ClientError

from mme_facts.limits import LAMBDA_ASYNCHRONOUS_EVENT_BYTES, LAMBDA_EVENT_BYTES

WISHES = """
    import os, signal, sys, time
    kept = []
    def handler(event, context):
        wish = event.get("wish")
        if wish == "sleep":
            time.sleep(60)
        if wish == "take":
            kept.append(bytearray(event["mib"] << 20))
            time.sleep(event.get("seconds", 0))
        if wish == "exit":
            sys.exit(3)
        if wish == "signal":
            os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(60)
        return {"pid": os.getpid(), "kept": len(kept), "text": "x" * event.get("size", 0)}
"""


def call(bench, function, event=None, **options):
    """Error type of an invocation (None without) and what it answered."""
    body = event if isinstance(event, bytes) else json.dumps(event or {}).encode()
    answer = bench.client("lambda").invoke(FunctionName=function, Payload=body, **options)
    document = json.load(answer["Payload"])
    assert ("FunctionError" in answer) == ("errorType" in document)
    return document.get("errorType"), document


@pytest.fixture
def bench(module_bench):
    return module_bench


@pytest.fixture
def function(bench):
    return bench.function(WISHES)


def event_of(size):
    """An event of exactly so many bytes."""
    return b'{"pad":"' + b"x" * (size - 10) + b'"}'


class TestSizes:
    def test_an_event_may_have_6_mb_and_no_byte_more(self, bench, function):
        assert call(bench, function, event_of(LAMBDA_EVENT_BYTES))[0] is None
        with pytest.raises(ClientError, match=f"smaller than {LAMBDA_EVENT_BYTES} bytes") as refused:
            call(bench, function, event_of(LAMBDA_EVENT_BYTES + 1))
        assert refused.value.response["Error"]["Code"] == "RequestTooLargeException"
        assert isinstance(refused.value, bench.client("lambda").exceptions.RequestTooLargeException)

    def test_an_asynchronous_event_may_have_1_mb_and_no_byte_more(self, bench, function):
        invoke = bench.client("lambda").invoke
        accepted = invoke(FunctionName=function, InvocationType="Event", Payload=event_of(LAMBDA_ASYNCHRONOUS_EVENT_BYTES))
        assert accepted["StatusCode"] == 202
        with pytest.raises(ClientError, match=f"smaller than {LAMBDA_ASYNCHRONOUS_EVENT_BYTES} bytes"):
            invoke(FunctionName=function, InvocationType="Event", Payload=event_of(LAMBDA_ASYNCHRONOUS_EVENT_BYTES + 1))

    def test_an_answer_beyond_6_mb_is_an_error(self, bench, function):
        assert call(bench, function, {"size": LAMBDA_EVENT_BYTES - 100})[0] is None
        kind, answer = call(bench, function, {"size": LAMBDA_EVENT_BYTES})
        assert kind == "Function.ResponseSizeTooLarge"
        assert f"({LAMBDA_EVENT_BYTES} bytes)" in answer["errorMessage"]
        assert call(bench, function)[0] is None


class TestTime:
    def test_a_function_that_takes_too_long_is_ended(self, bench, function):
        pid = call(bench, function)[1]["pid"]
        bench.client("lambda").update_function_configuration(FunctionName=function, Timeout=1)
        bench.client("lambda").get_waiter("function_updated_v2").wait(
            FunctionName=function, WaiterConfig={"Delay": 0.1, "MaxAttempts": 100}
        )
        kind, answer = call(bench, function, {"wish": "sleep"})
        assert (kind, "timed out after 1.00 seconds" in answer["errorMessage"]) == ("Sandbox.Timedout", True)
        kind, answer = call(bench, function)
        assert (kind, answer["pid"] != pid) == (None, True)


class TestMemory:
    def test_a_function_that_takes_more_than_it_has_is_killed_and_the_next_call_finds_a_new_one(self, bench, function):
        first = call(bench, function, {"wish": "take", "mib": 20})[1]
        kind, answer = call(bench, function, {"wish": "take", "mib": 400, "seconds": 60})
        assert kind == "Runtime.ExitError"
        assert re.fullmatch(r"RequestId: [0-9a-f-]{36} Error: Runtime exited with error: signal: killed", answer["errorMessage"])
        bench.wait_for(lambda: not psutil.pid_exists(first["pid"]))
        kind, answer = call(bench, function)
        assert (kind, answer["kept"]) == (None, 0)

    def test_memory_that_is_kept_from_call_to_call_adds_up(self, bench, function):
        kinds = [call(bench, function, {"wish": "take", "mib": 30})[0] for _ in range(5)]
        assert kinds[:2] == [None, None]
        assert "Runtime.ExitError" in kinds

    def test_more_memory_lets_it_pass_and_a_neighbour_is_not_touched(self, bench, function):
        large = bench.function(WISHES, MemorySize=1024)
        pid = call(bench, function)[1]["pid"]
        assert call(bench, large, {"wish": "take", "mib": 400})[0] is None
        assert call(bench, function)[1]["pid"] == pid

    def test_a_module_that_takes_too_much_when_it_is_imported_is_killed(self, bench):
        greedy = bench.function("import time\nkept = bytearray(400 << 20)\ntime.sleep(60)\ndef handler(event, context):\n    return 1\n")
        kind, answer = call(bench, greedy)
        assert (kind, answer["errorMessage"].endswith("signal: killed")) == ("Runtime.ExitError", True)

    def test_an_api_answers_502_for_a_function_that_is_killed(self, bench):
        greedy = bench.function("def handler(event, context):\n    import time\n    kept = bytearray(400 << 20)\n    time.sleep(60)\n")
        assert bench.call("GET", f"{bench.rest_api(greedy)}/a", bench.cloud.admin).status_code == 502

    def test_the_report_tells_the_memory_that_was_used(self, bench, function):
        call(bench, function, {"wish": "take", "mib": 40, "seconds": 0.2})
        logs, group = bench.client("logs"), f"/aws/lambda/{function.rpartition(':')[2]}"

        def reports():
            events = logs.filter_log_events(logGroupName=group)["events"]
            return [event["message"] for event in events if event["message"].startswith("REPORT")]

        (report,) = bench.wait_for(reports)
        used = int(re.search(r"Max Memory Used: (\d+) MB", report)[1])
        assert 40 < used <= 128


class TestEnds:
    def test_a_runtime_that_exits_is_told_with_its_status(self, bench, function):
        kind, answer = call(bench, function, {"wish": "exit"})
        assert (kind, answer["errorMessage"].endswith("Error: Runtime exited with error: exit status 3")) == ("Runtime.ExitError", True)
        assert call(bench, function)[0] is None

    def test_a_runtime_that_a_signal_ends_is_told_with_its_name(self, bench, function):
        kind, answer = call(bench, function, {"wish": "signal"})
        assert (kind, answer["errorMessage"].endswith("signal: segmentation fault")) == ("Runtime.ExitError", True)
