"""A version is loaded before requests are switched to it: when it is called, when not, and what happens if it cannot be."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from mme_tenancy.activation import Activator
from mme_tenancy.errors import ForbiddenMoveError, ModelFailedError, NotWarmedError
from mme_tenancy.handlers.onboarding import Onboarding
from mme_tenancy.invocation import Invoker, ModelReply
from mme_tenancy.registration import Registrar
from mme_tenancy.registry import Change
from mme_tenancy.retirement import Retirer
from mme_tenancy.retries import RuntimeFault
from mme_tenancy.testing import MemoryIdempotencyStore, MemoryRegistry, MemorySigner, ScriptedRuntime
from mme_tenancy.versions import State
from mme_tenancy.warming import SampleCaller
from tests.tenancy.test_activation import POOLS, filled, to

ANSWERED = ModelReply(b"1")
LOADING = RuntimeFault("ModelNotReadyException", 429)
BUSY = RuntimeFault("ServiceUnavailable", 503)
TIMED_OUT = RuntimeFault("ReadTimeout")
DENIED = RuntimeFault("AccessDeniedException", 403)


def broken(status):
    return RuntimeFault("ModelError", 424, status)


@pytest.fixture
def warm(clock):
    """Activates with a runtime that answers by a script; the calls it got."""

    def warm(registry, version, *script, percent=100.0, seconds=20.0, attempt_seconds=0.0):
        runtime = ScriptedRuntime(*script or (ANSWERED,), clock=clock, attempt_seconds=attempt_seconds)
        activator = Activator(registry, POOLS, clock, lambda: 0.5, SampleCaller(Invoker(runtime, clock, lambda: 0.5)))
        try:
            activator.activate("acme", "iris", version, percent=percent, warm_until=clock.monotonic() + seconds)
        finally:
            warm.calls = [(target.endpoint, target.target_model, request) for target, request, _timeout in runtime.calls]
        return warm.calls

    return warm


def test_a_version_answers_its_own_sample_before_the_route_names_it(make_version, clock):
    registry, (first, second) = filled(make_version, State.ACTIVE, State.READY, route=lambda v: to(v[0]))
    seen = []

    class Watching(ScriptedRuntime):
        def invoke(self, target, request, timeout_seconds):
            seen.append(registry.model("acme", "iris").route.version)
            return super().invoke(target, request, timeout_seconds)

    runtime = Watching(LOADING, LOADING, ANSWERED)
    activator = Activator(registry, POOLS, clock, lambda: 0.5, SampleCaller(Invoker(runtime, clock, lambda: 0.5)))
    model = activator.activate("acme", "iris", second, warm_until=clock.monotonic() + 20)
    assert (seen, model.route.version) == ([str(first)] * 3, str(second))
    target, request, _ = runtime.calls[0]
    assert (target.endpoint, target.target_model) == ("endpoint-a", f"acme/iris/{second}.tar.gz")
    assert (request.body, request.content_type, request.accept) == (b"5.1,3.5,1.4,0.2", "text/csv", "text/csv")
    assert request.warm_up == "activation"


def test_the_way_back_and_a_canary_are_warmed_too(make_version, warm):
    registry, (first, second) = filled(make_version, State.READY, State.ACTIVE, route=lambda v: to(v[1]))
    assert len(warm(registry, first, percent=10)) == 1
    assert len(warm(registry, first, percent=40)) == 1, "a canary with few requests may have left the instances"
    assert len(warm(registry, first)) == 1
    assert registry.model("acme", "iris").route.versions == (str(first),)
    (call,) = warm(registry, second)
    assert call[1] == f"acme/iris/{second}.tar.gz"


def test_what_gets_no_more_requests_is_not_called(make_version, warm):
    registry, (first, second) = filled(make_version, State.ACTIVE, State.ACTIVE, route=lambda v: to(v[0], v[1]))
    assert warm(registry, second, percent=10) == [], "as it was"
    assert warm(registry, second, percent=5) == []
    assert warm(registry, first) == [], "ending a canary is a way back that waits for nothing"
    assert warm(registry, first) == []
    assert registry.model("acme", "iris").route.versions == (str(first),)


def test_a_canary_that_ends_is_not_called(make_version, warm):
    registry, (_, second) = filled(make_version, State.ACTIVE, State.ACTIVE, route=lambda v: to(v[0], v[1]))
    assert warm(registry, second, percent=0) == []
    assert registry.model("acme", "iris").route.canary is None


def test_beside_a_component_only_the_version_of_the_shared_pool_is_called(make_version, warm):
    registry, (first, second) = filled(
        make_version, State.ACTIVE, State.READY, route=lambda v: replace(to(v[0]), endpoint="endpoint-d", component="acme-iris-1")
    )
    assert warm(registry, first) == []
    assert [call[0] for call in warm(registry, second)] == ["endpoint-a"]


def test_where_no_model_stays_loaded_nothing_is_called(make_version, clock):
    registry, (_, second) = filled(make_version, State.ACTIVE, State.READY, route=lambda v: to(v[0]))
    runtime = ScriptedRuntime(ANSWERED)
    pools = [replace(pool, keeps_loaded=False) for pool in POOLS]
    activator = Activator(registry, pools, clock, lambda: 0.5, SampleCaller(Invoker(runtime, clock, lambda: 0.5)))
    assert activator.activate("acme", "iris", second, warm_until=clock.monotonic() + 20).route.version == str(second)
    assert runtime.calls == []


def test_without_a_wish_or_a_warmer_nothing_is_called(make_version, clock):
    registry, (_, second) = filled(make_version, State.ACTIVE, State.READY, route=lambda v: to(v[0]))
    runtime = ScriptedRuntime(ANSWERED)
    warmer = SampleCaller(Invoker(runtime, clock, lambda: 0.5))
    Activator(registry, POOLS, clock, lambda: 0.5, warmer).activate("acme", "iris", second, percent=10)
    Activator(registry, POOLS, clock, lambda: 0.5).activate("acme", "iris", second, warm_until=clock.monotonic() + 20)
    assert runtime.calls == []
    assert registry.model("acme", "iris").route.version == str(second)


def test_what_may_not_get_requests_is_refused_before_anything_is_called(make_version, warm):
    registry, (_, second) = filled(make_version, State.ACTIVE, State.RETIRED, route=lambda v: to(v[0]))
    with pytest.raises(ForbiddenMoveError):
        warm(registry, second)
    assert warm.calls == []


@pytest.mark.parametrize("fault", [LOADING, TIMED_OUT, BUSY, DENIED], ids=["loading", "timed out", "busy", "denied"])
def test_a_version_that_is_not_loaded_in_time_leaves_the_route_and_may_be_tried_again(make_version, warm, clock, fault):
    registry, (_, second) = filled(make_version, State.ACTIVE, State.READY, route=lambda v: to(v[0]))
    before, began = dict(registry.records), clock.monotonic()
    with pytest.raises(NotWarmedError, match="no request was switched to it") as caught:
        warm(registry, second, fault, attempt_seconds=3)
    assert registry.records == before
    assert clock.monotonic() - began < 24
    assert (caught.value.problem.status, caught.value.retry_after_seconds) == (503, 5)
    assert ("loading goes on" in caught.value.detail) == (fault in (LOADING, TIMED_OUT))
    assert "'warm': false" in caught.value.detail
    assert len(warm(registry, second)) == 1
    assert registry.model("acme", "iris").route.version == str(second)


@pytest.mark.parametrize("status", [400, 500, 503])
def test_a_version_that_fails_on_its_sample_is_to_blame_and_leaves_the_route(make_version, warm, status):
    registry, (first, second) = filled(make_version, State.ACTIVE, State.READY, route=lambda v: to(v[0]))
    with pytest.raises(ModelFailedError, match=f"sample payload.* of version {second}, so no request was switched") as caught:
        warm(registry, second, broken(status), percent=10)
    assert caught.value.retry_after_seconds is None
    assert registry.model("acme", "iris").route.versions == (str(first),)


def test_a_conflict_after_the_load_decides_anew_and_does_not_load_twice(make_version, clock):
    class Contested(MemoryRegistry):
        """Its first change of the route meets another one."""

        contested = False

        def write(self, *changes, quotas=None):
            model = self.records.get(("model", "acme", "iris"))
            if model is not None and not self.contested:
                self.contested = True
                super().write(Change(model, model.count_up("2026-11-29T12:00:01.000Z")))
            super().write(*changes, quotas=quotas)

    registry, (_, second) = filled(make_version, State.ACTIVE, State.READY, registry=Contested(), route=lambda v: to(v[0]))
    runtime = ScriptedRuntime(ANSWERED)
    activator = Activator(registry, POOLS, clock, lambda: 0.5, SampleCaller(Invoker(runtime, clock, lambda: 0.5)))
    assert activator.activate("acme", "iris", second, warm_until=clock.monotonic() + 20).route.version == str(second)
    assert (registry.contested, len(runtime.calls)) == (True, 1)


def test_a_version_that_is_retired_while_it_loads_gets_no_requests(make_version, clock):
    registry, (first, second) = filled(make_version, State.ACTIVE, State.READY, route=lambda v: to(v[0]))

    class Retiring(ScriptedRuntime):
        def invoke(self, target, request, timeout_seconds):
            Retirer(registry, clock, lambda: 0.5, grace_seconds=60).retire_version("acme", "iris", second, force=False)
            return super().invoke(target, request, timeout_seconds)

    activator = Activator(registry, POOLS, clock, lambda: 0.5, SampleCaller(Invoker(Retiring(ANSWERED), clock, lambda: 0.5)))
    with pytest.raises(ForbiddenMoveError, match="is retired"):
        activator.activate("acme", "iris", second, warm_until=clock.monotonic() + 20)
    assert registry.model("acme", "iris").route.versions == (str(first),)


class TestThroughTheApi:
    @pytest.fixture
    def call(self, make_version, clock, load_event, context):
        """Sends an activation of version 2 to a function whose runtime answers by a script; status, document and the calls it made."""
        registry, (_, second) = filled(make_version, State.ACTIVE, State.READY, route=lambda v: to(v[0]))
        store = MemoryIdempotencyStore()

        def call(*script, key=None, attempt_seconds=0.0, **body):
            runtime = ScriptedRuntime(*script, clock=clock, attempt_seconds=attempt_seconds)
            activator = Activator(registry, POOLS, clock, lambda: 0.5, SampleCaller(Invoker(runtime, clock, lambda: 0.5)))
            registrar = Registrar(registry, MemorySigner(clock), POOLS, clock, lambda: 0.5)
            retirer = Retirer(registry, clock, lambda: 0.5, grace_seconds=60)
            api = Onboarding(registry, registrar, activator, retirer, store, 10_000_000, clock)
            headers = {} if key is None else {"Idempotency-Key": key}
            event = load_event("activate", body=json.dumps({"version": str(second), **body}).encode(), headers=headers)
            answer = api(event, context)
            return answer["statusCode"], json.loads(answer["body"]), runtime.calls, answer["multiValueHeaders"]

        return call

    def test_a_problem_frees_the_key_and_the_next_try_finds_the_version_loaded(self, call, clock):
        began = clock.monotonic()
        status, document, _, headers = call(LOADING, key="k-1", attempt_seconds=1)
        assert (status, document["type"], headers["Retry-After"]) == (503, "urn:mme:problem:not-warmed", ["5"])
        assert clock.monotonic() - began < 21
        assert call(ANSWERED, key="k-1")[0] == 200
        status, _, calls, headers = call(ANSWERED, key="k-1")
        assert (status, calls, headers["Idempotency-Replayed"]) == (200, [], ["true"])

    def test_it_is_switched_at_once_if_that_is_wanted(self, call):
        status, document, calls, _ = call(LOADING, warm=False)
        assert (status, calls) == (200, [])
        assert document["active_version"].startswith("v2-")

    @pytest.mark.parametrize("value", [None, 0, "false"])
    def test_a_wish_that_is_none_is_refused(self, call, value):
        status, document, calls, _ = call(ANSWERED, warm=value)
        assert (status, document["field"], calls) == (400, "warm", [])

    def test_a_model_that_fails_is_another_problem(self, call):
        status, document, _, _ = call(broken(500))
        assert (status, document["type"], document["field"]) == (502, "urn:mme:problem:model-failed", "version")

    def test_a_function_with_less_time_gives_up_before_it_is_stopped(self, call, context, clock, monkeypatch):
        monkeypatch.setattr(context, "get_remaining_time_in_millis", lambda: 8_000, raising=False)
        began = clock.monotonic()
        assert call(LOADING)[0] == 503
        assert clock.monotonic() - began <= 5
