"""Random orders of changes, events, faults, kills and ticks: one warm-up for each change that there really was, and nothing left behind.

What really changed is known here by the identities of instances, which no description tells.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from mme_facts.own_events import warm_up_event
from mme_tenancy.fleet_state import PendingFleet, Shift
from tests.tenancy.warm_up_world import ENDPOINT, FaultError, KilledError, World, sagemaker_event

TIMES = st.sampled_from([0.5, 4.0, 31.0, 61.0, 200.0])


class Fleets(RuleBasedStateMachine):
    """An endpoint whose instances have identities, and the function that looks at it."""

    make_version = None

    @initialize()
    def begin(self):
        self.world = World(self.make_version, models=4)
        self.world.planner._planner._settings = self.world.settings = replace(self.world.settings, in_flight_share=0.01)
        self.ids = count(1)
        self.serving = {next(self.ids) for _ in range(4)}
        self.new = set()  # the fleet of an update
        self.wanted, self.lost = 4, False
        self.operation = None
        self.configs = count(2)
        self.world.event()
        self.known = set()  # all that were there at a look
        self.looked()

    # What is known of the last look, and what it has to have found.

    def looked(self):
        """Nothing has changed since the record was last written."""
        self.known |= self.serving | self.takes_requests()
        self.gone = set()

    def takes_requests(self):
        return self.new if self.operation == "shifted" else self.serving

    def look(self, event=None, *, armed=(), seconds=300.0):
        """One invocation; afterwards the record says exactly what really changed since the last one that wrote it."""
        world, before = self.world, self.world.record
        for number, error, late in armed:
            world.faults.arm(number, error, late=late)
        world.survives(event, seconds=seconds)
        world.faults.disarm()
        self.check(before)

    def check(self, before):
        record = self.world.record
        if record is None or record.seen.modified_at != self.world.state.modified_at:
            assert record == before or record.seen.number == before.seen.number
            return  # it was not looked at
        found = record.seen.number - before.seen.number
        if self.takes_requests() - self.known:
            grown = before.warm_up is not None and before.warm_up.is_open and self.operation is not None
            assert found == 1 or (grown and found == 0), (before, record)
        elif self.gone & self.known:
            assert found == 1, (before, record)
        else:
            assert found == 0, (before, record)
        self.looked()

    # Changes. Some take several steps, as they do on AWS; each step is a later modification.

    def is_now(self, **changes):
        self.world.is_now(**changes)

    @precondition(lambda self: self.operation is None and not self.lost)
    @rule(more=st.integers(1, 3))
    def scale_out_begins(self, more):
        self.look()  # a scale-in and a scale-out without a look in between are one smaller scale-in for whoever counts
        self.wanted += more
        self.operation = "scaling"
        self.is_now(status="Updating", desired=self.wanted)

    @precondition(lambda self: self.operation == "scaling" and len(self.serving) < self.wanted)
    @rule(data=st.data())
    def instances_come(self, data):
        self.serving |= {next(self.ids) for _ in range(data.draw(st.integers(1, self.wanted - len(self.serving))))}
        self.is_now(instances=len(self.serving))

    @precondition(lambda self: self.operation == "scaling" and len(self.serving) >= self.wanted)
    @rule()
    def scaling_rests(self):
        self.operation = None
        self.serving = set(sorted(self.serving)[: self.wanted])
        self.is_now(status="InService", instances=self.wanted)

    @precondition(lambda self: self.operation == "scaling" and len(self.serving) < self.wanted)
    @rule()
    def scale_out_fails(self):
        """What came stays: the rest was not to be had."""
        self.operation, self.wanted = None, len(self.serving)
        self.is_now(status="InService", desired=self.wanted, failure="no capacity")

    @precondition(lambda self: self.operation is None and not self.lost and self.wanted > 2)
    @rule(less=st.integers(1, 2))
    def scale_in_begins(self, less):
        self.wanted = max(1, self.wanted - less)
        self.operation = "scaling"
        self.is_now(status="Updating", desired=self.wanted, failure="")

    @precondition(lambda self: self.operation is None and not self.lost)
    @rule()
    def update_begins(self):
        self.operation = "updating"
        self.new = set()
        config = f"config-{next(self.configs)}"
        self.is_now(status="Updating", failure="", pending=PendingFleet(config, {"main": 0}, self.world.clock.time()))

    @precondition(lambda self: self.operation == "updating")
    @rule()
    def update_shifts(self):
        self.operation = "shifted"
        self.new = {next(self.ids) for _ in range(self.wanted)}
        pending = self.world.state.pending
        self.is_now(pending=replace(pending, instances={"main": self.wanted}, shifted_at=self.world.clock.time(), shift=Shift()))

    @precondition(lambda self: self.operation == "shifted")
    @rule()
    def update_ends(self):
        self.operation, self.serving = None, self.new
        config = self.world.state.pending.config
        self.is_now(status="InService", config=config, pending=None, instances=self.wanted)

    @precondition(lambda self: self.operation in {"updating", "shifted"})
    @rule(seen=st.booleans())
    def update_is_rolled_back(self, seen):
        """The old fleet has all that it had."""
        self.operation = None
        if seen:
            self.is_now(status="RollingBack")
            self.look()
        self.is_now(status="InService", pending=None, failure="alarm")

    @precondition(lambda self: self.operation is None and not self.lost and len(self.serving) > 1)
    @rule()
    def instance_is_lost(self):
        self.look()
        gone = min(self.serving)
        self.serving = self.serving - {gone}
        self.gone |= {gone}
        self.lost = True
        self.is_now(instances=len(self.serving))

    @precondition(lambda self: self.lost)
    @rule()
    def instance_comes_back(self):
        self.look()  # without a look in between nobody can know that it was away
        self.serving = self.serving | {next(self.ids)}
        self.lost = False
        self.is_now(instances=len(self.serving))

    # What the function is told, and what becomes of it.

    @rule(seconds=st.sampled_from([22.0, 30.0, 300.0]), copies=st.integers(1, 3))
    def event_arrives(self, seconds, copies):
        for _ in range(copies):
            self.look(sagemaker_event(), seconds=seconds)

    @rule()
    def minute_passes(self):
        self.world.clock.now += 60
        self.look()

    @rule(seconds=TIMES)
    def time_passes(self, seconds):
        self.world.clock.now += seconds

    @rule(
        number=st.integers(0, 40),
        late=st.booleans(),
        error=st.sampled_from([FaultError, KilledError]),
        seconds=st.sampled_from([30.0, 300.0]),
    )
    def invocation_is_cut(self, number, late, error, seconds):
        self.look(sagemaker_event(), armed=[(number, error(number), late)], seconds=seconds)

    @precondition(lambda self: self.world.sent.sent)
    @rule()
    def continuation_arrives(self):
        self.look(warm_up_event(self.world.sent.sent.pop()))

    # What always holds.

    @invariant()
    def no_number_is_planned_twice_without_need(self):
        if not hasattr(self, "world"):
            return
        numbers = [number for number, _ in self.world.planner.asked]
        assert numbers == sorted(numbers)
        assert not numbers or numbers[-1] <= self.world.record.seen.number

    @invariant()
    def the_record_and_its_warm_up_agree(self):
        if not hasattr(self, "world"):
            return
        record = self.world.record
        if record.warm_up is not None:
            assert record.warm_up.change.number <= record.seen.number
            assert record.lease is None or record.warm_up.is_open

    def teardown(self):
        """Whatever happened: within minutes nothing is under way, and nothing is called any more."""
        if not hasattr(self, "world"):
            return
        before = self.world.record
        self.world.clock.now += 31
        self.world.settles()
        self.check(before)
        record, calls = self.world.record, len(self.world.runtime.calls)
        assert record.lease is None
        self.world.clock.now += 60
        self.world.event()
        assert (self.world.record, len(self.world.runtime.calls)) == (record, calls)
        assert self.world.sent.sent == []
        assert ENDPOINT in self.world.store.records


def test_every_real_change_is_one_warm_up_in_any_order_of_events_and_failures(make_version):
    machine = type("FleetsOfTheTest", (Fleets,), {"make_version": staticmethod(make_version)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
        ),
    )
