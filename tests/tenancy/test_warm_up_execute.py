"""A warm-up driven in virtual time: what is called and how, what ends the work, and what no failure can do."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import replace
from itertools import pairwise

import pytest

from mme_tenancy.clock import SystemClock
from mme_tenancy.invocation import ModelReply
from mme_tenancy.testing import FakeClock, ScriptedRuntime
from mme_tenancy.testing_heat import MemoryHeat
from mme_tenancy.testing_warm_calls import MemoryReadings, MemoryWarmUpRecords, VirtualWorkers
from mme_tenancy.versions import State
from mme_tenancy.warm_up.execute import CALL_TIMEOUTS_SECONDS, Execution, ExecutionRules, Job, Minute, Stop
from mme_tenancy.warm_up.named import plan_named, warm_models
from mme_tenancy.warm_up.plan import Candidate, Skip
from mme_tenancy.warm_up.ports import LeaseLostError
from mme_tenancy.warm_up.run import Answer, End, Outcome, WarmUpRun
from mme_tenancy.warm_up.settings import WarmUpSettings
from mme_tenancy.warm_up.sources import HeatCandidates
from mme_tenancy.warm_up.workers import ThreadWorkers
from tests.tenancy.warm_up_fleet import (
    BROKEN,
    ENDPOINT,
    GONE,
    LOAD,
    NOT_READY,
    REJECTED,
    SERVICE,
    THROTTLED,
    TIMED_OUT,
    UNAVAILABLE,
    VARIANT,
    VirtualEndpoint,
    plan_of,
    registered,
)

JOB = Job(ENDPOINT, VARIANT, "scale-out")
MANY = 40


class MemoryHold:
    """A lease of a minute that every checkpoint renews; the last checkpoint is there as JSON text."""

    def __init__(self, clock, seconds=60.0):
        self.clock, self.seconds = clock, seconds
        self.expires_at = clock.wall() + seconds
        self.saved, self.answers = [], []

    def save(self, progress):
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, BaseException):
            raise answer
        if answer:
            self.saved.append(json.dumps(progress))
            self.expires_at = self.clock.wall() + self.seconds
        return answer


class MemoryWatch:
    """Tells what it is told to, one entry a look; the last one goes on for ever."""

    def __init__(self, *script):
        self.script = list(script) or [None]

    def look(self):
        word = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(word, BaseException):
            raise word
        return word


class Scene:
    """Everything of one warm-up, in virtual time."""

    def __init__(self, make_version, count=MANY, **plan):
        self.clock = FakeClock()
        self.registry, self.targets = registered(make_version, count)
        self.endpoint = VirtualEndpoint(self.clock)
        self.records = MemoryWarmUpRecords(self.registry)
        self.readings = MemoryReadings()
        self.workers = VirtualWorkers(self.clock)
        self.hold, self.watch = MemoryHold(self.clock), MemoryWatch()
        self.settings, self.rules, self.scale = WarmUpSettings(), ExecutionRules(), 1.0
        self.plan = plan_of(self.targets, **plan)
        self.run = WarmUpRun(self.plan, self.settings, self.clock.now)

    def again(self):
        """Another process goes on from the last checkpoint."""
        document = {**self.run.dump(), "progress": json.loads(self.hold.saved[-1])} if self.hold.saved else None
        self.workers = VirtualWorkers(self.clock)
        self.hold = MemoryHold(self.clock)
        if document is None:
            self.run = WarmUpRun(self.plan, self.settings, self.clock.now, taken_up=True)
        else:
            self.run = WarmUpRun.load(document, self.settings)

    def drive(self, seconds=300.0):
        execution = Execution(
            runtime=self.endpoint,
            records=self.records,
            readings=self.readings,
            workers=self.workers,
            clock=self.clock,
            scale=self.scale,
            rules=self.rules,
        )
        return execution.drive(self.run, JOB, self.hold, self.watch, stop_at=self.clock.monotonic() + seconds)


@pytest.fixture
def scene(make_version):
    return Scene(make_version)


def test_every_model_is_called_once_with_its_own_payload_and_the_call_says_what_it_is_for(scene):
    driven = scene.drive()
    assert driven.stop is Stop.ENDED
    assert driven.summary.end is End.DONE
    assert scene.endpoint.called == dict.fromkeys(scene.targets, 1)
    for _when, target, request, _timeout in scene.endpoint.calls:
        assert (target.endpoint, target.variant, target.component) == (ENDPOINT, VARIANT, None)
        tenant, model, _version = target.target_model.split("/")
        assert (tenant, request.body) == ("acme", f"sample of {model}".encode())
        assert (request.content_type, request.accept, request.warm_up) == ("text/csv", "text/csv", "scale-out")
    assert (driven.summary.warmed, driven.summary.loaded, driven.summary.failed) == (MANY, MANY, ())
    assert driven.problems == {}


def test_no_more_calls_are_under_way_than_the_plan_says_and_the_order_is_the_plans(scene):
    driven = scene.drive()
    first = [target.target_model for _when, target, _request, _timeout in scene.endpoint.calls]
    assert first == scene.targets
    begins = [when for when, *_rest in scene.endpoint.calls]
    assert max(sum(begin <= other < begin + LOAD + SERVICE for other in begins) for begin in begins) == scene.plan.in_flight
    assert driven.summary.seconds == pytest.approx(MANY / scene.plan.in_flight * (LOAD + SERVICE), abs=0.2)


def test_models_that_are_there_answer_at_once_and_calls_keep_to_their_rate(make_version):
    scene = Scene(make_version, 100, moved_share=0.0)
    scene.endpoint.resident = set(scene.targets)
    driven = scene.drive()
    assert (driven.summary.warmed, driven.summary.loaded) == (100, 0)
    begins = [when for when, *_rest in scene.endpoint.calls]
    assert max(sum(begin <= other < begin + 1 for other in begins) for begin in begins) <= scene.settings.least_calls_per_second


@pytest.mark.parametrize("fault", [REJECTED, BROKEN, GONE], ids=["rejected", "broken", "gone"])
def test_a_model_whose_payload_fails_stops_no_other_and_is_reported(scene, fault):
    bad = scene.targets[3]
    scene.endpoint.faults[bad] = [fault]
    driven = scene.drive()
    assert driven.summary.end is End.DONE
    assert driven.summary.warmed == MANY - 1
    (failed,) = driven.summary.failed
    assert (failed.target_model, failed.attempts) == (bad, 1)
    assert str(fault) in failed.error


@pytest.mark.parametrize("fault", [NOT_READY, TIMED_OUT], ids=["not ready", "timed out"])
def test_a_model_that_is_still_being_loaded_is_called_again_later(scene, fault):
    slow = scene.targets[3]
    scene.endpoint.faults[slow] = [fault, None]
    driven = scene.drive()
    assert (driven.summary.warmed, driven.summary.not_ready) == (MANY, 1)
    moments = [when for when, target, _request, _timeout in scene.endpoint.calls if target.target_model == slow]
    assert moments[1] - moments[0] >= scene.settings.not_ready_seconds


@pytest.mark.parametrize("fault", [THROTTLED, UNAVAILABLE], ids=["throttled", "unavailable"])
def test_an_endpoint_that_takes_no_more_is_left_alone_for_a_while(scene, fault):
    scene.endpoint.faults["*"] = [None, None, None, None, fault, None]
    driven = scene.drive()
    assert (driven.summary.warmed, driven.summary.throttled) == (MANY, 1)
    begins = [when for when, *_rest in scene.endpoint.calls]
    assert max(later - earlier for earlier, later in pairwise(begins)) >= scene.settings.back_off_seconds


def test_an_endpoint_that_takes_nothing_ends_the_warm_up_after_few_calls(scene):
    scene.endpoint.faults["*"] = [THROTTLED]
    driven = scene.drive()
    assert (driven.stop, driven.summary.end) == (Stop.ENDED, End.THROTTLED)
    assert len(scene.endpoint.calls) < MANY


def test_calls_are_sent_once_and_have_as_much_time_as_the_load_needs(make_version):
    scene = Scene(make_version, 3)
    steps = tuple(replace(step, load_seconds=load) for step, load in zip(scene.plan.steps, (1.0, 9.0, 300.0), strict=True))
    scene.run = WarmUpRun(replace(scene.plan, steps=steps), scene.settings, scene.clock.now)
    scene.drive()
    assert [timeout for *_rest, timeout in scene.endpoint.calls] == [6.0, 30.0, 70.0]
    assert {timeout for *_rest, timeout in scene.endpoint.calls} <= set(CALL_TIMEOUTS_SECONDS)


def test_no_call_has_more_time_than_is_left(scene):
    scene.drive(18.0)
    assert all(timeout <= scene.endpoint.calls[0][0] + 18.0 - when for when, *_rest, timeout in scene.endpoint.calls)


def test_a_version_that_was_retired_or_deleted_meanwhile_is_not_called(scene, make_version):
    retired, gone = scene.targets[2], scene.targets[5]
    key = ("version", "acme", "m002", 1)
    scene.registry.records[key] = replace(scene.registry.records[key], state=State.RETIRED)
    del scene.registry.records["version", "acme", "m005", 1]
    driven = scene.drive()
    assert {failed.target_model: failed.error for failed in driven.summary.failed} == {
        retired: "it is retired now",
        gone: "its record is gone",
    }
    assert scene.endpoint.called.keys() == set(scene.targets) - {retired, gone}


def test_payloads_are_read_ahead_in_batches_and_once(make_version):
    scene = Scene(make_version, 100)
    scene.drive()
    assert scene.records.reads == [40, 40, 20]


def test_a_registry_that_is_out_of_reach_slows_the_warm_up_and_fails_no_model(scene):
    read, refused = scene.records.versions, iter([True, True])

    def versions(names):
        if next(refused, False):
            raise ConnectionError("no way to the table")
        return read(names)

    scene.records.versions = versions
    driven = scene.drive()
    assert (driven.summary.warmed, driven.summary.failed) == (MANY, ())
    assert driven.summary.throttled > 0


def test_when_the_time_is_over_the_work_pauses_with_a_checkpoint_and_another_one_finishes_it(scene):
    began = scene.clock.now
    driven = scene.drive(20.0)
    assert driven.stop is Stop.PAUSED
    assert scene.clock.now <= began + 20.0
    done = driven.summary.warmed
    assert 0 < done < MANY
    scene.again()
    driven = scene.drive()
    assert (driven.stop, driven.summary.end, driven.summary.warmed, driven.summary.repeated) == (Stop.ENDED, End.DONE, MANY, 0)
    assert scene.endpoint.called == dict.fromkeys(scene.targets, 1)


def test_with_hardly_any_time_nothing_is_called_and_nothing_is_lost(scene):
    assert scene.drive(5.0).stop is Stop.PAUSED
    assert scene.endpoint.calls == []
    scene.again()
    assert scene.drive().summary.warmed == MANY


def test_a_checkpoint_that_cannot_be_written_at_the_pause_costs_a_few_calls_more(scene):
    scene.hold.answers = [ConnectionError("no way to the table")] * 9
    driven = scene.drive(25.0)
    assert driven.stop is Stop.PAUSED
    assert driven.problems == {"checkpoint: ConnectionError: no way to the table": 2}
    scene.again()
    assert scene.drive().summary.warmed == MANY


def test_a_run_lasts_as_long_as_it_may_over_all_pauses(make_version):
    scene = Scene(make_version, 300, in_flight=1)
    stops = []
    while not stops or stops[-1] is Stop.PAUSED:
        driven = scene.drive(60.0)
        stops.append(driven.stop)
        scene.again() if driven.stop is Stop.PAUSED else None
    assert stops == [Stop.PAUSED, Stop.PAUSED, Stop.PAUSED, Stop.ENDED]
    assert driven.summary.end is End.TIME
    assert driven.summary.seconds == pytest.approx(scene.settings.seconds, abs=LOAD + 1)


def test_a_lost_lease_ends_the_work_at_once(scene):
    scene.hold.answers = [False]
    driven = scene.drive()
    assert driven.stop is Stop.LOST
    assert scene.endpoint.calls[-1][0] <= scene.hold.expires_at - scene.hold.seconds + scene.rules.save_every + LOAD


def test_a_lease_that_is_lost_is_also_told_by_a_look(scene):
    scene.watch.script = [None, LeaseLostError("somebody else")]
    driven = scene.drive()
    assert driven.stop is Stop.LOST
    assert driven.problems == {}


def test_nothing_is_called_any_more_when_the_lease_may_be_somebody_elses(make_version):
    scene = Scene(make_version, 300)
    scene.hold.answers = [ConnectionError("no way to the table")] * 99
    expires_at = scene.hold.expires_at
    assert scene.drive().stop is Stop.LOST
    assert scene.clock.now < expires_at
    assert scene.endpoint.calls[-1][0] <= expires_at - scene.rules.lease_margin


def test_another_change_of_the_fleet_ends_the_work_and_says_why(scene):
    scene.watch.script = [None, "the fleet has changed again"]
    began = scene.clock.now
    driven = scene.drive()
    assert (driven.stop, driven.summary.end, driven.summary.detail) == (Stop.CHANGED, End.ABANDONED, "the fleet has changed again")
    assert scene.clock.now - began <= 2 * scene.rules.look_every + scene.rules.wait_after_change
    assert driven.summary.warmed + driven.summary.skipped[Skip.ENDED] == MANY


def test_a_look_that_fails_is_told_and_the_work_goes_on(scene):
    scene.watch.script = [ConnectionError("no"), None]
    driven = scene.drive()
    assert driven.summary.warmed == MANY
    assert driven.problems == {"look at the fleet: ConnectionError: no": 1}


def test_metrics_that_cannot_be_read_are_missing_and_told(scene):
    class Broken:
        def minutes(self, *_names, **_range):
            raise TimeoutError("CloudWatch")

    scene.readings = Broken()
    driven = scene.drive()
    assert driven.summary.warmed == MANY
    assert set(driven.problems) == {"reading of metrics: TimeoutError: CloudWatch"}


def minutes_before(clock, count, **values):
    start = int(clock.time()) // 60 * 60
    return [Minute(start - 60 * back, **values) for back in range(1, count + 1)]


def test_what_users_ask_gives_the_calls_their_rate(make_version):
    scene = Scene(make_version, 300, in_flight=100, moved_share=0.0)
    scene.endpoint.resident = set(scene.targets)
    scene.readings = MemoryReadings(*minutes_before(scene.clock, 3, invocations=60.0 * 200))
    scene.drive()
    begins = [when for when, *_rest in scene.endpoint.calls]
    assert max(sum(begin <= other < begin + 1 for other in begins) for begin in begins) == 0.25 * 200


class LiveReadings:
    """Metrics of users who find everything, and of the warm-up's own calls, as SageMaker counts them."""

    def __init__(self, scene, users=600):
        self.scene, self.users = scene, users

    def minutes(self, endpoint, variant, *, start, end):
        assert (endpoint, variant) == (ENDPOINT, VARIANT)
        found = []
        for minute in range(start, end, 60):
            own = [resident for when, resident in self.scene.endpoint.answers if minute <= when < minute + 60]
            found.append(Minute(minute, float(self.users + len(own)), float(self.users + sum(own)), float(self.users + len(own))))
        return found


def test_the_warm_ups_own_misses_do_not_hide_that_users_find_their_models(make_version):
    scene = Scene(make_version, 1000, in_flight=4)
    scene.clock.now = scene.clock.now // 60 * 60  # the run begins with a minute
    scene.run = WarmUpRun(scene.plan, scene.settings, scene.clock.now)
    scene.hold = MemoryHold(scene.clock)
    scene.readings = LiveReadings(scene)
    driven = scene.drive()
    assert driven.summary.end is End.RECOVERED
    assert driven.summary.detail == "ModelCacheHit is 100.0 %"
    assert driven.summary.seconds < scene.settings.seconds


def test_minutes_of_a_faster_clock_are_read_as_such(make_version):
    scene = Scene(make_version, 10)
    scene.scale, scene.clock.ahead = 60.0, 1000.0
    asked = []
    scene.readings.minutes = lambda _endpoint, _variant, *, start, end: asked.append((start, end)) or [Minute(start, 600.0)]
    seen = []
    scene.run.observed = lambda reading, _now: seen.append(reading)
    scene.drive()
    assert all(start % 60 == end % 60 == 0 and end <= scene.clock.time() for start, end in asked)
    assert seen[0].requests_per_second == 600.0
    assert seen[0].minute == pytest.approx(scene.run.started_at - (scene.run.started_at + 1000.0 - asked[0][0]) / 60)


def test_what_earlier_processes_called_is_not_taken_for_users(make_version):
    scene = Scene(make_version, 200, in_flight=1)
    scene.clock.now = scene.clock.now // 60 * 60
    scene.run = WarmUpRun(scene.plan, scene.settings, scene.clock.now)
    began = scene.clock.now
    scene.readings = LiveReadings(scene, users=60)
    assert scene.drive(90.0).stop is Stop.PAUSED
    scene.again()
    seen = []
    scene.run.observed = lambda reading, _now: seen.append(reading)
    scene.drive()
    before = [reading for reading in seen if reading.minute < began]
    after = [reading for reading in seen if reading.minute >= began]
    assert {reading.requests_per_second for reading in before} == {1.0}
    assert [reading.minute for reading in after] == [began + 60.0]
    assert all(reading.cache_hit_before == 1.0 for reading in after)


def test_a_checkpoint_is_of_the_moment_when_it_was_made_although_it_is_written_later(make_version):
    scene = Scene(make_version)
    scene.endpoint.faults[scene.targets[0]] = [NOT_READY, None]
    scene.endpoint.faults[scene.targets[1]] = [REJECTED]
    for call in scene.run.take(scene.clock.now):
        if call.target_model in scene.targets[:2]:
            scene.run.answered(call, scene.clock.now, Outcome(Answer.FAILED, 0.1, "no"))
    progress = scene.run.progress()
    told = json.dumps(progress)
    scene.drive()
    assert json.dumps(progress) == told


class Killed(BaseException):
    """The process is gone."""


def killing(port, method, counter):
    inner = getattr(port, method)

    def call(*arguments, **named):
        counter[0] -= 1
        if counter[0] == 0:
            raise Killed
        return inner(*arguments, **named)

    setattr(port, method, call)


@pytest.mark.parametrize("seed", range(20))
def test_killed_anywhere_it_is_finished_by_the_next(make_version, seed):
    scene = Scene(make_version)
    counter = [random.Random(seed).randrange(1, 45)]
    ports = (
        (scene.endpoint, "invoke"),
        (scene.records, "versions"),
        (scene.hold, "save"),
        (scene.watch, "look"),
        (scene.readings, "minutes"),
    )
    for port, method in ports:
        killing(port, method, counter)
    with pytest.raises(Killed):
        scene.drive()
    scene.again()
    driven = scene.drive()
    assert (driven.stop, driven.summary.end, driven.summary.warmed) == (Stop.ENDED, End.DONE, MANY)
    assert scene.endpoint.called.keys() == set(scene.targets)
    # Lost are the answers since the last checkpoint.
    assert len(scene.endpoint.calls) <= MANY + 2 * scene.rules.save_every / LOAD * scene.plan.in_flight


@pytest.mark.parametrize("method", ["invoke", "versions", "save", "look", "minutes"])
@pytest.mark.parametrize("which", [1, 2, 5])
def test_an_error_of_any_port_ends_well_and_fails_at_most_one_model(scene, method, which):
    ports = {"invoke": scene.endpoint, "versions": scene.records, "save": scene.hold, "look": scene.watch, "minutes": scene.readings}
    port, left = ports[method], [which]
    inner = getattr(port, method)

    def call(*arguments, **named):
        left[0] -= 1
        if left[0] == 0:
            raise OSError("the connection is gone")
        return inner(*arguments, **named)

    setattr(port, method, call)
    driven = scene.drive()
    assert (driven.stop, driven.summary.end) == (Stop.ENDED, End.DONE)
    assert driven.summary.warmed >= MANY - 1


def test_tenants_have_no_line_and_no_use_of_it(scene, capsys):
    usages, records = dict(scene.registry.usages), dict(scene.registry.records)
    scene.drive()
    assert capsys.readouterr().out == ""
    assert (scene.registry.usages, scene.registry.records) == (usages, records)


def test_threads_do_the_same_at_the_machines_pace(make_version):
    registry, targets = registered(make_version, 12)
    clock, runtime = SystemClock(), ScriptedRuntime(ModelReply(b"0"))
    with ThreadWorkers(7) as workers:
        execution = Execution(
            runtime=runtime, records=MemoryWarmUpRecords(registry), readings=MemoryReadings(), workers=workers, clock=clock
        )
        run = WarmUpRun(plan_of(targets, moved_share=0.0), WarmUpSettings(), clock.wall())
        driven = execution.drive(run, JOB, MemoryHold(clock), MemoryWatch(), stop_at=clock.monotonic() + 60)
    assert (driven.stop, driven.summary.warmed) == (Stop.ENDED, 12)
    assert sorted(target.target_model for target, _request, _timeout in runtime.calls) == targets


def test_threads_work_beside_one_another_and_what_they_raise_is_told():
    together = threading.Barrier(3, timeout=30)
    with ThreadWorkers(3) as workers:
        for number in range(3):
            workers.begin(number, together.wait)
        workers.begin("bad", lambda: int("no number"))
        ended = {}
        while len(ended) < 4:
            ended |= {finished.key: finished for finished in workers.finished(30)}
        assert workers.finished(0.01) == []
    assert isinstance(ended["bad"].error, ValueError)
    assert sorted(ended[number].value for number in range(3)) == [0, 1, 2]


def test_urgent_work_does_not_wait_for_threads_that_are_all_busy():
    done = threading.Event()
    with ThreadWorkers(1) as workers:
        for number in range(3):
            workers.begin(number, lambda: done.wait(30))
        workers.begin("lease", lambda: "renewed", urgent=True)
        assert [finished.value for finished in workers.finished(30)] == ["renewed"]
        done.set()


def candidate(target, **changes):
    return Candidate(target_model=target, bytes=100, load_seconds=LOAD, rate=0.0, last_used=0.0, **changes)


def test_a_named_list_is_called_as_it_is_but_for_what_cannot_be_called():
    chosen = [candidate("b"), candidate("a"), candidate("b"), candidate("c", retired=True), candidate("d", dedicated=True)]
    plan = plan_named([*chosen, candidate("e", sample=False)], 2, WarmUpSettings())
    assert [step.target_model for step in plan.steps] == ["b", "a"]
    assert plan.skipped == {Skip.RETIRED: 1, Skip.DEDICATED: 1, Skip.NO_SAMPLE: 1}


def test_named_models_are_called_whether_they_are_there_or_not(scene):
    execution = Execution(runtime=scene.endpoint, records=scene.records, readings=scene.readings, workers=scene.workers, clock=scene.clock)
    source = HeatCandidates(MemoryHeat(), scene.records, scene.clock)
    scene.endpoint.resident = set(scene.targets[:20])
    names = [("acme", f"m{number:03d}") for number in range(30)]
    driven = warm_models(
        [*names, ("acme", "nobody")],
        Job(ENDPOINT, VARIANT, "keep-warm"),
        source,
        execution,
        in_flight=2,
        settings=scene.settings,
        stop_at=scene.clock.monotonic() + 120,
    )
    assert (driven.stop, driven.summary.end, driven.summary.warmed, driven.summary.loaded) == (Stop.ENDED, End.DONE, 30, 10)
    assert {request.warm_up for _when, _target, request, _timeout in scene.endpoint.calls} == {"keep-warm"}
