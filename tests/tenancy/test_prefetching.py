"""A minute of prefetch: what is learned, remembered and called, whoever else does the same and whatever cannot be read."""

from __future__ import annotations

import json

import pytest

from mme_facts.grammar import HeatKey
from mme_facts.metrics_own import PREFETCH_METRICS, WARM_UP_NAMESPACE
from mme_facts.warm_up import WarmUpEndpoint
from mme_tenancy.fleet_state import FleetState
from mme_tenancy.handlers.warm_up import calling, prefetching
from mme_tenancy.heat import Counts, ModelHeat, PoolHeat
from mme_tenancy.testing_heat import MemoryHeat
from mme_tenancy.testing_warm_calls import MemoryReadings, MemoryWarmUpRecords, VirtualWorkers
from mme_tenancy.testing_warm_up import MemoryFleets
from mme_tenancy.warm_up.execute import Execution
from mme_tenancy.warm_up.plan import Candidate, FleetShape
from mme_tenancy.warm_up.prefetch import Prefetch
from mme_tenancy.warm_up.prefetching import Prefetching, PrefetchingRules
from mme_tenancy.warm_up.report import Report
from mme_tenancy.warm_up.settings import WarmUpSettings
from mme_tenancy.warm_up.sources import Candidates, HeatCandidates
from tests.tenancy import warm_up_fleet as fleet

POOL, ENDPOINT, WINDOW = "shared", "endpoint-a", 60
VERSION = "v1-0123456789ab"
FLEET = FleetShape(instances=2, memory_bytes=50, load_slots=4)
BYTES = 10
CRON = ("acme", "cron")
OTHERS = [("globex", f"m{number}") for number in range(20)]
"""Used once, so that not all models fit the fleet."""


class MemoryStates:
    """`PrefetchStates` in a dictionary; ``meanwhile`` happens before a write."""

    def __init__(self):
        self.objects, self.writes, self.meanwhile = {}, 0, None

    def get(self, pool):
        return self.objects.get(pool)

    def put(self, pool, content, revision):
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        found = self.objects.get(pool)
        if (None if found is None else found[1]) != revision:
            return False
        self.writes += 1
        self.objects[pool] = (content, f"revision-{self.writes}")
        return True


class Source:
    """`NamedCandidates` of a registry that a test sets: name -> what differs from a plain candidate."""

    def __init__(self):
        self.known = {name: {} for name in (CRON, *OTHERS)}
        self.problems, self.asked = (), []

    def named(self, names, endpoint):
        assert endpoint == ENDPOINT
        self.asked.append(list(names))
        found = [name for name in names if name in self.known]
        candidates = tuple(self._candidate(name, **self.known[name]) for name in found)
        return Candidates(candidates, 0, None, unknown=len(names) - len(found), problems=self.problems)

    @staticmethod
    def _candidate(name, **values):
        plain = {
            "target_model": f"{name[0]}/{name[1]}/{VERSION}.tar.gz",
            "bytes": BYTES,
            "load_seconds": None,
            "rate": 0.0,
            "last_used": 0.0,
        }
        return Candidate(**(plain | values))


class World:
    def __init__(self, clock):
        self.clock, self.heat, self.states, self.source = clock, MemoryHeat(), MemoryStates(), Source()
        self.called = []
        clock.sleep(-clock.time() % 3600)  # windows begin at whole multiples of their length
        self.start = int(clock.time())
        self.rules = PrefetchingRules()

    def pass_time(self, windows, period=10, *, seconds=WINDOW, lag=0):
        """So many windows go by, in each ``period``-th of which the periodic model is used."""
        for _ in range(windows):
            at = int(self.clock.time()) - lag
            used = [CRON] if (at - self.start) % (period * WINDOW) == 0 else []
            used += OTHERS if at == self.start else []
            self.write(at, used, seconds)
            self.clock.sleep(seconds)

    def write(self, at, used, seconds=WINDOW, requests=1):
        rows = tuple(ModelHeat(*name, VERSION, Counts(requests=requests)) for name in used)
        self.heat.create(PoolHeat(HeatKey(POOL, at, seconds), (ENDPOINT,), rows))

    def prefetching(self):
        return Prefetching(self.heat, self.states, self.source, self.clock, rules=self.rules)

    def tick(self, prefetching=None):
        self.called = []
        return (prefetching or self.prefetching()).tick(POOL, ENDPOINT, FLEET, self.called.extend)

    @property
    def remembered(self):
        return Prefetch.load(self.states.objects[POOL][0])


@pytest.fixture
def world(clock):
    return World(clock)


def test_a_periodic_model_is_called_from_the_minute_before_its_use_on_by_whichever_process_comes(world):
    world.pass_time(95)
    calls = []
    for _ in range(20):
        world.tick()  # a new process each time: what is known is in the bucket
        calls.append(bool(world.called))
        world.pass_time(1)
    assert [95 + minute for minute, called in enumerate(calls) if called] == [99, 100, 109, 110]


def test_what_is_called_is_told(world):
    world.pass_time(100)
    done = world.tick()
    assert world.called == [CRON]
    assert (done.windows, done.models, done.due, done.expected_loads) == (100, 21, 1, 0)
    assert done.document()["problems"] == []


def test_what_came_of_a_load_is_told_once_when_heat_tells_of_it(world):
    world.pass_time(99, period=20)
    assert world.tick().expected_loads == 1
    world.pass_time(1, period=20)
    assert (world.tick().used, world.called) == (0, [CRON])
    world.pass_time(1, period=20)
    done = world.tick()
    assert (done.used, done.wasted, done.document()["used"]) == (1, 0, 1)
    world.pass_time(1, period=20)
    assert world.tick().used == 0


def test_a_load_that_nobody_wanted_is_told(world):
    world.pass_time(99, period=20)
    assert world.tick().expected_loads == 1
    told = []
    for _ in range(60):
        world.pass_time(1, period=1000)
        told.append(world.tick().wasted)
    assert sum(told) == 1


def test_of_two_at_once_one_tells_what_came_of_a_load(world):
    world.pass_time(99, period=20)
    world.tick()
    world.pass_time(2, period=20)
    told = []
    world.states.meanwhile = lambda: told.append(world.prefetching().tick(POOL, ENDPOINT, FLEET, lambda names: None))
    told.append(world.tick())
    assert [(done.used, done.overtaken) for done in told] == [(1, False), (0, True)]


def test_a_second_tick_in_the_same_minute_calls_and_writes_nothing(world):
    world.pass_time(100)
    world.tick()
    before = dict(world.states.objects)
    assert world.tick().due == 0
    assert world.called == []
    assert world.states.objects == before


def test_of_two_at_once_one_calls(world):
    world.pass_time(100)
    first = []
    world.states.meanwhile = lambda: world.prefetching().tick(POOL, ENDPOINT, FLEET, first.extend)
    done = world.tick()
    assert (done.overtaken, done.due, world.called) == (True, 0, [])
    assert first == [CRON]


def test_what_is_remembered_is_written_before_anything_is_called(world):
    world.pass_time(100)
    with pytest.raises(RuntimeError, match="cut off"):
        world.prefetching().tick(POOL, ENDPOINT, FLEET, lambda names: (_ for _ in ()).throw(RuntimeError("cut off")))
    assert world.remembered.observed_until == world.clock.time()
    assert world.tick().due == 0


def test_a_long_history_is_learned_in_parts_the_oldest_first(world):
    world.rules = PrefetchingRules(windows=40)
    world.pass_time(100)
    assert [world.tick().windows for _ in range(4)] == [40, 40, 20, 0]
    assert world.remembered.observed_until == world.clock.time()


def test_older_heat_than_the_lookback_is_not_learned(world):
    world.rules = PrefetchingRules(lookback_seconds=50 * WINDOW)
    world.pass_time(100)
    assert world.tick().windows == 50


def test_models_without_requests_are_not_used(world):
    world.pass_time(100)
    world.write(int(world.clock.time()), [("acme", "idle")], requests=0)
    world.clock.sleep(WINDOW)
    assert world.tick().models == 21


@pytest.mark.parametrize("spoiled", [b"junk", b""])
def test_a_window_that_cannot_be_read_is_told_and_passed_over(world, spoiled):
    world.pass_time(100)
    key = HeatKey(POOL, world.start + 95 * WINDOW, WINDOW).key
    world.heat.objects[key] = (spoiled, "revision")
    done = world.tick()
    assert done.windows == 99
    assert len(done.problems) == 1
    assert key in done.problems[0]
    assert world.called == [CRON]


def test_what_is_remembered_and_cannot_be_read_begins_anew_and_is_replaced(world):
    world.pass_time(100)
    world.states.objects[POOL] = (b"junk", "revision-0")
    done = world.tick()
    assert "begins anew" in done.problems[0]
    assert done.windows == 100
    assert world.called == [CRON]
    assert world.tick().problems == ()


@pytest.mark.parametrize(
    "why", [{"sample": False}, {"retired": True}, {"dedicated": True}, None], ids=["no-sample", "retired", "dedicated", "routed-elsewhere"]
)
def test_a_model_that_cannot_be_called_there_is_not_called(world, why):
    world.source.known = {name: {} for name in OTHERS} | ({} if why is None else {CRON: why})
    world.pass_time(100)
    assert world.tick().due == 0
    assert world.called == []


def test_models_are_looked_up_once_and_again_after_a_while(world):
    world.rules = PrefetchingRules(size_seconds=1800)
    world.pass_time(100)
    world.tick()
    assert [sorted(names) for names in world.source.asked] == [sorted([CRON, *OTHERS])]
    world.pass_time(29)
    world.tick()
    assert len(world.source.asked) == 1
    world.pass_time(2)
    world.tick()
    assert len(world.source.asked) == 2


def test_a_lookup_that_failed_says_nothing_of_the_models_it_missed(world):
    world.pass_time(100)
    world.source.known, world.source.problems = {}, ("ThrottlingException: slow down",)
    done = world.tick()
    assert (done.due, done.problems) == (0, ("ThrottlingException: slow down",))
    world.source = Source()
    world.pass_time(10)
    world.tick()
    assert len(world.source.asked[0]) == 21
    assert world.called == [CRON]


def test_of_two_versions_the_larger_one_takes_the_memory(world):
    class Canary(Source):
        def named(self, names, endpoint):
            found = super().named(names, endpoint)
            small = tuple(self._candidate(name, bytes=1) for name in names)
            return Candidates((*small, *found.candidates, *small), 0, None)

    world.source = Canary()
    world.source.known[CRON] = {"bytes": FLEET.memory_bytes + 1}
    world.pass_time(100)
    assert world.tick().due == 0


def test_windows_of_another_length_are_learned_anew_in_slots_of_that_length(world):
    world.pass_time(100)
    world.tick()
    assert world.tick().models == 21
    world.pass_time(60, period=50, seconds=300)
    done = world.tick()
    assert done.windows == 60
    assert done.models == 1
    assert world.remembered.observed_until is None, "read as slots of a minute it is nothing"


def test_windows_that_are_too_long_to_predict_anything_are_told(world):
    world.pass_time(3, seconds=3600)
    done = world.tick()
    assert (done.windows, done.due) == (0, 0)
    assert "windows of 3600 s" in done.problems[0]
    assert world.states.objects == {}


def test_without_any_heat_nothing_is_written(world):
    assert world.tick().windows == 0
    assert world.states.objects == {}


# In the function.

TARGET = WarmUpEndpoint(POOL, fleet.ENDPOINT, fleet.VARIANT, memory_bytes=1000, load_slots=4)


class Function:
    """The chore of the function with real sources and execution, in virtual time.

    Thirty models of 100 bytes would fit six instances; the first one is periodic.
    """

    def __init__(self, make_version, clock):
        clock.sleep(-clock.time() % 3600)
        self.clock, self.start = clock, int(clock.time())
        registry, self.targets = fleet.registered(make_version, 30)
        self.names = [tuple(target.split("/")[:2]) for target in self.targets]
        self.endpoint, self.heat, self.states, self.lines = fleet.VirtualEndpoint(clock), MemoryHeat(), MemoryStates(), []
        self.fleets = MemoryFleets(self.described(1))
        records = MemoryWarmUpRecords(registry)
        candidates = HeatCandidates(self.heat, records, clock)
        execution = Execution(runtime=self.endpoint, records=records, readings=MemoryReadings(), workers=VirtualWorkers(clock), clock=clock)
        prefetch = Prefetching(self.heat, self.states, candidates, clock)
        report = Report(self.lines.append, clock)
        warm = calling(candidates, execution, WarmUpSettings())
        self.chore = prefetching(prefetch, self.fleets, warm, report, clock, seconds=40.0)

    @staticmethod
    def described(instances):
        counts = {fleet.VARIANT: instances}
        return FleetState(fleet.ENDPOINT, "InService", "config-1", 0.0, 0.0, instances=counts, desired=counts, weights={fleet.VARIANT: 1.0})

    def minutes(self, first, last, *, tick=False):
        """The models called in each of these minutes."""
        called = {}
        for minute in range(first, last):
            self.clock.sleep(self.start + minute * WINDOW - self.clock.time())
            before = len(self.endpoint.calls)
            if tick:
                self.chore(TARGET, self.clock.monotonic() + 295)
                called[minute] = [target.target_model for _when, target, *_ in self.endpoint.calls[before:]]
            used = self.names if minute == 0 else self.names[:1] if minute % 10 == 0 else []
            rows = tuple(ModelHeat(*name, VERSION, Counts(requests=1)) for name in used)
            self.heat.create(PoolHeat(HeatKey(POOL, self.start + minute * WINDOW, WINDOW), (ENDPOINT,), rows))
        return called


@pytest.fixture
def function(make_version, clock):
    return Function(make_version, clock)


def test_the_function_calls_a_periodic_model_with_its_sample_from_the_minute_before_its_use_on(function):
    function.minutes(0, 95)
    called = function.minutes(95, 121, tick=True)
    assert {minute: models for minute, models in called.items() if models} == dict.fromkeys(
        (99, 100, 109, 110, 119, 120), function.targets[:1]
    )
    assert all(request.body == b"sample of m000" for _when, _target, request, _timeout in function.endpoint.calls)
    assert all(request.warm_up for _when, _target, request, _timeout in function.endpoint.calls)


def test_the_function_tells_what_was_due_and_what_came_of_it(function):
    function.minutes(0, 100)
    function.minutes(100, 101, tick=True)
    (line,) = map(json.loads, function.lines)
    assert (line["message"], line["endpoint"], line["windows"], line["due"]) == ("prefetch", fleet.ENDPOINT, 100, 1)
    assert (line["summary"]["calls"], line["summary"]["loaded"], line["failures"]) == (1, 1, {})


def test_the_line_of_each_minute_has_every_metric_of_prefetch_whether_something_was_called_or_not(function):
    function.minutes(0, 100)
    function.minutes(100, 102, tick=True)
    lines = [json.loads(line) for line in function.lines]
    for line in lines:
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        assert (directive["Namespace"], directive["Dimensions"]) == (WARM_UP_NAMESPACE, [["endpoint"]])
        assert [each["Name"] for each in directive["Metrics"]] == [row.name for row in PREFETCH_METRICS]
        assert all(isinstance(line[row.name], int) for row in PREFETCH_METRICS)
    assert [line["prefetched"] for line in lines] == [1, 0]


def test_a_model_that_fails_costs_its_call_and_nothing_else(function):
    function.endpoint.faults[function.targets[0]] = [fleet.BROKEN]
    function.minutes(0, 100)
    function.minutes(100, 101, tick=True)
    (line,) = map(json.loads, function.lines)
    assert [one["target_model"] for one in line["summary"]["failed"]] == function.targets[:1]


@pytest.mark.parametrize("instances", [None, 0])
def test_an_endpoint_that_is_not_there_or_has_no_instance_is_left_alone(function, instances):
    function.minutes(0, 100)
    function.fleets.states.clear()
    if instances is not None:
        function.fleets.states[fleet.ENDPOINT] = function.described(instances)
    assert function.minutes(100, 101, tick=True) == {100: []}
    assert function.lines == []
    assert function.states.objects == {}


def test_a_fleet_that_holds_all_models_is_not_called(function):
    function.fleets.states[fleet.ENDPOINT] = function.described(6)
    function.minutes(0, 100)
    assert function.minutes(100, 101, tick=True) == {100: []}
