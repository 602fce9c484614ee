"""`mme warm-up`: which endpoints are warmed, what would be done and why, starting a warm-up and watching it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner

from mme_cli import sessions
from mme_cli.console import stdout
from mme_cli.errors import CommandError
from mme_cli.main import app
from mme_cli.sessions import Asked
from mme_cli.warm_up import start as starting
from mme_cli.warm_up import targets as finding
from mme_cli.warm_up.course import Course, course, course_view, courses_view
from mme_cli.warm_up.dry_run import dry_run, dry_run_view
from mme_cli.warm_up.start import follow, start
from mme_cli.warm_up.targets import Target, chosen, targets
from mme_cli.warm_up.words import ENDS, SKIPPED, change_text, gap_text, size_text
from mme_facts import environment as variables
from mme_facts.grammar import HeatKey
from mme_facts.own_events import WarmUpTask, warm_up_event
from mme_facts.scaled_time import ScaledTime
from mme_facts.warm_up import WarmUpEndpoint, WarmUpRules
from mme_tenancy.clock import SystemClock
from mme_tenancy.fleet_state import FleetState
from mme_tenancy.heat import Counts, ModelHeat, PoolHeat
from mme_tenancy.settings import WarmUpFunctionSettings
from mme_tenancy.testing_heat import MemoryHeat
from mme_tenancy.testing_warm_up import MemoryWarmUpStore
from mme_tenancy.warm_up.change import ChangeKind, FleetChange, compare
from mme_tenancy.warm_up.plan import Candidate, Skip
from mme_tenancy.warm_up.planning import HeatPlanner
from mme_tenancy.warm_up.ports import EndpointRecord, Lease, WarmUp, WarmUpState
from mme_tenancy.warm_up.report import change_document
from mme_tenancy.warm_up.run import Answer, End, Outcome, WarmUpRun
from mme_tenancy.warm_up.sources import Candidates

NOW = 1_796_000_000.0
ENDPOINT = WarmUpEndpoint("xgboost", "shared-1", "AllTraffic", memory_bytes=10_000_000, load_slots=4)
OTHER = WarmUpEndpoint("onnx", "shared-2", "AllTraffic", memory_bytes=10_000_000, load_slots=4)


class Clock(SystemClock):
    """A clock that only moves when it is told to sleep."""

    def __init__(self, scale=1.0):
        super().__init__(ScaledTime(NOW, NOW, scale))
        self.now = NOW

    def time(self):
        return self.scaled.at(self.now)

    def wall(self):
        return self.now

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@dataclass
class Source:
    """Candidates as they are given."""

    found: Candidates

    def read(self, pool, endpoint, *, enough_bytes):
        return self.found


NOTHING = Candidates((), 0, None)


@dataclass(frozen=True, slots=True)
class MemoryTarget(Target):
    """A target whose table, fleet and heat are in memory."""

    known: MemoryWarmUpStore = field(default_factory=MemoryWarmUpStore)
    found: Candidates = NOTHING

    def store(self):
        return self.known

    def planner(self):
        return HeatPlanner(Source(self.found), self.bounds, self.clock)


class Lambda:
    """Lambda's client: lists functions, and has something happen when one is invoked."""

    def __init__(self, *functions, on_invoke=lambda: None):
        self.functions, self.on_invoke, self.invoked = functions, on_invoke, []

    def get_paginator(self, operation):
        assert operation == "list_functions"
        return self

    def paginate(self):
        for function in self.functions:
            yield {"Functions": [function]}

    def invoke(self, **call):
        self.invoked.append(call)
        self.on_invoke()


class SageMaker:
    """SageMaker's client with one endpoint, or none."""

    def __init__(self, instances=3, status="InService"):
        self.instances, self.status = instances, status

    def describe_endpoint(self, **_names):
        if not self.instances:
            raise ClientError({"Error": {"Code": "ValidationException", "Message": "Could not find endpoint"}}, "DescribeEndpoint")
        moment = type("Moment", (), {"timestamp": lambda _self: NOW - 600})()
        variant = {"VariantName": "AllTraffic", "CurrentInstanceCount": self.instances, "DesiredInstanceCount": self.instances}
        return {
            "EndpointStatus": self.status,
            "EndpointConfigName": "config",
            "CreationTime": moment,
            "LastModifiedTime": moment,
            "ProductionVariants": [variant],
        }


class Memory(Asked):
    """Whom the commands ask, without a network."""

    clients: dict

    def client(self, service):
        return self.clients[service]


def asked(**clients):
    made = Memory("AWS region eu-central-1", local=False, state=None, session=None, endpoint_url=None)
    object.__setattr__(made, "clients", {"lambda": Lambda(), "sagemaker": SageMaker(), **clients})
    return made


def target(*, clock=None, found=None, store=None, **clients):
    settings = WarmUpFunctionSettings("table", "bucket", WarmUpRules((ENDPOINT,)))
    return MemoryTarget(
        asked(**clients),
        "warm-up-function",
        settings,
        ENDPOINT,
        clock or Clock(),
        store or MemoryWarmUpStore(),
        found=found or NOTHING,
    )


def candidate(name, ago, **changes):
    given = {"bytes": 1_000_000, "load_seconds": 2.0, "rate": 1.0, **changes}
    return Candidate(target_model=f"acme/{name}/v1-0123456789ab.tar.gz", last_used=NOW - ago, **given)


FOUND = Candidates(
    (candidate("hot", 5, rate=4.0), candidate("cool", 60), candidate("mute", 90, sample=False), candidate("gone", 95, retired=True)),
    windows=3,
    newest=int(NOW) - 120,
    unknown=2,
    elsewhere=1,
    problems=("OSError: a window was not readable",),
)


def state(instances=3, **changes):
    counts = {"AllTraffic": instances}
    return FleetState("shared-1", "InService", "config", NOW - 600, NOW - 600, instances=counts, desired=counts, **changes)


def seen(instances=3):
    return compare(None, state(instances), NOW).seen


def change(number=1, kind=ChangeKind.SCALE_OUT, before=2, after=3):
    return FleetChange(kind, "shared-1", number, NOW, before, after, max(0, after - before), "config", "config")


def record(warm_up=None, *, instances=3, lease=None, rev=1, number=None):
    remembered = replace(seen(instances), number=number if number is not None else 0 if warm_up is None else warm_up.change.number)
    return EndpointRecord("shared-1", remembered, warm_up, lease, rev)


def stored(*records):
    store = MemoryWarmUpStore()
    for each in records:
        store.records[each.endpoint] = each
    return store


def text(view):
    with stdout.capture() as captured:
        stdout.print(view, soft_wrap=True)
    return captured.get()


class TestTargets:
    @staticmethod
    def function(name="warm-1", handler="mme_tenancy.handlers.warm_up.handler", endpoints=(ENDPOINT,), **environment):
        values = {variables.TABLE_NAME: "t", variables.BUCKET_NAME: "b", variables.WARM_UP: WarmUpRules(tuple(endpoints)).dump()}
        return {"FunctionName": name, "Handler": handler, "Environment": {"Variables": values | environment}}

    def test_they_are_found_by_the_functions_that_warm_them(self):
        other = {"FunctionName": "x", "Handler": "mme_tenancy.handlers.admission.handler"}
        known = targets(asked(**{"lambda": Lambda(other, self.function(endpoints=(OTHER, ENDPOINT)), {"FunctionName": "image"})}))
        assert [(each.name, each.function, each.settings.table_name) for each in known] == [
            ("shared-1", "warm-1", "t"),
            ("shared-2", "warm-1", "t"),
        ]

    def test_a_function_of_another_release_is_named(self):
        with pytest.raises(CommandError, match=r"function warm-1 cannot be understood.*MME_WARM_UP"):
            targets(asked(**{"lambda": Lambda(self.function(**{variables.WARM_UP: "{}"}))}))

    def test_a_refusal_is_one_sentence(self):
        class Refusing(Lambda):
            def paginate(self):
                raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "ListFunctions")

        with pytest.raises(CommandError, match=r"AWS region eu-central-1 refuses.*AccessDenied"):
            targets(asked(**{"lambda": Refusing()}))

    def test_one_is_chosen_by_endpoint_by_pool_or_because_it_is_the_only_one(self):
        one, two = target(), replace(target(), endpoint=OTHER)
        assert chosen([one], None) is one
        assert chosen([one, two], "onnx") is two
        assert chosen([one, two], "shared-1") is one

    @pytest.mark.parametrize(
        ("count", "name", "said"),
        [
            (0, None, "deploy the platform with warm-up"),
            (2, None, r"several endpoints are warmed there: name one of shared-1 \(pool xgboost\), shared-2"),
            (2, "nope", r"no endpoint that is warmed belongs to 'nope': use one of shared-1"),
        ],
    )
    def test_no_choice_is_told_with_what_there_is(self, count, name, said):
        with pytest.raises(CommandError, match=said):
            chosen([target(), replace(target(), endpoint=OTHER)][:count], name)

    def test_the_clock_of_a_local_cloud_is_its_own(self, monkeypatch):
        monkeypatch.setattr("mme_cli.platform.local_status", lambda _state: {"clock": {"now": 5000.0, "scale": 60.0}})
        here = replace(asked(), state=object())
        object.__setattr__(here, "clients", {"lambda": Lambda(self.function())})
        (found,) = targets(here)
        assert found.clock.scaled.scale == 60
        assert 5000 <= found.clock.time() < 5000 + 60 * 60
        assert found.clock.wall() > 1e9


class TestDryRun:
    def test_the_plan_is_the_functions_own_with_its_reasons(self):
        document = dry_run(target(found=FOUND)).document()
        assert [step["target_model"] for step in document["steps"]] == [
            step.target_model for step in dry_run(target(found=FOUND)).planned.plan.steps
        ]
        assert {step["target_model"].split("/")[1]: step["reason"] for step in document["steps"]} == {
            "hot": "used 5 s ago, 4 requests/s, loads in 2.0 s",
            "cool": "used 60 s ago, 1 requests/s, loads in 2.0 s",
        }
        assert document["skipped"] == {"retired": 1, "no_sample": 1}
        assert {one["target_model"].split("/")[1]: one["reason"] for one in document["left_out"]} == {
            "gone": "retired",
            "mute": "no_sample",
        }
        assert document["budget"]["calls_per_second"] == 20
        assert document["budget"]["in_flight"] == 9
        assert (document["bytes"], document["room_bytes"]) == (2_000_000, 26_250_000)
        assert 0 < document["expected_seconds"] < 180
        json.dumps(document)

    def test_it_is_told_in_words(self):
        shown = text(dry_run_view(dry_run(target(found=FOUND)), 1))
        assert "shared-1  pool xgboost, 3 instances, 10 MB for models and 4 loads at once each" in shown
        assert "for: replacement of 3 instances, 3 of them empty (supposed, nothing has changed" in shown
        assert ("acme/hot/v1-0123456789ab.tar.gz" in shown) != ("acme/cool/v1-0123456789ab.tar.gz" in shown)
        assert "and 1 more" in shown
        assert "skipped: 1 model without a sample payload" in shown
        assert "skipped: 2 models used lately, but without a record or a route now" in shown
        assert "budget: at most 20 calls a second" in shown
        assert "missing: OSError: a window was not readable" in shown
        assert "the newest of 2 min ago" in shown

    def test_what_is_called_twice_is_told(self):
        done = dry_run(target(found=FOUND))
        twice = replace(done, planned=replace(done.planned, plan=replace(done.planned.plan, touch_after=1, touches=(0,))))
        assert twice.document()["called_twice"] == [done.planned.plan.steps[0].target_model]
        assert "called twice: 1 model near the end" in text(dry_run_view(twice, 5))
        assert "called twice" not in text(dry_run_view(done, 5))

    def test_what_is_due_is_planned_and_said_so(self):
        done = dry_run(target(found=FOUND, store=stored(record(instances=2))))
        assert (done.why, done.planned.change.kind, done.planned.change.empty_instances) == ("due", ChangeKind.SCALE_OUT, 1)
        assert "for: scale-out from 2 to 3 instances, 1 of them empty (what is due)" in text(dry_run_view(done, 5))

    def test_what_is_under_way_is_planned_and_said_so(self):
        under_way = WarmUp(change(), NOW, WarmUpState.RUNNING)
        done = dry_run(target(found=FOUND, store=stored(record(under_way, lease=Lease("x", NOW + 30)))))
        assert (done.why, done.planned.change) == ("under way", change())

    @pytest.mark.parametrize(
        ("instances", "kind", "before", "empty"),
        [(7, ChangeKind.SCALE_OUT, 3, 4), (2, ChangeKind.LOSS, 3, 0), (3, ChangeKind.REPLACEMENT, 3, 3)],
    )
    def test_another_number_of_instances_may_be_supposed(self, instances, kind, before, empty):
        done = dry_run(target(found=FOUND), instances)
        assert (done.why, done.planned.change.kind) == ("asked", kind)
        assert (done.planned.change.instances_before, done.planned.change.empty_instances) == (before, empty)
        assert done.planned.after.instances == instances

    def test_nothing_is_written_and_nobody_called(self):
        known = target(found=FOUND, store=stored(record(instances=2)))
        before = dict(known.known.records)
        dry_run(known)
        assert known.known.records == before
        assert known.asked.client("lambda").invoked == []

    def test_without_heat_nothing_is_warmed_and_that_is_told(self):
        shown = text(dry_run_view(dry_run(target()), 20))
        assert "no model is warmed" in shown
        assert "nobody is known to use anything" in shown
        assert "expected:" not in shown

    @pytest.mark.parametrize(
        ("fleet", "said"),
        [(SageMaker(0), "no endpoint 'shared-1' any more"), (SageMaker(status="Failed"), "'shared-1' is Failed: only one that serves")],
    )
    def test_an_endpoint_that_serves_nobody_is_refused(self, fleet, said):
        with pytest.raises(CommandError, match=said):
            dry_run(target(sagemaker=fleet))

    def test_damaged_heat_is_one_sentence(self):
        key = HeatKey("xgboost", int(NOW) // 300 * 300 - 300, 300)
        heat = MemoryHeat(PoolHeat(key, ("shared-1",), (ModelHeat("acme", "iris", "v1-0123456789ab", Counts(1)),)))
        heat.objects = {name: (b"no gzip", revision) for name, (_, revision) in heat.objects.items()}

        class Damaged(Source):
            def read(self, pool, endpoint, *, enough_bytes):
                heat.get(key)

        known = target()
        broken = HeatPlanner(Damaged(FOUND), known.bounds, known.clock)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryTarget, "planner", lambda _self: broken)
            with pytest.raises(CommandError, match=r"heat cannot be read: heat/xgboost/.* is not readable: delete it"):
                dry_run(known)


def finished(number=1, end=End.DONE, state=WarmUpState.DONE, **summary):
    told = {"end": end.value, "seconds": 42.0, "planned": 300, "calls": 305, "warmed": 298, "loaded": 120, "bytes": 30_000_000}
    told |= {"loaded_bytes": 12_000_000, "failed": [], "failed_models": 0, "skipped": {}, "throttled": 1, "not_ready": 4, "repeated": 0}
    told |= {"cold_requests_avoided": 77.4, **summary}
    return WarmUp(change(number), NOW - 60, state, NOW - 55, NOW - 10, 1, reason=end.value, summary=told)


class TestCourse:
    def test_the_last_one_is_told_with_what_it_did(self):
        failed = [{"target_model": "acme/bad/v1-0123456789ab.tar.gz", "error": "model failed", "attempts": 1}]
        shown = text(course_view(course(target(store=stored(record(finished(failed=failed, failed_models=3, skipped={"no_sample": 5})))))))
        assert "done: scale-out from 2 to 3 instances, 1 of them empty, 298 of 300 models called, 120 of them loaded for it, 42 s" in shown
        assert "ended 10 s ago: every model was called" in shown
        assert "305 calls, 30 MB (12 MB loaded), 1 throttled, 4 not ready; about 77 requests" in shown
        assert "skipped: 5 models without a sample payload" in shown
        assert "failed: acme/bad/v1-0123456789ab.tar.gz: model failed" in shown
        assert "and 2 more failed" in shown

    def test_before_the_first_one_that_is_said(self):
        for store in (stored(), stored(record())):
            found = course(target(store=store))
            assert "none yet" in text(course_view(found))
            assert found.document()["warm_up"] is None
            assert not found.went_well

    def test_one_under_way_is_told_as_of_its_last_checkpoint(self):
        known = target(found=FOUND)
        planned = known.planner().plan(ENDPOINT, change())
        run = WarmUpRun(planned, known.bounds, NOW)
        (call,) = run.take(NOW)[:1]
        run.answered(call, NOW + 2, Outcome(Answer.OK, 2.0))
        kept = {name: value for name, value in run.dump().items() if name != "progress"}
        store = known.known
        plan = store.keep("shared-1", {"change": change_document(change()), "run": kept})
        progress = store.keep("shared-1", run.progress())
        store.records["shared-1"] = record(WarmUp(change(), NOW, WarmUpState.RUNNING, NOW, takes=2, plan=plan, progress=progress))
        found = course(known)
        assert found.summary["warmed"] == 1
        shown = text(course_view(found))
        assert "running: scale-out from 2 to 3 instances, 1 of them empty, 1 of 2 models called, 1 of them loaded for it" in shown
        assert "taken up 2 times" in shown
        assert not found.went_well

    @pytest.mark.parametrize("damage", ["no plan", "another change", "another release"])
    def test_a_checkpoint_that_cannot_be_used_is_none(self, damage):
        store = MemoryWarmUpStore()
        of = change(2) if damage == "another change" else change()
        plan = "" if damage == "no plan" else store.keep("shared-1", {"change": change_document(of), "run": {"schema": 99, "plan": {}}})
        progress = store.keep("shared-1", {"under_way": []})
        store.records["shared-1"] = record(WarmUp(change(), NOW, WarmUpState.RUNNING, NOW, plan=plan, progress=progress))
        found = course(target(store=store))
        assert found.summary is None
        assert "running: scale-out" in text(course_view(found))

    @pytest.mark.parametrize("end", End)
    def test_it_went_well_if_it_came_to_its_end_by_itself(self, end):
        good = {End.DONE, End.NOTHING_MOVED, End.RECOVERED}
        assert course(target(store=stored(record(finished(end=end))))).went_well == (end in good)

    def test_one_that_was_taken_back_has_no_summary_but_a_reason(self):
        ended = replace(finished(state=WarmUpState.ABANDONED), summary=None, reason="the endpoint was deleted")
        shown = text(course_view(course(target(store=stored(record(ended))))))
        assert "ended 10 s ago: the endpoint was deleted" in shown

    def test_several_are_a_table(self):
        rows = [course(target(store=stored(record(finished())))), Course(replace(target(), endpoint=OTHER), None)]
        shown = text(courses_view(rows))
        assert "shared-1" in shown
        assert "none yet" in shown


class TestStart:
    def test_the_function_is_asked_and_watched_to_the_end(self):
        store, clock = stored(record(finished(4), number=4)), Clock()
        functions = Lambda()
        known = target(store=store, clock=clock, **{"lambda": functions})
        number = start(known)
        assert number == 4
        (call,) = functions.invoked
        assert (call["FunctionName"], call["InvocationType"]) == ("warm-up-function", "Event")
        assert json.loads(call["Payload"]) == warm_up_event("shared-1", WarmUpTask.START)
        course_of_it = iter(
            [
                None,
                WarmUp(change(5), NOW),
                WarmUp(change(5), NOW, WarmUpState.RUNNING, NOW),
                finished(5),
            ]
        )
        told = []

        def tell(line):
            told.append(line)
            if (then := next(course_of_it)) is not None:
                store.records["shared-1"] = record(then)

        done = follow(known, number, tell)
        assert (done.warm_up.change.number, done.went_well) == (5, True)
        assert told[:2] == ["waiting for the function"] * 2
        assert told[2].startswith("planned: scale-out")
        assert told[3].startswith("running: scale-out")

    @pytest.mark.parametrize("under_way", [WarmUpState.PLANNED, WarmUpState.RUNNING])
    def test_while_one_is_under_way_it_is_refused(self, under_way):
        known = target(store=stored(record(WarmUp(change(), NOW, under_way))))
        with pytest.raises(CommandError, match=f"is {under_way.value} already.*one at a time; 'mme warm-up shared-1' shows it"):
            start(known)
        assert known.asked.client("lambda").invoked == []

    def test_an_endpoint_that_serves_nobody_is_refused(self):
        known = target(sagemaker=SageMaker(status="Creating"))
        with pytest.raises(CommandError, match="is Creating"):
            start(known)
        assert known.asked.client("lambda").invoked == []

    def test_a_function_that_does_not_begin_is_named(self):
        clock = Clock()
        with pytest.raises(CommandError, match="no warm-up of shared-1 began within 90 s: look at the log of warm-up-function"):
            follow(target(clock=clock), 0, lambda _text: None)
        assert 90 < clock.now - NOW < 93

    def test_one_that_does_not_end_is_not_watched_for_ever(self):
        clock = Clock()
        known = target(clock=clock, store=stored(record(WarmUp(change(), NOW, WarmUpState.RUNNING))))
        with pytest.raises(CommandError, match="should have ended by now"):
            follow(known, 0, lambda _text: None)
        assert clock.now - NOW < 900

    def test_a_newer_one_that_came_in_between_counts(self):
        done = follow(target(store=stored(record(finished(7)))), 5, lambda _text: None)
        assert done.warm_up.change.number == 7


class TestCommand:
    @pytest.fixture
    def known(self, monkeypatch):
        """The endpoints that the command finds."""
        known = []
        monkeypatch.setattr(sessions, "open_session", lambda **_options: asked())
        monkeypatch.setattr(finding, "targets", lambda _asked: known)
        return known

    @staticmethod
    def run(*arguments):
        return CliRunner().invoke(app, ["warm-up", *arguments])

    def test_a_dry_run_prints_the_plan_or_one_document(self, known):
        known.append(target(found=FOUND))
        assert "acme/hot/v1-0123456789ab.tar.gz" in self.run("--dry-run").stdout
        document = json.loads(self.run("xgboost", "--dry-run", "--instances", "7", "--json").stdout)
        assert (document["change"]["kind"], document["change"]["why"]) == ("scale-out", "asked")

    def test_without_options_it_shows_all_or_one(self, known):
        known += [target(store=stored(record(finished()))), replace(target(), endpoint=OTHER)]
        assert "none yet" in self.run().stdout
        assert [each["endpoint"] for each in json.loads(self.run("--json").stdout)] == ["shared-1", "shared-2"]
        assert json.loads(self.run("shared-1", "--json").stdout)["warm_up"]["summary"]["warmed"] == 298
        assert "298 of 300" in self.run("shared-1").stdout

    @pytest.mark.parametrize(("end", "status"), [(End.DONE, 0), (End.THROTTLED, 1), (End.TIME, 1)])
    def test_now_ends_as_the_warm_up_ends(self, known, end, status):
        store = MemoryWarmUpStore()
        functions = Lambda(on_invoke=lambda: store.records.update({"shared-1": record(finished(end=end))}))
        known.append(target(store=store, **{"lambda": functions}))
        done = self.run("--now", "--json")
        assert (done.exit_code, json.loads(done.stdout)["warm_up"]["summary"]["end"]) == (status, end.value)

    def test_ctrl_c_leaves_the_warm_up_to_itself(self, known, monkeypatch):
        known.append(target())

        def interrupted(*_arguments):
            raise KeyboardInterrupt

        monkeypatch.setattr(starting, "follow", interrupted)
        done = self.run("--now")
        assert done.exit_code == 130
        assert "the warm-up goes on" in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--dry-run", "--now"), "either --dry-run or --now"),
            (("--instances", "3"), "--instances belongs to --dry-run"),
            (("--now", "--instances", "3"), "--instances belongs to --dry-run"),
            (("nope",), "no endpoint that is warmed belongs to 'nope'"),
        ],
    )
    def test_wrong_usage_is_one_sentence(self, known, arguments, said):
        known.append(target())
        done = self.run(*arguments)
        assert isinstance(done.exception, CommandError)
        assert said in str(done.exception)

    def test_no_endpoint_at_all_says_what_to_deploy(self, known):
        assert "deploy the platform with warm-up" in str(self.run().exception)


def test_every_reason_and_end_has_words():
    assert set(SKIPPED) == set(Skip)
    assert set(ENDS) == set(End)


def test_words():
    assert change_text(change(kind=ChangeKind.LOSS, before=4, after=1)) == "loss from 4 to 1 instance"
    assert [size_text(value) for value in (12, 1500, 2.5e6, 3.21e9)] == ["12 B", "1.5 kB", "2.5 MB", "3.21 GB"]
    assert [gap_text(value) for value in (5, 119, 300, 7200, 200_000)] == ["5 s", "119 s", "5 min", "2 h", "2 d"]
