"""The client of the onboarding API: what it tries again, how long, and what it says when that was in vain."""

import pytest

from mme_cli.errors import NoAnswerError
from mme_cli.onboarding_client import ApiError, StoppedError, retry_after_seconds
from tests.cli.fake_api import FakeApi, Stop, answer, problem


def calls(api, trouble, name="tenant", **options):
    stop = Stop()
    api.trouble[name] = trouble
    return api.client(stop=stop, monotonic=lambda: stop.now, **options), stop


@pytest.mark.parametrize(
    "trouble",
    [
        NoAnswerError("gone"),
        problem(429, "throttled"),
        problem(500, "internal-error"),
        problem(503, "unavailable"),
        problem(504, "timeout"),
        problem(409, "write-conflict"),
        problem(409, "request-in-progress"),
    ],
    ids=["no answer", "429", "500", "503", "504", "write conflict", "in progress"],
)
def test_what_may_pass_is_tried_again(trouble):
    client, stop = calls(FakeApi(), [trouble, trouble])
    assert client.tenant("acme") == {"tenant": "acme"}
    assert stop.waits == [0.2, 0.4]


@pytest.mark.parametrize("trouble", [problem(400, "invalid-request"), problem(403, "forbidden"), problem(409, "version-exists")])
def test_a_refusal_is_not_tried_again_and_says_why(trouble):
    client, stop = calls(FakeApi(), [trouble])
    with pytest.raises(ApiError, match=f"GET /tenants/acme answered {trouble.status}: because of ") as refused:
        client.tenant("acme")
    assert (refused.value.status, stop.waits) == (trouble.status, [])
    assert refused.value.problem in refused.value.document["type"]


def test_an_answer_that_is_no_problem_document_is_shown_as_it_is():
    from mme_cli.signed_http import Answer

    client, _ = calls(FakeApi(), [Answer(403, {"content-type": "application/json"}, b'{"message":"Forbidden"}')])
    with pytest.raises(ApiError, match=r'answered 403: \{"message":"Forbidden"\}') as refused:
        client.tenant("acme")
    assert refused.value.problem == ""


def test_retry_after_is_kept_to_and_the_deadline_ends_it():
    client, stop = calls(FakeApi(), [answer(503, headers={"retry-after": "7"})], deadline_seconds=10)
    assert client.tenant("acme")
    assert stop.waits == [7.0]
    client, stop = calls(FakeApi(), [answer(503, headers={"retry-after": "7"})] * 3, deadline_seconds=10)
    with pytest.raises(ApiError, match="503"):
        client.tenant("acme")
    assert stop.waits == [7.0]
    client, stop = calls(FakeApi(), [NoAnswerError("gone")] * 99, deadline_seconds=10)
    with pytest.raises(NoAnswerError):
        client.tenant("acme")
    assert stop.now <= 10 < stop.now + 2 * stop.waits[-1]


def test_retry_after_may_be_a_date_and_nonsense_counts_for_nothing():
    def seconds(text):
        return retry_after_seconds(answer(503, headers={"retry-after": text}), 1_000_000_000.0)

    assert seconds("Sun, 09 Sep 2001 01:47:00 GMT") == 20.0
    assert seconds("Sun, 09 Sep 2001 01:46:00 GMT") == 0.0
    assert (seconds("soon"), seconds("-3"), seconds("")) == (0.0, 0.0, 0.0)


def test_a_program_that_stops_neither_waits_nor_calls():
    api = FakeApi()
    client, stop = calls(api, [problem(503, "unavailable")])
    api.on_call = lambda _name: stop.set()
    with pytest.raises(StoppedError):
        client.tenant("acme")
    with pytest.raises(StoppedError):
        client.tenant("acme")
    assert api.calls["tenant"] == 1


def test_the_idempotency_key_stays_from_try_to_try_and_changes_from_call_to_call():
    api = FakeApi()
    client, _ = calls(api, [NoAnswerError("gone"), problem(503, "unavailable")], "put_tenant")
    assert client.put_tenant("acme", {"tier": "trusted"}) == {"tenant": "acme", "tier": "trusted"}
    client.put_tenant("acme")
    keys = [key for name, key in api.keys if name == "put_tenant"]
    assert len(keys) == 4
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert None not in keys


def test_lists_are_read_to_their_end():
    api = FakeApi()
    for number in range(8):
        api.versions["acme", f"m{number}"] = []
    assert [model["model"] for model in api.client().models("acme")] == [f"m{number}" for number in range(8)]
    assert api.calls["models"] == 3


def test_a_deletion_is_repeated_until_nothing_is_left():
    api = FakeApi()
    client, _ = calls(api, [answer(202), answer(202)], "delete_model")
    assert client.delete_model("acme", "iris") == {"model": "iris"}
    assert api.calls["delete_model"] == 3
    keys = [key for name, key in api.keys if name == "delete_model"]
    assert len(set(keys)) == 3, "a repeated key would give the first answer again"


def test_activation_and_retirement_say_what_was_asked():
    api = FakeApi()
    api.versions["acme", "iris"] = []
    client = api.client()
    assert client.activate("acme", "iris", "v1-0")["asked"] == {"version": "v1-0"}
    assert client.activate("acme", "iris", "v1-0", 10)["asked"] == {"version": "v1-0", "canary": {"percent": 10}}
    assert client.delete_version("acme", "iris", "v1-0", force=True)["force"] == ["true"]
    assert client.delete_version("acme", "iris", "v1-0")["force"] is None
