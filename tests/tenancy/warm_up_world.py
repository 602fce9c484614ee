"""Everything around the warm-up function, in memory and in virtual time: an endpoint that changes, and processes that fail and die."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace

from mme_facts.grammar import ArtifactName, VersionId
from mme_facts.own_events import WarmUpTask, warm_up_event
from mme_facts.warm_up import WarmUpEndpoint
from mme_tenancy.fleet_state import FleetState
from mme_tenancy.handlers.warm_up import WarmUpFunction
from mme_tenancy.invocation import ModelReply
from mme_tenancy.registry import Change
from mme_tenancy.routes import Model
from mme_tenancy.testing import FakeClock, MemoryRegistry
from mme_tenancy.testing_warm_calls import MemoryReadings, MemoryWarmUpRecords, VirtualWorkers
from mme_tenancy.testing_warm_up import MemoryContinuations, MemoryFleets, MemoryWarmUpStore
from mme_tenancy.versions import State
from mme_tenancy.warm_up.execute import Execution
from mme_tenancy.warm_up.holder import Tools
from mme_tenancy.warm_up.observer import Observer, ObserverRules
from mme_tenancy.warm_up.plan import Candidate
from mme_tenancy.warm_up.planning import HeatPlanner
from mme_tenancy.warm_up.report import Report
from mme_tenancy.warm_up.settings import WarmUpSettings
from mme_tenancy.warm_up.trigger import Trigger

MB = 1024**2
ENDPOINT = "shared-1"
TARGET = WarmUpEndpoint("shared", ENDPOINT, "main", 100 * MB, 4)
LOAD_SECONDS = 2.0


class KilledError(BaseException):
    """The process ends here: nothing is cleaned up."""


class FaultError(Exception):
    """AWS does not answer."""


class Faults:
    """Counts the calls that leave the function, and lets chosen ones fail or end the process, before or after they have had their effect.

    Attributes:
        calls: the names of all calls so far.
    """

    def __init__(self):
        self.calls = []
        self._armed = {}

    def arm(self, number, error, *, late=False):
        """The call that is the ``number``-th from now on fails."""
        self._armed[len(self.calls) + number] = (error, late)

    def disarm(self):
        self._armed.clear()

    def wrap(self, port, name):
        return _Port(self, port, name)

    def call(self, name, function, *arguments, **named):
        number = len(self.calls)
        self.calls.append(name)
        error, late = self._armed.pop(number, (None, False))
        if error is not None and not late:
            raise error
        result = function(*arguments, **named)
        if error is not None:
            raise error
        return result


class _Port:
    def __init__(self, faults, port, name):
        self._faults, self._port, self._name = faults, port, name

    def __getattr__(self, attribute):
        function = getattr(self._port, attribute)
        return lambda *arguments, **named: self._faults.call(f"{self._name}.{attribute}", function, *arguments, **named)


class Source:
    """`mme_tenancy.warm_up.planning.CandidateSource` of a list."""

    problems = ()

    def __init__(self, candidates):
        self.candidates, self.broken = candidates, None

    def read(self, _pool, _endpoint, *, enough_bytes):
        if self.broken is not None:
            raise self.broken
        return self


class Runtime:
    """Loads a model in the time that it takes, once; tells who called what and when."""

    def __init__(self, world):
        self._world, self.calls, self.fails = world, [], {}

    def invoke(self, target, request, _timeout_seconds):
        self.calls.append((self._world.clock.now, self._world.process, target.target_model, request.warm_up))
        self._world.clock.sleep(LOAD_SECONDS)
        if (fault := self.fails.get(target.target_model)) is not None:
            raise fault
        return ModelReply(b"", "text/csv")


class Planner:
    """The real planner, and which changes it was asked for."""

    def __init__(self, planner):
        self._planner, self.asked = planner, []

    def plan(self, target, change):
        self.asked.append((change.number, change.instances_after))
        return self._planner.plan(target, change)


class World:
    """One endpoint and its function.

    Args:
        make_version: the fixture.
        store: what warm-ups remember. Default: memory.
        models: how many there are.
        clock: time. Default: one that only moves when somebody waits.
        workers: makes what does the calls of a process. Default: work in virtual time.
    """

    def __init__(self, make_version, *, store=None, models=8, clock=None, workers=None):
        self.clock = clock or FakeClock()
        self._workers = workers or (lambda: VirtualWorkers(self.clock))
        self.faults = Faults()
        self.store, self.fleets, self.sent = store or MemoryWarmUpStore(), MemoryFleets(), MemoryContinuations()
        self.registry, self.lines, self.process = MemoryRegistry(), [], 0
        self.settings = WarmUpSettings(nothing_moved_loads=1e9)
        candidates = [self._add(make_version, f"model-{number}") for number in range(models)]
        self.runtime, self.source = Runtime(self), Source(candidates)
        self.planner = Planner(HeatPlanner(self.faults.wrap(self.source, "heat"), self.settings, self.clock))
        self.state = FleetState(
            ENDPOINT,
            "InService",
            "config-1",
            self.clock.time(),
            self.clock.time(),
            instances={"main": 4},
            desired={"main": 4},
            weights={"main": 1.0},
        )
        self.targets = (TARGET,)
        self._holders = itertools.count(1)

    def _add(self, make_version, model):
        artifact = model.encode()
        version = make_version(State.ACTIVE, artifact=artifact, model=model)
        self.registry.write(Change(None, Model("acme", model, 1, version.created_at, version.created_at)))
        self.registry.write(Change(None, version))
        name = ArtifactName("acme", model, VersionId(1, version.sha256[:12]))
        return Candidate(target_model=name.target_model, bytes=10 * MB, load_seconds=LOAD_SECONDS, rate=1.0, last_used=self.clock.now)

    # The endpoint.

    @property
    def state(self):
        return self.fleets.states.get(ENDPOINT)

    @state.setter
    def state(self, state):
        if state is None:
            self.fleets.states.pop(ENDPOINT, None)
        else:
            self.fleets.states[ENDPOINT] = state

    def is_now(self, **changes):
        """The endpoint changes."""
        self.clock.now += 1
        for name in ("instances", "desired"):
            if isinstance(changes.get(name), int):
                changes[name] = {"main": changes[name]}
        self.state = replace(self.state, **{"modified_at": self.clock.time(), **changes})

    def scales_to(self, count):
        """All of a scaling at once."""
        self.is_now(status="InService", instances=count, desired=count)

    # The function.

    def function(self):
        """A new process."""
        self.process += 1
        wrap = self.faults.wrap
        store, report = wrap(self.store, "table"), Report(self.lines.append, self.clock)
        execution = Execution(
            runtime=wrap(self.runtime, "endpoint"),
            records=wrap(MemoryWarmUpRecords(self.registry), "registry"),
            readings=wrap(MemoryReadings(), "metrics"),
            workers=self._workers(),
            clock=self.clock,
        )
        observer = Observer(store, wrap(self.fleets, "sagemaker"), self.clock, report, ObserverRules())
        tools = Tools(
            settings=self.settings,
            store=store,
            observer=observer,
            planner=self.planner,
            driver=execution,
            clock=self.clock,
            report=report,
        )
        process = self.process
        trigger = Trigger(
            targets=self.targets, tools=tools, continuations=wrap(self.sent, "lambda"), holder=lambda: f"{process}-{next(self._holders)}"
        )
        return WarmUpFunction(trigger, self.clock)

    def event(self, event=None, *, seconds=300.0):
        """One invocation, in a process of its own; its answer. Before that the clock moves on a little."""
        self.clock.now += 0.01
        return self.function()(event or {}, Context(seconds))

    def survives(self, event=None, *, seconds=300.0):
        """One invocation that may fail or die."""
        with ends():
            return self.event(event, seconds=seconds)
        return None

    def settles(self, minutes=30):
        """The schedule goes on, and what was sent arrives, until nothing is under way; how many minutes it took."""
        self.faults.disarm()
        for minute in range(minutes):
            while self.sent.sent:
                self.event(warm_up_event(self.sent.sent.pop()))
            self.event()
            if not self.sent.sent and (self.record is None or self.record.warm_up is None or not self.record.warm_up.is_open):
                return minute
            self.clock.now += 60
        raise AssertionError(f"still under way after {minutes} minutes: {self.record}")

    @property
    def record(self):
        return self.store.read(ENDPOINT)

    def told(self, message):
        return [line for line in map(json.loads, self.lines) if line["message"] == message]

    def called(self):
        """How often each model was called."""
        return Counter(model for _, _, model, _ in self.runtime.calls)


@contextmanager
def ends():
    """Whatever was armed may end this."""
    with suppress(KilledError, FaultError):
        yield


class Context:
    def __init__(self, seconds=300.0):
        self._seconds = seconds

    def get_remaining_time_in_millis(self):
        return int(self._seconds * 1000)


def sagemaker_event(detail_type="SageMaker Endpoint State Change", **detail):
    """An event of SageMaker about the endpoint; ``detail`` may claim anything."""
    return {
        "source": "aws.sagemaker",
        "detail-type": detail_type,
        "detail": {"EndpointName": ENDPOINT, "EndpointStatus": "IN_SERVICE", **detail},
    }


def start_event():
    return warm_up_event(ENDPOINT, WarmUpTask.START)
