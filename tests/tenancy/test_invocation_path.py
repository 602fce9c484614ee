from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mme_tenancy.errors import (
    InvalidRequestError,
    InvocationTimeoutError,
    ModelFailedError,
    ModelLoadingError,
    ModelNotFoundError,
    ModelRejectedInputError,
    NoActiveVersionError,
    PayloadTooLargeError,
    TenantDeletedError,
    TenantNotFoundError,
    ThrottledError,
    UnavailableError,
)
from mme_tenancy.fairness import Breaker, Fairness
from mme_tenancy.invocation import InvocationRequest, Invoker, ModelReply, ModelStream
from mme_tenancy.invocation_path import Addressee, InvocationPath, looked_up_in
from mme_tenancy.registry import Change
from mme_tenancy.retries import Failure, RuntimeFault
from mme_tenancy.routes import Canary, Model, Route
from mme_tenancy.tenants import Quotas, Tenant
from mme_tenancy.testing import FakeClock, MemoryRegistry, ScriptedRuntime

NOW = "2026-11-29T12:00:00.000Z"
REQUEST = InvocationRequest(b"1,2", "text/csv")
REPLY = ModelReply(b"1.0", "text/csv")
GONE = RuntimeFault("ValidationError", 400, message="Endpoint shared of account 123456789012 not found.")
OLD = Route("shared", "AllTraffic", "v1-0123456789ab", "acme/iris/v1-0123456789ab.tar.gz")
NEW = Route("moved", "AllTraffic", "v2-0123456789ab", "acme/iris/v2-0123456789ab.tar.gz")


class CountingRegistry(MemoryRegistry):
    """Counts reads; ``down`` makes them fail."""

    def __init__(self):
        super().__init__()
        self.reads, self.down = 0, False

    def read(self, *keys):
        self.reads += 1
        if self.down:
            raise UnavailableError("down")
        return super().read(*keys)


class Acting:
    """Keeps who acted."""

    def __init__(self):
        self.now, self.all = None, []

    @contextmanager
    def acting_as(self, tenant, *, deadline):
        self.now = tenant
        self.all.append((tenant, deadline))
        yield
        self.now = None


@pytest.fixture
def registry():
    registry = CountingRegistry()
    registry.write(Change(None, Tenant("acme", NOW, NOW, quotas=Quotas(10, 10**6, 10))))
    registry.write(Change(None, Model("acme", "iris", 1, NOW, NOW, OLD)))
    return registry


@pytest.fixture
def soon():
    return []


@pytest.fixture
def make_path(registry, clock, soon):
    def make(*script, **options):
        runtime = ScriptedRuntime(*script, clock=clock, attempt_seconds=0.01)
        path = InvocationPath(looked_up_in(registry), Invoker(runtime, clock, lambda: 0.5), clock, background=soon.append, **options)
        return path, runtime

    return make


def invoke(path, clock, model="iris", tenant="acme", seconds=10.0, sticky_key="u1", **options):
    return path.invoke(tenant, model, REQUEST, deadline=clock.monotonic() + seconds, sticky_key=sticky_key, **options)


def reroute(registry, route):
    before = registry.model("acme", "iris")
    registry.write(Change(before, replace(before, route=route, rev=before.rev + 1)))


def test_a_request_goes_where_the_route_says_and_the_route_is_read_once(make_path, registry, clock):
    path, runtime = make_path(REPLY)
    for _ in range(3):
        assert invoke(path, clock).outcome.answer() == REPLY
    assert registry.reads == 1
    assert {target for target, _, _ in runtime.calls} == {OLD.active}


def test_a_new_route_is_followed_after_the_old_one_was_renewed_behind(make_path, registry, clock, soon):
    path, _ = make_path(REPLY)
    invoke(path, clock)
    reroute(registry, NEW)
    clock.sleep(1)
    assert invoke(path, clock).target == OLD.active
    soon.pop()()
    assert invoke(path, clock).target == NEW.active


def test_a_target_that_is_gone_makes_the_request_follow_the_new_route_at_once(make_path, registry, clock):
    path, _ = make_path(REPLY, GONE, REPLY)
    invoke(path, clock)
    reroute(registry, NEW)
    began = []
    served = invoke(path, clock, began=lambda target, canary: began.append((target, canary)))
    assert (served.target, served.outcome.attempts, served.outcome.answer()) == (NEW.active, 2, REPLY)
    assert began == [(OLD.active, None), (NEW.active, None)]
    assert registry.reads == 2


def test_a_target_that_is_gone_for_good_is_not_tried_again(make_path, clock, registry):
    path, runtime = make_path(GONE)
    served = invoke(path, clock)
    assert (served.outcome.failure, len(runtime.calls), registry.reads) == (Failure.TARGET_GONE, 1, 2)


def test_a_model_that_was_retired_is_not_found_once_its_target_is_gone(make_path, registry, clock):
    path, _ = make_path(REPLY, GONE)
    invoke(path, clock)
    reroute(registry, None)
    with pytest.raises(NoActiveVersionError):
        invoke(path, clock)


def test_a_canary_gets_its_keys_and_says_so(make_path, registry, clock):
    canary = replace(OLD, canary=Canary(NEW.endpoint, NEW.variant, NEW.version, NEW.target_model, 50.0))
    reroute(registry, canary)
    path, _ = make_path(REPLY)
    served = [invoke(path, clock, sticky_key=f"user-{number}") for number in range(9)]
    assert {(each.target == NEW.active, each.canary) for each in served} == {(True, True), (False, False)}


def test_a_missing_tenant_model_or_route_has_its_own_error_and_is_not_remembered(make_path, registry, clock):
    path, _ = make_path(REPLY)
    with pytest.raises(TenantNotFoundError):
        invoke(path, clock, tenant="nobody")
    with pytest.raises(ModelNotFoundError):
        invoke(path, clock, model="other")
    registry.write(Change(None, Model("acme", "other", 1, NOW, NOW)))
    with pytest.raises(NoActiveVersionError):
        invoke(path, clock, model="other")
    before = registry.model("acme", "other")
    registry.write(Change(before, replace(before, route=NEW, rev=2)))
    assert invoke(path, clock, model="other").target == NEW.active


def test_a_deleted_tenant_is_refused(make_path, registry, clock):
    before = registry.tenant("acme")
    registry.write(Change(before, replace(before, deleted_at=NOW, rev=2)))
    path, runtime = make_path(REPLY)
    with pytest.raises(TenantDeletedError):
        invoke(path, clock)
    assert runtime.calls == []


def test_a_registry_that_is_down_does_not_matter_while_the_route_is_known(make_path, registry, clock):
    path, _ = make_path(REPLY)
    invoke(path, clock)
    registry.down = True
    clock.sleep(100)
    assert invoke(path, clock).outcome.answer() == REPLY
    with pytest.raises(UnavailableError):
        invoke(path, clock, model="other")


def test_the_tenants_own_limit_holds(make_path, clock):
    path, runtime = make_path(REPLY)
    for _ in range(10):
        invoke(path, clock)
    with pytest.raises(ThrottledError):
        deque((invoke(path, clock) for _ in range(3)), maxlen=0)
    assert 10 <= len(runtime.calls) < 13


@pytest.mark.parametrize(("quota", "error"), [("in_flight", ThrottledError), ("cold_loads", ModelLoadingError)])
def test_requests_under_way_and_cold_loads_are_capped_by_the_tenants_record(make_path, registry, clock, quota, error):
    tenant = registry.tenant("acme")
    registry.write(Change(tenant, replace(tenant, quotas=replace(tenant.quotas, **{quota: 1}), rev=2)))
    registry.write(Change(None, Model("acme", "wine", 1, NOW, NOW, NEW)))
    met = []

    class Meanwhile(ScriptedRuntime):
        def invoke(self, *arguments, **options):
            with pytest.raises(error):
                invoke(path, clock, model="wine")
            met.append(1)
            return super().invoke(*arguments, **options)

    runtime = Meanwhile(REPLY, clock=clock, attempt_seconds=0.01)
    path = InvocationPath(looked_up_in(registry), Invoker(runtime, clock, lambda: 0.5), clock, background=lambda _work: None)
    assert invoke(path, clock).outcome.answer() == REPLY
    assert met == [1]


def test_a_model_that_keeps_failing_rests_and_others_do_not(make_path, registry, clock):
    path, runtime = make_path(RuntimeFault("ModelError", 424, 501), fairness=Fairness(clock, breaker=Breaker(2)))
    for _ in range(2):
        assert invoke(path, clock).outcome.failure is Failure.MODEL_FAILED
    with pytest.raises(ModelFailedError, match="given a rest"):
        invoke(path, clock)
    assert len(runtime.calls) == 2


def test_an_input_that_the_model_refuses_is_not_the_models_fault(make_path, clock):
    path, runtime = make_path(RuntimeFault("ModelError", 424, 400), fairness=Fairness(clock, breaker=Breaker(2)))
    for _ in range(5):
        invoke(path, clock)
    assert len(runtime.calls) == 5


SLOW = RuntimeFault("ReadTimeout")


def test_a_model_nobody_saw_in_memory_that_keeps_the_request_waiting_is_being_loaded(make_path, clock):
    path, _ = make_path(SLOW, SLOW, REPLY, SLOW)
    outcome = invoke(path, clock).outcome
    assert (outcome.failure, outcome.error.problem.slug, outcome.error.retry_after_seconds) == (Failure.TIMED_OUT, "model-loading", 5)
    invoke(path, clock)
    outcome = invoke(path, clock).outcome
    assert (outcome.failure, outcome.error.problem.slug) == (Failure.TIMED_OUT, "timeout")


def test_a_container_that_is_silent_is_not_loading(make_path, clock):
    path, _ = make_path(RuntimeFault("ModelError", 424, 0))
    assert invoke(path, clock).outcome.error.problem.slug == "timeout"


@pytest.mark.parametrize(("seconds", "sent"), [(5, 12), (25, 4)])
def test_callers_who_wait_too_short_do_not_open_the_circuit(make_path, clock, seconds, sent):
    path, runtime = make_path(SLOW, fairness=Fairness(clock, breaker=Breaker(2)))
    for _ in range(6):
        with suppress(ModelFailedError):
            invoke(path, clock, seconds=seconds)
    assert len(runtime.calls) == sent


def test_the_model_is_invoked_as_its_tenant_and_nobody_acts_afterwards(make_path, clock):
    acting = Acting()
    path, runtime = make_path(REPLY, tenancy=acting)
    during = []
    invoke_once = runtime.invoke
    runtime.invoke = lambda *arguments: during.append(acting.now) or invoke_once(*arguments)
    deadline = clock.monotonic() + 30
    path.invoke("acme", "iris", InvocationRequest(b""), deadline=deadline, sticky_key="")
    assert (during, acting.now, acting.all) == (["acme"], None, [("acme", deadline)])


def test_a_body_above_the_limit_reads_nothing(make_path, registry, clock):
    path, _ = make_path(REPLY)
    with pytest.raises(PayloadTooLargeError):
        path.invoke("acme", "iris", InvocationRequest(bytes(7_000_000)), deadline=clock.monotonic() + 1, sticky_key="")
    assert registry.reads == 0


@given(st.lists(st.sampled_from([GONE, REPLY, RuntimeFault("ModelNotReadyException", 429)]), min_size=1, max_size=12), st.floats(0.5, 5))
def test_a_request_never_passes_its_deadline_by_more_than_an_attempt(faults, seconds):
    clock, registry = FakeClock(), MemoryRegistry()
    registry.write(Change(None, Tenant("acme", NOW, NOW)))
    registry.write(Change(None, Model("acme", "iris", 1, NOW, NOW, OLD)))
    invoker = Invoker(ScriptedRuntime(*faults, clock=clock, attempt_seconds=0.1), clock, lambda: 0.5)
    path, began = InvocationPath(looked_up_in(registry), invoker, clock, background=lambda _function: None), clock.monotonic()
    invoke(path, clock, seconds=seconds)
    assert clock.monotonic() - began <= seconds + 0.2


def test_a_registry_that_hangs_is_waited_for_until_the_deadline(clock):
    go = threading.Event()

    def hung(_tenant, _model):
        go.wait(30)
        return Addressee(None, None)

    path = InvocationPath(hung, Invoker(ScriptedRuntime(clock=clock), clock, lambda: 0.5), clock, background=lambda call: call())
    with pytest.raises(UnavailableError, match="in time") as caught:
        path.invoke("acme", "churn", InvocationRequest(b"1"), deadline=clock.monotonic() + 0.05, sticky_key="k")
    assert caught.value.retry_after_seconds == 2
    go.set()


class TestDedicated:
    """A component of its own serves the active version."""

    ROUTE = replace(OLD, endpoint="dedicated", component="acme-iris-1")
    DENIED = RuntimeFault("AccessDeniedException", 403)
    NO_CAPACITY = RuntimeFault("ValidationError", 400, message="Inference Component has no capacity to process this request.")

    @pytest.fixture(autouse=True)
    def dedicated(self, registry):
        reroute(registry, self.ROUTE)

    def test_its_requests_go_to_the_component(self, make_path, clock):
        path, runtime = make_path(REPLY)
        assert invoke(path, clock).target.component == "acme-iris-1"
        assert [target for target, _, _ in runtime.calls] == [self.ROUTE.active]

    @pytest.mark.parametrize("fault", [GONE, DENIED, NO_CAPACITY])
    def test_a_request_follows_its_route_when_the_component_does_not_take_it(self, make_path, registry, clock, fault):
        path, _ = make_path(REPLY, fault, REPLY)
        invoke(path, clock)
        reroute(registry, OLD)
        served = invoke(path, clock)
        assert (served.target, served.outcome.attempts, served.outcome.answer()) == (OLD.active, 2, REPLY)

    def test_it_is_refused_where_the_route_still_says_so(self, make_path, registry, clock):
        path, runtime = make_path(self.DENIED)
        served = invoke(path, clock)
        assert (served.outcome.failure, len(runtime.calls), registry.reads) == (Failure.REFUSED, 1, 2)

    def test_a_refusal_on_a_shared_endpoint_reads_nothing(self, make_path, registry, clock):
        reroute(registry, OLD)
        path, _ = make_path(self.DENIED)
        assert (invoke(path, clock).outcome.failure, registry.reads) == (Failure.REFUSED, 1)

    def test_a_canary_beside_it_is_shared(self, make_path, registry, clock):
        reroute(registry, replace(self.ROUTE, canary=Canary(NEW.endpoint, NEW.variant, NEW.version, NEW.target_model, 50)))
        path, _ = make_path(REPLY)
        served = [invoke(path, clock, sticky_key=f"u{number}") for number in range(10)]
        assert {(each.target.component, each.canary) for each in served} == {("acme-iris-1", False), (None, True)}

    def test_it_waits_for_no_load_and_needs_no_place_among_those(self, make_path, registry, clock):
        path, _ = make_path(RuntimeFault("ReadTimeout"))
        assert invoke(path, clock).outcome.error.problem.slug == "timeout"

    def test_its_health_is_not_that_of_the_same_version_on_the_shared_endpoint(self, make_path, registry, clock):
        path, _ = make_path(*[RuntimeFault("ModelError", 424, 501)] * 2, REPLY, fairness=Fairness(clock, breaker=Breaker(failures=2)))
        for _ in range(2):
            invoke(path, clock)
        with pytest.raises(ModelFailedError, match="rest"):
            invoke(path, clock)
        reroute(registry, OLD)
        clock.sleep(1.99)
        path._addressees.refresh(("acme", "iris"))
        assert invoke(path, clock).outcome.answer() == REPLY


class Script:
    """A stream whose parts are scripted; a fault among them is raised."""

    def __init__(self, *parts):
        self.parts, self.closed, self.waits = list(parts), 0, []

    def reply(self):
        return ModelStream(self.more(0) or b"", "text/plain", more=self.more, close=self.close)

    def more(self, seconds):
        self.waits.append(seconds)
        part = self.parts.pop(0) if self.parts else None
        if isinstance(part, RuntimeFault):
            raise part
        return part

    def close(self):
        self.closed += 1


class TestStream:
    """Answers part by part."""

    ROUTE = TestDedicated.ROUTE
    BROKEN = RuntimeFault("ModelStreamError")

    @pytest.fixture(autouse=True)
    def dedicated(self, registry):
        reroute(registry, self.ROUTE)

    @pytest.fixture
    def ended(self):
        return []

    @pytest.fixture
    def stream(self, clock, ended):
        def stream(path, seconds=30.0, first=10.0, **options):
            now = clock.monotonic()
            return path.stream(
                "acme",
                "iris",
                REQUEST,
                deadline=now + seconds,
                first_deadline=now + first,
                ended=lambda error, size: ended.append((error and error.problem.slug, size)),
                **options,
            )

        return stream

    def test_its_parts_come_one_by_one_and_its_end_is_told_once(self, make_path, stream, ended):
        script = Script(b"one", b"two")
        path, runtime = make_path(script.reply())
        answer = stream(path)
        assert (answer.version, answer.content_type, answer.attempts, ended) == (self.ROUTE.version, "text/plain", 1, [])
        assert [*answer, *answer] == [b"one", b"two"]
        answer.close()
        assert (ended, script.closed) == ([(None, 6)], 1)
        assert runtime.calls[0][2] == 10

    def test_until_its_first_part_the_retry_rules_apply(self, make_path, stream):
        path, _ = make_path(RuntimeFault("ThrottlingException", 400), Script(b"one").reply())
        answer = stream(path)
        assert (list(answer), answer.attempts) == ([b"one"], 2)

    def test_the_first_part_has_a_deadline_of_its_own(self, make_path, stream, clock):
        path, _ = make_path(RuntimeFault("ModelNotReadyException", 429))
        began = clock.monotonic()
        with pytest.raises(ModelLoadingError):
            stream(path, first=3)
        assert clock.monotonic() - began <= 3

    @pytest.mark.parametrize(
        ("fault", "kind", "slug"),
        [
            (BROKEN, ModelFailedError, "model-failed"),
            (RuntimeFault("InternalStreamFailure"), UnavailableError, "unavailable"),
            (RuntimeFault("ConnectionLost"), UnavailableError, "unavailable"),
            (RuntimeFault("ReadTimeout"), InvocationTimeoutError, "timeout"),
        ],
    )
    def test_what_breaks_it_later_ends_it_and_nothing_is_sent_again(self, make_path, stream, ended, fault, kind, slug):
        script = Script(b"one", fault, b"two")
        path, runtime = make_path(script.reply())
        answer = stream(path)
        assert next(answer) == b"one"
        with pytest.raises(kind):
            next(answer)
        assert (list(answer), ended, script.closed, len(runtime.calls)) == ([], [(slug, 3)], 1, 1)

    def test_the_whole_of_it_has_a_deadline(self, make_path, stream, clock, ended):
        script = Script(b"one", b"two", b"three")
        path, _ = make_path(script.reply())
        answer = stream(path, seconds=5)
        next(answer)
        clock.sleep(4)
        next(answer)
        assert script.waits[-1] == pytest.approx(1, abs=0.1)
        clock.sleep(1)
        with pytest.raises(InvocationTimeoutError):
            next(answer)
        assert ended == [("timeout", 6)]

    def test_it_holds_its_place_among_the_requests_under_way_until_it_is_closed(self, make_path, registry, clock, stream, ended):
        before = registry.tenant("acme")
        registry.write(Change(before, replace(before, quotas=replace(before.quotas, in_flight=1), rev=before.rev + 1)))
        scripts = [Script(b"one", b"two"), Script(b"one")]
        path, _ = make_path(*(script.reply() for script in scripts))
        with stream(path) as answer:
            next(answer)
            with pytest.raises(ThrottledError, match="under way"):
                stream(path)
        assert (ended, scripts[0].closed, scripts[0].parts) == ([(None, 3)], 1, [b"two"])
        assert list(stream(path)) == [b"one"]

    def test_a_failure_before_it_holds_nothing(self, make_path, registry, stream):
        before = registry.tenant("acme")
        registry.write(Change(before, replace(before, quotas=replace(before.quotas, in_flight=1), rev=before.rev + 1)))
        path, _ = make_path(RuntimeFault("ModelError", 424, 400), Script(b"one").reply())
        with pytest.raises(ModelRejectedInputError):
            stream(path)
        assert list(stream(path)) == [b"one"]

    def test_a_model_that_keeps_breaking_it_off_rests(self, make_path, clock, stream):
        path, _ = make_path(*(Script(b"one", self.BROKEN).reply() for _ in range(2)), fairness=Fairness(clock, breaker=Breaker(failures=2)))
        for _ in range(2):
            with pytest.raises(ModelFailedError):
                list(stream(path))
        with pytest.raises(ModelFailedError, match="rest"):
            stream(path)

    def test_a_shared_model_is_refused_before_anything_is_sent(self, make_path, registry, stream, ended):
        reroute(registry, OLD)
        path, runtime = make_path(REPLY)
        with pytest.raises(InvalidRequestError, match="shared endpoint") as caught:
            stream(path)
        assert (caught.value.field, caught.value.problem.status, runtime.calls, ended) == ("model", 400, [], [])

    def test_it_comes_from_the_active_version_whatever_canary_there_is(self, make_path, registry, stream):
        reroute(registry, replace(self.ROUTE, canary=Canary(NEW.endpoint, NEW.variant, NEW.version, NEW.target_model, 99)))
        path, _ = make_path(*(Script(b"one").reply() for _ in range(5)))
        began = []
        assert [list(stream(path, began=lambda *told: began.append(told))) for _ in range(5)] == [[b"one"]] * 5
        assert began == [(self.ROUTE.active, False)] * 5

    def test_a_component_that_is_gone_makes_it_follow_the_route(self, make_path, registry, stream):
        moved = replace(self.ROUTE, component="acme-iris-2")
        path, _ = make_path(Script(b"one").reply(), TestDedicated.DENIED, Script(b"two").reply(), TestDedicated.DENIED)
        assert list(stream(path)) == [b"one"]
        reroute(registry, moved)
        answer = stream(path)
        assert (list(answer), answer.attempts) == ([b"two"], 2)
        with pytest.raises(UnavailableError):
            stream(path)
        reroute(registry, OLD)
        with pytest.raises(InvalidRequestError):
            stream(path)

    def test_it_is_opened_as_the_tenant_and_read_as_nobody(self, make_path, stream):
        acting, during = Acting(), []
        path, runtime = make_path(Script(b"one").reply(), tenancy=acting)
        stream_once = runtime.stream
        runtime.stream = lambda *arguments: during.append(acting.now) or stream_once(*arguments)
        answer = stream(path)
        assert (during, acting.now, list(answer)) == (["acme"], None, [b"one"])
