import base64
import json

import pytest

from mme_tenancy.deferred import EVENT_KEY, Deferred, wants_later
from mme_tenancy.errors import UnavailableError
from mme_tenancy.handlers.invocation import Invocations
from mme_tenancy.invocation import Invoker, ModelReply
from mme_tenancy.invocation_path import InvocationPath, looked_up_in
from mme_tenancy.registry import Change
from mme_tenancy.retries import RuntimeFault
from mme_tenancy.routes import Model, Route
from mme_tenancy.tenants import Tenant
from mme_tenancy.testing import MemoryRegistry, ScriptedRuntime

NOW = "2026-11-29T12:00:00.000Z"
ROUTE = Route("endpoint-a", "AllTraffic", "v1-0123456789ab", "acme/iris/v1-0123456789ab.tar.gz")
SECONDS = 390


class MemoryResults:
    """Keeps what was written first."""

    def __init__(self):
        self.kept = {}

    def put(self, tenant, result, part, content):
        return self.kept.setdefault((tenant, result, part), content) is content

    def get(self, tenant, result, part):
        return self.kept.get((tenant, result, part))


class Platform:
    """The function with events that wait to be delivered."""

    def __init__(self, clock, load_event, context, *script, later=True, usage_plans=False):
        registry = MemoryRegistry()
        registry.write(Change(None, Tenant("acme", NOW, NOW, api_key="key-1")), Change(None, Model("acme", "iris", 1, NOW, NOW, ROUTE)))
        self.results, self.events, self.load_event, self.context = MemoryResults(), [], load_event, context
        self.runtime = ScriptedRuntime(*(script or (ModelReply(b"\x93NUMPY\xff", "application/x-npy"),)), clock=clock)
        path = InvocationPath(looked_up_in(registry), Invoker(self.runtime, clock, lambda: 0.5), clock, background=lambda renew: renew())
        deferred = Deferred(self.results, self.events.append, clock, seconds=SECONDS)
        self.function = Invocations(path, clock, usage_plans=usage_plans, deferred=(lambda: deferred) if later else None)

    def post(self, prefer="respond-async", **changes):
        event = self.load_event("invoke") | changes
        event["headers"] = {**event["headers"], "prefer": prefer}
        event["multiValueHeaders"] = {**event["multiValueHeaders"], "prefer": [prefer]}
        return self.function(event, self.context)

    def get(self, result, tenant="acme"):
        event = self.load_event("invoke") | {"httpMethod": "GET", "pathParameters": {"tenant": tenant, "result": result}, "body": None}
        return self.function(event, self.context)

    def deliver(self):
        return [self.function(json.loads(json.dumps(event)), self.context) for event in self.events]


@pytest.fixture
def platform(clock, load_event, context):
    return lambda *script, **options: Platform(clock, load_event, context, *script, **options)


def accepted(answer):
    assert answer["statusCode"] == 202
    assert answer["headers"]["Preference-Applied"] == "respond-async"
    assert int(answer["headers"]["Retry-After"]) > 0
    return answer["headers"]["Location"].removeprefix("../../results/")


def slug(answer):
    return answer["statusCode"], json.loads(answer["body"])["type"].removeprefix("urn:mme:problem:")


def test_the_answer_is_the_one_that_the_call_would_have_got_and_comes_when_the_event_was_run(platform):
    here = platform()
    result = accepted(here.post())
    waiting = here.get(result)
    assert (waiting["statusCode"], waiting["headers"]["Retry-After"]) == (202, "2")
    assert here.runtime.calls == []
    here.deliver()
    assert here.get(result) == platform().post(prefer="return=minimal")
    assert base64.b64decode(here.get(result)["body"]) == b"\x93NUMPY\xff"
    ((target, request, _),) = here.runtime.calls
    assert (target, request.body, request.content_type, request.accept) == (ROUTE.active, b"5.1,3.5,1.4,0.2", "text/csv", "text/csv")


def test_an_event_that_comes_twice_runs_the_model_once(platform):
    here = platform(ModelReply(b"1"), ModelReply(b"2"))
    result = accepted(here.post())
    here.deliver()
    here.deliver()
    assert base64.b64decode(here.get(result)["body"]) == b"1"
    assert len(here.runtime.calls) == 1


def test_a_failure_is_told_as_the_call_would_have_told_it(platform):
    fault = RuntimeFault("ModelError", 424, 400, "no")
    here = platform(fault)
    result = accepted(here.post())
    here.deliver()
    assert here.get(result) == platform(fault).post(prefer="wait=5")
    assert here.get(result)["statusCode"] == 422


def test_a_request_of_an_unknown_model_fails_when_it_is_run(platform):
    here = platform()
    result = accepted(here.post(pathParameters={"tenant": "acme", "model": "rose"}))
    here.deliver()
    assert slug(here.get(result)) == (404, "model-not-found")


@pytest.mark.parametrize("result", ["0" * 32, "", "x", "../acme/" + "0" * 32, "A" * 32, "0" * 32 + ".request"])
def test_ids_that_nobody_got_are_not_found(platform, result):
    assert slug(platform().get(result)) == (404, "not-found")


def test_another_tenants_id_is_not_found(platform):
    here = platform()
    result = accepted(here.post())
    here.deliver()
    assert slug(here.get(result, tenant="globex")) == (404, "not-found")


def test_an_answer_that_does_not_come_is_a_timeout_and_is_not_run_any_more(platform, clock):
    here = platform()
    result = accepted(here.post())
    clock.now += SECONDS
    assert here.get(result)["statusCode"] == 202
    clock.now += 1
    assert slug(here.get(result)) == (504, "timeout")
    here.deliver()
    assert here.runtime.calls == []


def test_answers_are_gone_after_a_day(platform, clock):
    here = platform()
    result = accepted(here.post())
    here.deliver()
    clock.now += 86_400
    assert here.get(result)["statusCode"] == 200
    clock.now += 1
    assert slug(here.get(result)) == (404, "not-found")


def test_one_line_is_written_and_by_the_run(platform, capsys):
    here = platform()
    result = accepted(here.post())
    here.get(result)
    assert capsys.readouterr().out == ""
    here.deliver()
    here.deliver()
    here.get(result)
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["tenant"], line["model"], line["status"], line["attempts"], line["bytes_in"]) == ("acme", "iris", 200, 1, 15)
    assert line["request_id"] == "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"


def test_no_caller_can_write_the_functions_own_event(platform):
    here = platform()
    result = accepted(here.post())
    forged = json.dumps({EVENT_KEY: {"tenant": "acme", "result": result}})
    event = here.load_event("invoke")
    event["headers"] = {**event["headers"], EVENT_KEY: forged}
    event |= {"body": forged, "isBase64Encoded": False, "queryStringParameters": {EVENT_KEY: forged}}
    assert here.function(event, here.context)["statusCode"] == 200
    ((_, request, _),) = here.runtime.calls
    assert request.body == forged.encode(), "it is the model's input and nothing else"
    assert here.get(result)["statusCode"] == 202


@pytest.mark.parametrize(("key", "status"), [("key-1", 200), ("key-2", 403)])
def test_the_api_key_is_looked_at_when_the_request_is_run(platform, key, status):
    here = platform(usage_plans=True)
    context = here.load_event("invoke")["requestContext"]
    result = accepted(here.post(requestContext={**context, "identity": {**context["identity"], "apiKeyId": key}}))
    here.deliver()
    assert here.get(result)["statusCode"] == status


def test_a_call_that_is_wrong_is_refused_at_once(platform):
    here = platform()
    assert slug(here.post(body="%", isBase64Encoded=True)) == (400, "invalid-request")
    assert (here.results.kept, here.events) == ({}, [])


def test_a_run_that_cannot_begin_fails_so_that_the_event_comes_again(platform, monkeypatch):
    here = platform()
    result = accepted(here.post())
    with monkeypatch.context() as patched:

        def unavailable(*_):
            raise UnavailableError("busy")

        patched.setattr(here.results, "get", unavailable)
        with pytest.raises(UnavailableError):
            here.deliver()
    here.deliver()
    assert here.get(result)["statusCode"] == 200


def test_where_no_answer_comes_later_the_preference_is_ignored(platform):
    here = platform(later=False)
    assert here.post()["statusCode"] == 200
    assert slug(here.get("0" * 32)) == (404, "not-found")


@pytest.mark.parametrize(
    ("values", "later"),
    [
        (["respond-async"], True),
        (["Respond-Async, wait=10"], True),
        (["return=minimal", 'foo; bar="x, y" , respond-async;a=b'], True),
        (["wait=10"], False),
        (['foo="respond-async"'], False),
        (['foo="a, respond-async"'], False),
        (["respond-async-not"], False),
        (["", '"', ",,;="], False),
    ],
)
def test_preferences_are_read_as_rfc_7240_writes_them(values, later):
    assert wants_later(values) is later
