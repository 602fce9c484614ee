from __future__ import annotations

import base64
import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from mme_facts.limits import api_binary_body_bytes
from mme_facts.telemetry import ACCESS_FIELDS, METRICS, NAMESPACE, LineSettings
from mme_tenancy.errors import ModelFailedError, ModelLoadingError, ThrottledError, UnavailableError
from mme_tenancy.handlers.invocation import Invocations
from mme_tenancy.invocation import Invoker, ModelReply
from mme_tenancy.invocation_path import InvocationPath, looked_up_in
from mme_tenancy.registry import Change
from mme_tenancy.request_line import RequestLine
from mme_tenancy.retries import RuntimeFault
from mme_tenancy.routes import Canary, Model, Route
from mme_tenancy.tenants import Quotas, Tenant
from mme_tenancy.testing import MemoryRegistry, ScriptedRuntime

NOW = "2026-11-29T12:00:00.000Z"
ROUTE = Route("endpoint-a", "AllTraffic", "v1-0123456789ab", "acme/iris/v1-0123456789ab.tar.gz")
LIMIT = api_binary_body_bytes()
ARRIVED = 1_795_953_600.0


@pytest.fixture
def registry():
    registry = MemoryRegistry()
    registry.write(Change(None, Tenant("acme", NOW, NOW)), Change(None, Model("acme", "iris", 1, NOW, NOW, ROUTE)))
    return registry


@pytest.fixture
def call(registry, clock, load_event, context):
    """Sends the event file with changes against a scripted endpoint; returns the answer and the runtime."""
    clock.now = ARRIVED

    def call(*script, attempt_seconds=0.0, event=None, line_settings=None, usage_plans=False, **changes):
        runtime = ScriptedRuntime(
            *(script or (ModelReply(b"\x93NUMPY\xff", "application/x-npy"),)), clock=clock, attempt_seconds=attempt_seconds
        )
        invoker = Invoker(runtime, clock, lambda: 0.5)
        path = InvocationPath(looked_up_in(registry), invoker, clock, background=lambda renew: renew())
        function = Invocations(path, clock, line_settings or LineSettings(), usage_plans=usage_plans)
        return function(event or load_event("invoke", **changes), context), runtime

    return call


@pytest.fixture
def line(capsys):
    """The one log line of the last call."""

    def line():
        (text,) = capsys.readouterr().out.splitlines()
        return json.loads(text)

    return line


def problem(answer):
    assert answer["headers"]["Content-Type"] == "application/problem+json"
    document = json.loads(answer["body"])
    assert document["status"] == answer["statusCode"]
    return document["type"].removeprefix("urn:mme:problem:"), document


def test_body_and_headers_pass_through_both_ways(call):
    answer, runtime = call()
    assert answer["statusCode"] == 200
    assert base64.b64decode(answer["body"]) == b"\x93NUMPY\xff"
    assert answer["headers"] == {"Content-Type": "application/x-npy", "X-Mme-Version": "v1-0123456789ab", "X-Mme-Attempts": "1"}
    ((target, request, _),) = runtime.calls
    assert (target, request.body, request.content_type, request.accept) == (ROUTE.active, b"5.1,3.5,1.4,0.2", "text/csv", "text/csv")


def test_the_time_left_is_counted_in_real_seconds(call, clock):
    def left():
        ((_, _, timeout_seconds),) = call()[1].calls
        return timeout_seconds

    real = left()
    clock.ahead = 86400.0
    assert left() == real, "a local cloud's scaled clock takes nothing away"
    clock.now += 5.0
    assert left() == real - 5.0, "what passed at the gateway is gone"


def test_a_body_that_is_not_base64_is_text(call, load_event):
    _, runtime = call(event=load_event("invoke") | {"body": "größe", "isBase64Encoded": False})
    assert runtime.calls[0][1].body == "größe".encode()


def test_an_answer_without_a_type_is_bytes(call):
    assert call(ModelReply(b"1"))[0]["headers"]["Content-Type"] == "application/octet-stream"


def test_every_call_writes_one_line_with_metrics(call, line):
    call(RuntimeFault("ModelNotReadyException", 429), ModelReply(b"1.0", "text/csv"))
    entry = line()
    assert {key: entry[key] for key in ("tenant", "model", "version", "endpoint", "placement", "status", "attempts", "cold", "failed")} == {
        "tenant": "acme",
        "model": "iris",
        "version": "v1-0123456789ab",
        "endpoint": "endpoint-a",
        "placement": "shared",
        "status": 200,
        "attempts": 2,
        "cold": 1,
        "failed": 0,
    }
    assert (entry["bytes_in"], entry["bytes_out"], entry["latency_ms"]) == (15, 3, 100.0)
    assert entry["caller"] == "assumed-role/TenantAccess/ci-session"
    (directive,) = entry["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == (NAMESPACE, [["endpoint"]])
    assert {metric["Name"] for metric in directive["Metrics"]} == set(METRICS) & set(entry)
    assert (entry["rejected_by_limit"], entry["circuit_open"]) == (0, 0)


def test_what_has_no_value_claims_no_metric(call, line):
    call(RuntimeFault("Connection"))
    entry = line()
    (directive,) = entry["_aws"]["CloudWatchMetrics"]
    assert set(METRICS) - {metric["Name"] for metric in directive["Metrics"]} == {"model_latency_ms", "bytes_out"}


@pytest.mark.parametrize(
    ("error", "limited", "opened"),
    [
        (ThrottledError("too fast"), 1, 0),
        (ModelLoadingError("too many loads"), 1, 0),
        (ModelFailedError("it rests"), 0, 1),
        (UnavailableError("no session"), 0, 0),
    ],
)
def test_a_request_that_was_not_sent_says_whether_limits_or_the_circuit_breaker_refused_it(clock, error, limited, opened):
    written = []
    entry = RequestLine(clock, LineSettings(), written.append)
    entry.began(ROUTE.active, None)
    entry.failed(error)
    entry.write(error.problem.status)
    told = json.loads(written[0])
    assert (told["rejected_by_limit"], told["circuit_open"], told["attempts"]) == (limited, opened, 0)


def test_a_request_that_follows_its_route_and_is_refused_there_was_sent(clock):
    told = []
    line = RequestLine(clock, LineSettings(), told.append)
    line.began(ROUTE.active, None)
    line.began(replace(ROUTE.active, endpoint="endpoint-b"), None)
    line.failed(ThrottledError("above the limits"))
    line.write(429)
    entry = json.loads(told[0])
    assert (entry["endpoint"], entry["attempts"], entry["rejected_by_limit"], entry["circuit_open"]) == ("endpoint-b", 1, 0, 0)


def test_the_line_tells_retries_and_how_long_the_answered_attempt_took(call, line):
    call(RuntimeFault("ModelNotReadyException", 429), RuntimeFault("ModelNotReadyException", 429), ModelReply(b"1"), attempt_seconds=0.25)
    entry = line()
    assert (entry["retries"], entry["attempts"], entry["model_latency_ms"]) == (2, 3, 250.0)
    assert entry["latency_ms"] == 750.0 + entry["waited_ms"]


@pytest.mark.parametrize(
    ("fault", "known"),
    [
        (RuntimeFault("ModelError", 424, 415), True),
        (RuntimeFault("ModelError", 424, 0), False),
        (RuntimeFault("ReadTimeout"), False),
        (RuntimeFault("ThrottlingException", 400), False),
    ],
)
def test_the_model_latency_of_a_failed_call_is_told_only_if_the_container_answered(call, line, fault, known):
    call(fault, attempt_seconds=0.25)
    assert ("model_latency_ms" in line()) == known


def test_a_tenant_of_the_list_has_metrics_of_its_own(call, line):
    call(line_settings=LineSettings(tenants=("globex", "acme")))
    (directive,) = line()["_aws"]["CloudWatchMetrics"]
    assert directive["Dimensions"] == [["endpoint"], ["endpoint", "tenant"]]
    call(line_settings=LineSettings(tenants=("acme-evil", "acm")))
    (directive,) = line()["_aws"]["CloudWatchMetrics"]
    assert directive["Dimensions"] == [["endpoint"]]


def access(entry):
    return {name for name in ACCESS_FIELDS if name in entry}


@pytest.mark.parametrize(
    ("script", "seconds"),
    [
        ([RuntimeFault("ModelNotReadyException", 429), ModelReply(b"1")], 0.0),
        ([ModelReply(b"1")], 0.6),
        ([RuntimeFault("ModelError", 424, 415)], 0.0),
    ],
    ids=["cold", "slow", "failed"],
)
def test_the_access_log_of_a_cold_slow_or_failed_request_is_never_left_out(call, line, script, seconds):
    call(*script, attempt_seconds=seconds, line_settings=LineSettings(access_share=0.0, slow_ms=500))
    assert {"caller", "request_id"} <= access(line())


def test_a_request_that_is_not_sampled_keeps_every_number_and_tells_nobody(call, line):
    call()
    whole = line()
    call(line_settings=LineSettings(access_share=0.0))
    bare = line()
    assert access(bare) == set()
    assert bare == {name: value for name, value in whole.items() if name not in ACCESS_FIELDS}


def test_a_share_of_the_requests_is_sampled_by_their_id(call, line, load_event):
    event, settings, told = load_event("invoke"), LineSettings(access_share=0.25), []
    for number in range(400):
        event["requestContext"]["requestId"] = f"request-{number}"
        call(event=event, line_settings=settings)
        told.append(bool(access(line())))
    assert 60 < sum(told) < 140
    call(event=event, line_settings=settings)
    assert bool(access(line())) == told[-1], "a retry of the same request is judged alike"


TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0{sampled}"
XRAY = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled={sampled}"


def test_trace_ids_are_logged_and_the_w3c_context_goes_on_to_the_model(call, line):
    _, runtime = call(headers={"TraceParent": TRACEPARENT.format(sampled=0), "x-amzn-trace-id": XRAY.format(sampled=0)})
    entry = line()
    assert (entry["trace_id"], entry["xray_trace_id"]) == ("0af7651916cd43dd8448eb211c80319c", "1-5759e988-bd862e3fe1be46a994272793")
    assert runtime.calls[0][1].traceparent == TRACEPARENT.format(sampled=0)
    assert "sampled" not in entry


def test_lambdas_own_trace_comes_before_the_gateways(call, line, monkeypatch):
    monkeypatch.setenv("_X_AMZN_TRACE_ID", "Root=1-00000001-000000000000000000000001;Sampled=0")
    call(headers={"x-amzn-trace-id": XRAY.format(sampled=0)})
    assert line()["xray_trace_id"] == "1-00000001-000000000000000000000001"


@pytest.mark.parametrize("headers", [{"traceparent": TRACEPARENT.format(sampled=1)}, {"x-amzn-trace-id": XRAY.format(sampled=1)}])
def test_a_request_of_a_sampled_trace_is_in_the_access_log(call, line, headers):
    call(headers=headers, line_settings=LineSettings(access_share=0.0))
    assert "request_id" in line()


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "junk",
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nX-Evil: 1",
        "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-" + "x" * 2000,
    ],
)
def test_a_malformed_trace_context_is_as_if_it_were_not_there(call, line, traceparent):
    answer, runtime = call(headers={"traceparent": traceparent, "x-amzn-trace-id": "Root=2-evil;Sampled=1;;="})
    entry = line()
    assert answer["statusCode"] == 200
    assert runtime.calls[0][1].traceparent is None
    assert not {"trace_id", "xray_trace_id"} & set(entry)


def test_a_later_version_of_the_trace_context_may_have_more_fields(call):
    later = "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"
    assert call(headers={"traceparent": later})[1].calls[0][1].traceparent == later


def test_a_call_that_ends_throttled_is_counted(call, line):
    call(*[RuntimeFault("ThrottlingException", 400)] * 5)
    entry = line()
    assert (entry["status"], entry["throttled"], entry["failed"]) == (429, 1, 0)


def test_a_call_that_finds_no_route_writes_a_line_without_metrics(call, line):
    call(names={"model": "wine"})
    entry = line()
    assert (entry["status"], entry["problem"]) == (404, "model-not-found")
    assert "_aws" not in entry


@pytest.mark.parametrize(
    ("names", "slug", "status"),
    [
        ({"tenant": "nobody"}, "tenant-not-found", 404),
        ({"model": "wine"}, "model-not-found", 404),
        ({"tenant": "ACME"}, "invalid-request", 400),
        ({"model": "../iris"}, "invalid-request", 400),
    ],
)
def test_an_unknown_or_malformed_name_is_refused(call, names, slug, status):
    answer, runtime = call(names=names)
    assert (answer["statusCode"], problem(answer)[0]) == (status, slug)
    assert runtime.calls == []


def test_a_model_without_an_active_version_is_a_conflict(call, registry):
    registry.write(Change(None, Model("acme", "new", 1, NOW, NOW)))
    answer, _ = call(names={"model": "new"})
    assert (answer["statusCode"], problem(answer)[0]) == (409, "no-active-version")


def test_a_body_above_the_limit_is_refused_with_the_limit(call):
    answer, runtime = call(body=bytes(LIMIT + 1))
    slug, document = problem(answer)
    assert (answer["statusCode"], slug, document["allowed"]) == (413, "payload-too-large", f"at most {LIMIT} bytes")
    assert str(LIMIT) in document["detail"]
    assert runtime.calls == []
    assert call(body=bytes(LIMIT))[0]["statusCode"] == 200


def test_an_answer_above_the_limit_says_so(call):
    answer, _ = call(ModelReply(bytes(LIMIT + 1)))
    assert (answer["statusCode"], problem(answer)[0]) == (502, "answer-too-large")


@pytest.mark.parametrize(
    ("fault", "status", "slug", "retry_after"),
    [
        (RuntimeFault("ModelNotReadyException", 429), 503, "model-loading", "5"),
        (RuntimeFault("ServiceUnavailable", 503), 503, "unavailable", "2"),
        (RuntimeFault("NotConnected"), 503, "unavailable", "2"),
        (RuntimeFault("ThrottlingException", 400), 429, "throttled", "2"),
        (RuntimeFault("ModelError", 424, 500), 502, "model-failed", None),
        (RuntimeFault("ModelError", 424, 415), 422, "model-rejected-input", None),
        (RuntimeFault("ReadTimeout"), 503, "model-loading", "5"),
        (RuntimeFault("ModelError", 424, 0), 504, "timeout", "5"),
        (RuntimeFault("ValidationError", 400), 503, "unavailable", None),
    ],
)
def test_a_failure_of_the_endpoint_is_told_by_its_problem(call, fault, status, slug, retry_after):
    answer, _ = call(fault)
    assert (answer["statusCode"], problem(answer)[0], answer["headers"].get("Retry-After")) == (status, slug, retry_after)
    assert "endpoint-a" not in answer["body"]


@pytest.mark.parametrize("late_seconds", [0, 3])
def test_a_cold_model_is_answered_before_the_gateway_cuts(call, clock, late_seconds):
    clock.now = ARRIVED + late_seconds
    answer, runtime = call(RuntimeFault("ModelNotReadyException", 429), attempt_seconds=0.05)
    assert answer["statusCode"] == 503
    assert 22 < clock.now - ARRIVED <= 27.05
    assert len(runtime.calls) > 10


@pytest.mark.parametrize("skew_seconds", [-5000, 5000])
def test_a_wrong_clock_of_the_gateway_leaves_time_for_the_model(call, clock, skew_seconds):
    clock.now = ARRIVED + skew_seconds
    _, runtime = call()
    assert runtime.calls[0][2] >= 17


def test_a_caller_who_waits_less_is_answered_earlier(call, clock):
    answer, _ = call(RuntimeFault("ModelNotReadyException", 429), attempt_seconds=0.05, headers={"x-request-timeout": "1.5"})
    assert problem(answer)[0] == "model-loading"
    assert 0.5 < clock.now - ARRIVED <= 1.55


def test_a_caller_who_waits_longer_than_the_gateway_is_answered_before_it_cuts(call, clock):
    call(RuntimeFault("ModelNotReadyException", 429), attempt_seconds=0.05, headers={"X-Request-Timeout": "600"})
    assert 22 < clock.now - ARRIVED <= 27.05


@pytest.mark.parametrize("text", ["", "soon", "0", "-1", "nan", "inf", "0.9"])
def test_a_waiting_time_that_is_none_is_refused(call, text):
    slug, document = problem(call(headers={"X-Request-Timeout": text})[0])
    assert (slug, document["field"], document["value"]) == ("invalid-request", "X-Request-Timeout", text)


def test_a_tenant_above_its_rate_is_told_when_to_come_again(registry, clock, load_event, context, capsys):
    before = registry.tenant("acme")
    registry.write(Change(before, replace(before, quotas=Quotas(10, 10**6, 2), rev=2)))
    invoker = Invoker(ScriptedRuntime(ModelReply(b"1")), clock, lambda: 0.5)
    function = Invocations(InvocationPath(looked_up_in(registry), invoker, clock, background=lambda renew: renew()), clock)
    answers = [function(load_event("invoke"), context) for _ in range(3)]
    assert [each["statusCode"] for each in answers] == [200, 200, 429]
    assert (problem(answers[2])[0], answers[2]["headers"]["Retry-After"]) == ("throttled", "1")
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["problem"], last["status"], last["attempts"], last["endpoint"]) == ("throttled", 429, 0, "endpoint-a")


def test_the_functions_own_timeout_counts_too(call, clock, context):
    context.seconds = 3
    answer, _ = call(RuntimeFault("ModelNotReadyException", 429), attempt_seconds=0.05)
    assert answer["statusCode"] == 503
    assert clock.now - ARRIVED <= 2.55


def test_a_killed_instance_is_not_seen_by_the_caller(call):
    script = [
        RuntimeFault("ModelError", 424, 503),
        RuntimeFault("NotConnected"),
        RuntimeFault("ServiceUnavailable", 503),
        ModelReply(b"1.0"),
    ]
    answer, _ = call(*script)
    assert (answer["statusCode"], answer["headers"]["X-Mme-Attempts"]) == (200, "4")


@pytest.mark.parametrize("header", ["té", "text/csv\r\nX-Evil: 1"])
def test_a_header_that_cannot_be_sent_is_refused(call, header):
    answer, runtime = call(headers={"content-type": header})
    assert (answer["statusCode"], problem(answer)[0]) == (400, "invalid-request")
    assert runtime.calls == []


def test_an_unexpected_error_shows_no_details_and_is_logged(call, registry, line):
    def broken(*names):
        raise RuntimeError("arn:aws:dynamodb:table/secret")

    registry.model = broken
    answer, _ = call()
    assert (answer["statusCode"], problem(answer)[0]) == (500, "internal-error")
    assert "secret" not in answer["body"]
    assert "secret" in line()["exception"]


@pytest.mark.parametrize("event", [{}, {"pathParameters": None, "requestContext": None, "headers": None, "body": None}])
def test_an_event_without_anything_is_a_problem_too(call, event):
    assert problem(call(event=event | {"isBase64Encoded": False})[0])[0] == "forbidden"


CANARY = Canary("endpoint-b", "Other", "v2-abcdef012345", "acme/iris/v2-abcdef012345.tar.gz", 25)


@pytest.fixture
def canary(registry):
    model = registry.model("acme", "iris")
    registry.write(Change(model, model.reroute(replace(ROUTE, canary=CANARY), NOW)))


def served_by(answer):
    return answer["headers"]["X-Mme-Version"]


def test_while_a_canary_runs_a_sticky_key_always_reaches_the_same_version(call, canary, line):
    counts = Counter()
    for number in range(200):
        versions = set()
        for header in ("X-Mme-Sticky-Key", "x-mme-sticky-key"):
            answer, runtime = call(headers={header: f"user-{number}"})
            versions.add(served_by(answer))
            entry = line()
            assert (entry["version"], entry["endpoint"]) == (runtime.calls[0][0].version, runtime.calls[0][0].endpoint)
            assert entry["canary"] == int(served_by(answer) == CANARY.version)
            assert f"user-{number}" not in json.dumps(entry)
        assert len(versions) == 1
        counts[versions.pop()] += 1
    assert set(counts) == {ROUTE.version, CANARY.version}
    assert 20 < counts[CANARY.version] < 80


def test_requests_without_a_sticky_key_are_spread_by_chance(registry, clock, load_event, context, canary):
    numbers = random.Random(7)
    runtime = ScriptedRuntime(ModelReply(b"1"), clock=clock, attempt_seconds=0.05)
    path = InvocationPath(looked_up_in(registry), Invoker(runtime, clock, lambda: 0.5), clock, background=lambda renew: renew())
    function = Invocations(path, clock, random=numbers.random)
    versions = Counter(served_by(function(load_event("invoke"), context)) for _ in range(200))
    assert 20 < versions[CANARY.version] < 80


def test_without_a_canary_the_line_says_nothing_of_it(call, line):
    call(headers={"X-Mme-Sticky-Key": "user-1"})
    assert "canary" not in line()


@pytest.mark.parametrize("key", ["x" * 257, "a\tb", "a\r\nb", "", " a", "größe"])
def test_a_sticky_key_that_is_too_long_or_no_text_is_refused_and_not_shown(call, key):
    answer, runtime = call(headers={"X-Mme-Sticky-Key": key})
    slug, document = problem(answer)
    assert (slug, document["field"], runtime.calls) == ("invalid-request", "X-Mme-Sticky-Key", [])
    assert len(key) < 4 or key not in answer["body"]


def test_a_deleted_tenant_is_refused_although_its_routes_stand(call, registry):
    tenant = registry.tenant("acme")
    registry.write(Change(tenant, tenant.delete(NOW)))
    answer, runtime = call()
    assert (answer["statusCode"], problem(answer)[0], runtime.calls) == (410, "tenant-deleted", [])


def test_a_deleted_model_is_not_found(call, registry):
    model = registry.model("acme", "iris")
    registry.write(Change(model, model.delete(NOW, retiring_below=None)))
    answer, runtime = call()
    assert (answer["statusCode"], problem(answer)[0], runtime.calls) == (404, "model-not-found", [])


def with_key(event, key):
    context = event["requestContext"]
    return event | {"requestContext": context | {"identity": context["identity"] | {"apiKeyId": key}}}


class TestTheTenantsKey:
    @pytest.mark.parametrize("key", ["k2", "", None])
    def test_a_key_that_is_not_the_tenants_own_is_refused_and_logged(self, call, registry, load_event, line, key):
        registry.write(Change(registry.tenant("acme"), replace(registry.tenant("acme"), api_key="k1", rev=2)))
        answer, runtime = call(event=with_key(load_event("invoke"), key), usage_plans=True)
        assert problem(answer)[0] == "forbidden"
        assert runtime.calls == []
        entry = line()
        assert (entry["status"], entry["refused"], entry["path_tenant"]) == (403, "other-key", "acme")

    def test_no_key_is_the_tenants_own_while_it_has_none(self, call, load_event):
        for key in ("k1", "", None):
            assert problem(call(event=with_key(load_event("invoke"), key), usage_plans=True)[0])[0] == "forbidden"

    def test_its_own_key_passes_and_so_does_a_new_one_at_once(self, registry, clock, load_event, context):
        clock.now = ARRIVED
        runtime = ScriptedRuntime(ModelReply(b"1", "text/csv"), clock=clock)
        path = InvocationPath(looked_up_in(registry), Invoker(runtime, clock, lambda: 0.5), clock, background=lambda renew: renew())
        function = Invocations(path, clock, LineSettings(), usage_plans=True)
        for number, key in enumerate(("k1", "k2"), start=2):
            registry.write(Change(registry.tenant("acme"), replace(registry.tenant("acme"), api_key=key, rev=number)))
            assert function(with_key(load_event("invoke"), key), context)["statusCode"] == 200
        assert function(with_key(load_event("invoke"), "k1"), context)["statusCode"] == 403

    def test_without_usage_plans_nobody_looks_at_keys(self, call, load_event):
        assert call(event=with_key(load_event("invoke"), "k2"))[0]["statusCode"] == 200
