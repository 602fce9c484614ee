"""No order of events breaks the fleet: hypothesis drives it, and keeps books of its own from the actions alone."""

import random
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mme_fleet import (
    Discard,
    Download,
    Downloaded,
    Fleet,
    FleetSettings,
    Forward,
    InstanceDraining,
    InstanceLost,
    InstanceUp,
    LeastOutstandingRouter,
    Load,
    Loaded,
    LoadFailed,
    LoadFailure,
    OneHomeRouter,
    RandomRouter,
    Recorder,
    Release,
    Replied,
    Reply,
    Request,
    StickyRouter,
    Tick,
    Unload,
    Unloaded,
    ZoneLost,
    replay,
)

MEMORY, DISK, WAIT = 100, 130, 5.0
SIZES = {"a": 15, "b": 20, "c": 25, "d": 40, "e": 60, "too large": 95, "too large for the disk": 140}
SETTINGS = {
    "plain": FleetSettings(10, WAIT, load_attempts=2),
    "one load at once": FleetSettings(10, WAIT, load_attempts=2, load_concurrency=1),
    "two loads, queues": FleetSettings(5, WAIT, load_attempts=2, load_concurrency=2, workers_per_model=2, model_queue_size=2),
    "no queue": FleetSettings(10, WAIT, load_attempts=3, model_queue_size=0),
    "copies for workers": FleetSettings(1, WAIT, workers_per_model=2, workers_share_artifact=False),
    "no cache": FleetSettings(10, WAIT, load_attempts=2, cache_enabled=False),
    "no cache, limits": FleetSettings(10, WAIT, load_concurrency=1, cache_enabled=False, uncached_load_factor=2, model_queue_size=1),
}
ROUTERS = {
    "sticky": StickyRouter,
    "spilling": lambda: StickyRouter(spill_outstanding=1),
    "least outstanding": LeastOutstandingRouter,
    "one home": OneHomeRouter,
    "random": lambda: RandomRouter(random.Random(5)),
}
ZONES = ["x", "y"]
ANY = st.integers(min_value=0, max_value=1_000_000)


class Books:
    """What the driver knows of one instance that is up or draining."""

    def __init__(self, recorder: Recorder, zone: str, disk=()) -> None:
        self.recorder, self.zone = recorder, zone
        self.memory: dict[str, int] = {}
        self.loaded: list[str] = []  # least recently used first
        self.flying: dict[int, str] = {}
        self.disk: set[str] = set(disk)
        self.draining = False
        self.work: list = []


class FleetMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.fleets: list[tuple[Recorder, Fleet, FleetSettings, str]] = []  # the last one takes requests
        self.instances: dict[str, Books] = {}
        self.lost: dict[str, Books] = {}
        self.requests = 0
        self.replies: Counter[int] = Counter()
        self.asked_at: dict[int, float] = {}
        self.numbers = iter(range(1, 1_000_000))
        self.names = iter(range(1, 1_000_000))

    @property
    def recorder(self) -> Recorder:
        return self.fleets[-1][0]

    def settings_of(self, books: Books) -> FleetSettings:
        return next(settings for recorder, _, settings, _ in self.fleets if recorder is books.recorder)

    def tell(self, recorder: Recorder, event) -> None:
        for action in recorder.on(event, self.now):
            self.check(action)

    def check(self, action) -> None:
        if isinstance(action, Reply):
            self.replies[action.request] += 1
            for books in self.instances.values():
                books.flying.pop(action.request, None)
            return
        books = self.instances[action.instance]
        if isinstance(action, Release):
            assert books.draining
            assert not books.flying
            del self.instances[action.instance]
            return
        if isinstance(action, Discard):
            assert action.model in books.disk
            assert action.model not in books.memory
            books.disk.remove(action.model)
            return
        assert not books.draining
        if isinstance(action, Forward):
            assert action.model in books.loaded, "forwarded to an instance that does not hold the model"
            books.loaded.remove(action.model)
            books.loaded.append(action.model)
            books.flying[action.request] = action.model
            return
        books.work.append(action)
        given = self.settings_of(books)
        if isinstance(action, Download):
            assert action.model not in books.disk
        elif isinstance(action, Load):
            assert action.model in books.disk
            assert action.model not in books.memory
            books.memory[action.model] = given.memory_bytes(SIZES[action.model])
        elif isinstance(action, Unload):
            busy = set(books.flying.values())
            assert action.model not in busy, "a model with a request in flight was unloaded"
            older = books.loaded[: books.loaded.index(action.model)]
            assert not given.cache_enabled or all(model in busy for model in older), "an idle model was less recently used"
            books.loaded.remove(action.model)

    def pick(self, choice: int, kinds):
        """Some work of these kinds that is under way: the instance's name, its books and the action."""
        found = [(name, books, work) for name, books in self.instances.items() for work in books.work if isinstance(work, kinds)]
        if not found:
            return None
        name, books, work = found[choice % len(found)]
        books.work.remove(work)
        return name, books, work

    @initialize(
        count=st.integers(min_value=1, max_value=2), kind=st.sampled_from(sorted(SETTINGS)), router=st.sampled_from(sorted(ROUTERS))
    )
    def start(self, count: int, kind: str, router: str) -> None:
        self.begin_fleet(count, kind, router)

    def begin_fleet(self, count: int, kind: str, router: str) -> None:
        fleet = Fleet(SETTINGS[kind], ROUTERS[router]())
        self.fleets.append((Recorder(fleet), fleet, SETTINGS[kind], router))
        for _ in range(count):
            self.add()

    @rule()
    @precondition(lambda self: len(self.instances) < 4)
    def add(self) -> None:
        number = next(self.names)
        self.bring_up(f"i{number}", Books(self.recorder, ZONES[number % 2]))

    def bring_up(self, name: str, books: Books, *, disk_kept: bool = False) -> None:
        self.instances[name] = books
        self.tell(books.recorder, InstanceUp(name, MEMORY, DISK, disk_kept, books.zone))

    @rule(count=st.integers(min_value=1, max_value=2), kind=st.sampled_from(sorted(SETTINGS)), router=st.sampled_from(sorted(ROUTERS)))
    @precondition(lambda self: len(self.fleets) < 3)
    def update(self, count: int, kind: str, router: str) -> None:
        """Blue/green: a whole new fleet takes the requests, the old one answers what it has."""
        self.begin_fleet(count, kind, router)

    @rule(choice=ANY)
    @precondition(lambda self: len(self.fleets) > 1)
    def end_replaced_fleet(self, choice: int) -> None:
        recorder = self.fleets[choice % (len(self.fleets) - 1)][0]
        for name, books in list(self.instances.items()):
            if books.recorder is recorder and not books.draining:
                books.draining = True
                self.tell(recorder, InstanceDraining(name))

    @rule(model=st.sampled_from(sorted(SIZES)))
    def request(self, model: str) -> None:
        number = next(self.numbers)
        self.requests += 1
        self.asked_at[number] = self.now
        self.tell(self.recorder, Request(number, model))

    @rule(models=st.lists(st.sampled_from(["a", "b", "c"]), min_size=3, max_size=6))
    def burst(self, models: list[str]) -> None:
        """Queues and turns matter only when much is asked at once."""
        for model in models:
            self.request(model)

    @rule(model=st.sampled_from(["a", "b", "c", "d", "e"]), answered=st.booleans())
    def serve(self, model: str, answered: bool) -> None:
        """Most orders of single steps never fill the memory: take a request through everything."""
        self.request(model)
        for _ in range(20):
            self.finish_download(0)
            self.finish_unload(0)
            self.finish_load(0)
        if answered:
            self.answer(-1, 200)

    @rule(choice=ANY)
    def finish_download(self, choice: int) -> None:
        if picked := self.pick(choice, Download):
            name, books, work = picked
            if not books.draining:
                books.disk.add(work.model)
            self.tell(books.recorder, Downloaded(name, work.model, SIZES[work.model]))

    @rule(choice=ANY)
    def finish_load(self, choice: int) -> None:
        if picked := self.pick(choice, Load):
            name, books, work = picked
            if not books.draining:
                books.loaded.append(work.model)
            self.tell(books.recorder, Loaded(name, work.model))

    @rule(choice=ANY, kind=st.sampled_from(sorted(LoadFailure, key=str)))
    def fail_load(self, choice: int, kind: LoadFailure) -> None:
        if picked := self.pick(choice, (Download, Load)):
            name, books, work = picked
            if isinstance(work, Download) and kind is LoadFailure.OUT_OF_MEMORY:
                kind = LoadFailure.MISSING
            books.memory.pop(work.model, None)
            self.tell(books.recorder, LoadFailed(name, work.model, kind, 500))

    @rule(choice=ANY)
    def finish_unload(self, choice: int) -> None:
        if picked := self.pick(choice, Unload):
            name, books, work = picked
            books.memory.pop(work.model)
            self.tell(books.recorder, Unloaded(name, work.model))

    @rule(choice=ANY, status=st.sampled_from([200, 200, 200, 400, 500, 0, None]))
    def answer(self, choice: int, status: int | None) -> None:
        flying = [(books.recorder, request) for books in self.instances.values() for request in books.flying]
        if flying:
            recorder, request = flying[choice % len(flying)]
            self.tell(recorder, Replied(request, status))

    def lose_all(self, names: list[str]) -> None:
        """What the books say of lost instances; a draining one is released by the loss."""
        for name in names:
            books = self.instances[name]
            if books.draining:
                self.instances[name] = Books(books.recorder, books.zone)
                self.instances[name].draining = True
            else:
                self.lost[name] = self.instances.pop(name)

    @rule(choice=ANY)
    def lose(self, choice: int) -> None:
        if self.instances:
            name = list(self.instances)[choice % len(self.instances)]
            recorder = self.instances[name].recorder
            self.lose_all([name])
            self.tell(recorder, InstanceLost(name))
            assert name not in self.instances

    @rule(zone=st.sampled_from(ZONES))
    def lose_zone(self, zone: str) -> None:
        gone = [name for name, books in self.instances.items() if books.zone == zone]
        self.lose_all(gone)
        for recorder, *_ in self.fleets:
            self.tell(recorder, ZoneLost(zone))
        assert not set(gone) & set(self.instances)

    @rule(choice=ANY, disk_kept=st.booleans())
    def return_lost(self, choice: int, disk_kept: bool) -> None:
        if self.lost:
            name = list(self.lost)[choice % len(self.lost)]
            was = self.lost.pop(name)
            self.bring_up(name, Books(was.recorder, was.zone, was.disk if disk_kept else ()), disk_kept=disk_kept)

    @rule(choice=ANY)
    def drain(self, choice: int) -> None:
        names = [name for name, books in self.instances.items() if not books.draining]
        if names:
            name = names[choice % len(names)]
            self.instances[name].draining = True
            self.tell(self.instances[name].recorder, InstanceDraining(name))

    @rule(seconds=st.floats(min_value=0.0, max_value=WAIT))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds
        for recorder, fleet, *_ in self.fleets:
            deadline = fleet.next_deadline()
            if deadline is not None and deadline <= self.now:
                self.tell(recorder, Tick())
            deadline = fleet.next_deadline()
            assert deadline is None or deadline > self.now

    @invariant()
    def no_budget_is_exceeded(self) -> None:
        for name, books in self.instances.items():
            assert books.draining or sum(books.memory.values()) <= MEMORY, name
            assert sum(SIZES[model] for model in books.disk) <= DISK, name

    @invariant()
    def no_limit_is_exceeded(self) -> None:
        for name, books in self.instances.items():
            given = self.settings_of(books)
            if books.draining:
                continue
            loads = sum(isinstance(work, Download | Load) for work in books.work)
            assert given.loads_at_once is None or loads <= given.loads_at_once, name
            if given.model_queue_size is not None:
                assert all(count <= given.workers_per_model for count in Counter(books.flying.values()).values()), name

    @invariant()
    def the_snapshot_agrees_with_the_books(self) -> None:
        known = set()
        for _, fleet, given, _ in self.fleets:
            for snapshot in fleet.snapshot().instances:
                if snapshot.instance not in self.instances:
                    assert snapshot.state == "down"
                    assert not snapshot.models, "a lost instance holds a model"
                    assert snapshot.memory_bytes == 0
                    continue
                known.add(snapshot.instance)
                books = self.instances[snapshot.instance]
                assert snapshot.zone == books.zone
                assert [model.model for model in snapshot.models if model.state == "loaded"] == books.loaded
                assert set(snapshot.on_disk) == books.disk
                assert snapshot.disk_bytes == sum(SIZES[model] for model in books.disk)
                if not books.draining:
                    assert snapshot.memory_bytes == sum(books.memory.values())
                if given.model_queue_size is not None:
                    held = given.workers_per_model + given.model_queue_size
                    assert all(model.in_flight + model.waiting <= held for model in snapshot.models)
        assert known == set(self.instances)

    @invariant()
    def no_request_is_answered_twice(self) -> None:
        assert all(count == 1 for count in self.replies.values())

    @invariant()
    def nobody_waits_beyond_the_wait(self) -> None:
        flying = {request for books in self.instances.values() for request in books.flying}
        for request, asked_at in self.asked_at.items():
            if request not in self.replies and request not in flying:
                assert asked_at + WAIT >= self.now

    def teardown(self) -> None:
        """Whatever happened, once all work is done every request has one answer; and the run can be replayed."""
        for _ in range(10_000):
            if not any(books.work or books.flying for books in self.instances.values()):
                break
            self.finish_download(0)
            self.finish_load(0)
            self.finish_unload(0)
            self.answer(0, 200)
        assert not any(books.work or books.flying for books in self.instances.values())
        assert not any(books.draining for books in self.instances.values()), (
            "a draining instance has nothing left to do and is not released"
        )
        assert self.requests == len(self.replies)
        self.no_request_is_answered_twice()
        for recorder, _, given, router in self.fleets:
            replay(recorder.steps, Fleet(given, ROUTERS[router]()))


FleetMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
test_the_fleet_keeps_its_promises = FleetMachine.TestCase
