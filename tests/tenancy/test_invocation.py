"""Each row of the retry table: how many attempts, how long the waits, which error."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mme_facts.limits import INVOKE_BODY_BYTES
from mme_tenancy.errors import (
    InvalidRequestError,
    ModelFailedError,
    ModelLoadingError,
    PayloadTooLargeError,
)
from mme_tenancy.invocation import InvocationRequest, Invoker, ModelReply
from mme_tenancy.retries import RULES, Failure, RetryBudget, RuntimeFault, classify
from mme_tenancy.routes import Target
from mme_tenancy.testing import FakeClock, ScriptedRuntime
from tests.tenancy.retry_rows import DEADLINE_SECONDS, ROWS

TARGET = Target("endpoint-a", "AllTraffic", "v1-0123456789ab", "acme/iris/v1-0123456789ab.tar.gz")
REQUEST = InvocationRequest(b"1,2", "text/csv")
REPLY = ModelReply(b"1.0", "text/csv")


def invoke(clock, *script, seconds=27.0, attempt_seconds=0.01, random=0.5, request=REQUEST, budget=None):
    runtime = ScriptedRuntime(*script, clock=clock, attempt_seconds=attempt_seconds)
    outcome = Invoker(runtime, clock, lambda: random, budget).invoke(TARGET, request, deadline=clock.monotonic() + seconds)
    assert outcome.attempts == len(runtime.calls)
    return outcome, runtime


def test_every_failure_is_in_the_table_and_has_a_tested_row():
    assert set(RULES) == set(Failure) == {row.failure for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_of_the_table(clock, row):
    fault = RuntimeFault(row.code, row.http_status, row.original_status, row.message)
    assert classify(fault) is row.failure
    outcome, _ = invoke(clock, fault, seconds=DEADLINE_SECONDS)
    assert outcome.failure is row.failure
    assert outcome.attempts == row.attempts
    assert outcome.waited_seconds == pytest.approx(row.waited_seconds, abs=1e-6)
    assert type(outcome.error) is row.error
    assert outcome.error.problem.status == row.status
    with pytest.raises(row.error):
        outcome.answer()


@pytest.mark.parametrize("failure", Failure)
def test_no_text_for_callers_names_anything_internal(failure):
    text = str(RULES[failure].failed().document()).lower()
    assert not any(word in text for word in ("arn:", "s3:", "bucket", "sagemaker", "traceback", "endpoint-a", "lambda"))


def test_an_answer_needs_one_attempt(clock):
    outcome, runtime = invoke(clock, REPLY)
    assert outcome.answer() == REPLY
    assert (outcome.attempts, outcome.cold, outcome.waited_seconds) == (1, False, 0.0)
    assert runtime.calls == [(TARGET, REQUEST, pytest.approx(27.0))]


def test_a_cold_model_is_waited_for(clock):
    not_ready = RuntimeFault("ModelNotReadyException", 429)
    outcome, _ = invoke(clock, not_ready, not_ready, not_ready, REPLY)
    assert (outcome.answer(), outcome.attempts, outcome.cold) == (REPLY, 4, True)
    assert outcome.waited_seconds == pytest.approx(0.7)


def test_a_killed_instance_is_not_seen_by_the_caller(clock):
    script = [RuntimeFault("ConnectionLost"), RuntimeFault("ModelError", 424, 503), *[RuntimeFault("ServiceUnavailable", 503)] * 5, REPLY]
    assert invoke(clock, *script)[0].answer() == REPLY


def test_each_kind_of_failure_has_its_own_count(clock):
    script = [RuntimeFault("ModelError", 424, 500), RuntimeFault("ModelNotReadyException", 429), RuntimeFault("ModelError", 424, 500)]
    outcome, _ = invoke(clock, *script)
    assert (outcome.attempts, type(outcome.error), outcome.cold) == (3, ModelFailedError, True)


@pytest.mark.parametrize(("seconds", "attempts"), [(12.0, 2), (9.0, 1)])
def test_an_attempt_that_timed_out_is_repeated_only_if_as_much_time_is_left(clock, seconds, attempts):
    outcome, _ = invoke(clock, RuntimeFault("ReadTimeout"), seconds=seconds, attempt_seconds=5.0)
    assert (outcome.attempts, outcome.failure) == (attempts, Failure.TIMED_OUT)


def test_an_attempt_gets_the_time_that_is_left(clock):
    _, runtime = invoke(clock, RuntimeFault("ServiceUnavailable", 503), REPLY, seconds=10, attempt_seconds=4)
    assert [timeout for _, _, timeout in runtime.calls] == pytest.approx([10.0, 5.9])


def test_no_attempt_begins_too_late(clock):
    outcome, _ = invoke(clock, RuntimeFault("ServiceUnavailable", 503), seconds=10, attempt_seconds=4)
    assert outcome.attempts == 3


def test_a_deadline_that_has_passed_still_makes_one_attempt(clock):
    assert invoke(clock, REPLY, seconds=-5)[0].answer() == REPLY
    outcome, runtime = invoke(clock, RuntimeFault("ModelNotReadyException", 429), seconds=-5)
    assert (outcome.attempts, type(outcome.error)) == (1, ModelLoadingError)
    assert runtime.calls[0][2] > 0


@given(
    faults=st.lists(
        st.sampled_from(
            [RuntimeFault("ModelNotReadyException", 429), RuntimeFault("NotConnected"), RuntimeFault("ThrottlingException", 400)]
        ),
        min_size=1,
        max_size=30,
    ),
    random=st.floats(0, 1, exclude_max=True),
    seconds=st.floats(0.5, 60),
)
def test_waits_and_attempts_never_pass_the_deadline(faults, random, seconds):
    clock = FakeClock(now=0.0)
    invoke(clock, *faults, seconds=seconds, random=random, attempt_seconds=0.1)
    assert clock.monotonic() <= seconds + 0.1


@pytest.mark.parametrize("random", [0.0, 0.999])
def test_jitter_is_half_to_one_and_a_half_of_the_wait(random):
    rule = RULES[Failure.UNAVAILABLE]
    assert [rule.wait_seconds(retry, random) for retry in (0, 1, 9)] == pytest.approx([wait * (0.5 + random) for wait in (0.1, 0.2, 2.0)])


def test_what_may_be_tried_again_says_when():
    waits = {failure: rule.retry_after_seconds for failure, rule in RULES.items() if rule.retry_after_seconds}
    assert set(RULES) - set(waits) == {Failure.WORKER_DIED, Failure.MODEL_FAILED, Failure.INPUT_REJECTED, Failure.REFUSED}


MAY_HAVE_RUN = [RuntimeFault("ReadTimeout"), RuntimeFault("ConnectionLost"), RuntimeFault("ModelError", 424, 500)]


@pytest.mark.parametrize("fault", MAY_HAVE_RUN)
def test_a_request_that_must_not_run_twice_is_sent_once_when_the_model_may_have_begun(clock, fault):
    outcome, _ = invoke(clock, fault, request=replace(REQUEST, idempotent=False))
    assert (outcome.attempts, outcome.waited_seconds) == (1, 0.0)


@pytest.mark.parametrize("code", ["ModelNotReadyException", "ThrottlingException", "ServiceUnavailable", "NotConnected"])
def test_a_request_that_must_not_run_twice_is_still_sent_again_when_the_model_has_not_begun(clock, code):
    outcome, _ = invoke(clock, RuntimeFault(code, 429), REPLY, request=replace(REQUEST, idempotent=False))
    assert (outcome.answer(), outcome.attempts) == (REPLY, 2)


@pytest.mark.parametrize(
    "message",
    [
        "Endpoint shared of account 123456789012 not found.",
        "Variant AllTraffic not found for endpoint shared.",
        'Could not find inference component "iris".',
        "Failed to download model data(bucket: b, key: k). Please ensure that there is an object",
    ],
)
def test_a_target_that_is_gone_is_told_from_a_refused_request(clock, message):
    fault = RuntimeFault("ValidationError", 400, message=message)
    outcome, _ = invoke(clock, fault)
    assert (outcome.failure, outcome.attempts, outcome.error.retry_after_seconds) == (Failure.TARGET_GONE, 1, 2)


def test_an_empty_budget_ends_the_retries_of_a_short_service_and_answers_fill_it_again(clock):
    throttled, budget = RuntimeFault("ThrottlingException", 400), RetryBudget(capacity=6, returned=0.5)
    attempts = [invoke(clock, throttled, budget=budget)[0].attempts for _ in range(4)]
    assert attempts == [5, 3, 1, 1]
    for _ in range(4):
        assert invoke(clock, REPLY, budget=budget)[0].attempts == 1
    assert invoke(clock, throttled, budget=budget)[0].attempts == 3


@pytest.mark.parametrize("fault", [RuntimeFault("ModelNotReadyException", 429), RuntimeFault("ModelError", 424, 500)])
def test_a_cold_model_and_a_dead_worker_cost_no_budget(clock, fault):
    budget = RetryBudget(capacity=0)
    assert invoke(clock, fault, REPLY, budget=budget)[0].attempts == 2
    assert invoke(clock, RuntimeFault("ServiceUnavailable", 503), REPLY, budget=budget)[0].attempts == 1


def test_a_body_above_sagemakers_limit_is_never_sent(clock):
    runtime = ScriptedRuntime(REPLY)
    invoker = Invoker(runtime, clock, lambda: 0.5)
    with pytest.raises(PayloadTooLargeError, match=str(INVOKE_BODY_BYTES)):
        invoker.invoke(TARGET, InvocationRequest(bytes(INVOKE_BODY_BYTES + 1)), deadline=100)
    assert runtime.calls == []


@pytest.mark.parametrize("value", ["text/csv\r\nX-Evil: 1", "té", "x" * 1025, "a\x00b"])
@pytest.mark.parametrize("field", ["content_type", "accept"])
def test_a_header_that_cannot_be_sent_is_refused(field, value):
    with pytest.raises(InvalidRequestError):
        InvocationRequest(b"", **{field: value}).check()
