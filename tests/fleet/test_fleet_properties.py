"""No order of events breaks the fleet: hypothesis drives it, and keeps books of its own from the actions alone."""

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
    Load,
    Loaded,
    LoadFailed,
    LoadFailure,
    Recorder,
    Release,
    Replied,
    Reply,
    Request,
    Tick,
    Unload,
    Unloaded,
    replay,
)

MEMORY, DISK, OVERHEAD, WAIT = 100, 130, 10, 5.0
SIZES = {"a": 15, "b": 20, "c": 25, "d": 40, "e": 60, "too large": 95, "too large for the disk": 140}
SETTINGS = FleetSettings(model_overhead_bytes=OVERHEAD, load_wait_seconds=WAIT, load_attempts=2)
ANY = st.integers(min_value=0, max_value=1_000_000)


class Books:
    """What the driver knows of one instance that is up or draining."""

    def __init__(self) -> None:
        self.memory: dict[str, int] = {}
        self.loaded: list[str] = []  # least recently used first
        self.flying: dict[int, str] = {}
        self.disk: set[str] = set()
        self.draining = False
        self.work: list = []


class FleetMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.recorder = Recorder(fleet := Fleet(SETTINGS))
        self.fleet = fleet
        self.now = 0.0
        self.instances: dict[str, Books] = {}
        self.kept_disks: dict[str, set[str]] = {}
        self.requests = 0
        self.replies: Counter[int] = Counter()
        self.asked_at: dict[int, float] = {}
        self.numbers = iter(range(1, 1_000_000))
        self.names = iter(range(1, 1_000_000))

    def tell(self, event) -> None:
        actions = self.recorder.on(event, self.now)
        for action in actions:
            self.check(action, actions)

    def check(self, action, actions) -> None:
        if isinstance(action, Reply):
            self.replies[action.request] += 1
            for books in self.instances.values():
                books.flying.pop(action.request, None)
            return
        books = self.instances[action.instance]
        if isinstance(action, Release):
            assert books.draining or action.instance in self.kept_disks
            assert not books.flying
            del self.instances[action.instance]
            return
        if isinstance(action, Discard):
            assert action.model in books.disk
            assert action.model not in books.memory
            books.disk.remove(action.model)
            return
        if isinstance(action, Forward):
            assert action.model in books.loaded, "forwarded to an instance that does not hold the model"
            books.loaded.remove(action.model)
            books.loaded.append(action.model)
            books.flying[action.request] = action.model
            return
        assert not books.draining
        books.work.append(action)
        if isinstance(action, Download):
            assert action.model not in books.disk
        elif isinstance(action, Load):
            assert action.model in books.disk
            assert action.model not in books.memory
            books.memory[action.model] = SIZES[action.model] + OVERHEAD
        elif isinstance(action, Unload):
            busy = set(books.flying.values())
            assert action.model not in busy, "a model with a request in flight was evicted"
            older = books.loaded[: books.loaded.index(action.model)]
            assert all(model in busy for model in older), "an idle model was less recently used"
            books.loaded.remove(action.model)

    def pick(self, choice: int, kinds):
        """Some work of these kinds that is under way: the instance's name, its books and the action."""
        found = [(name, books, work) for name, books in self.instances.items() for work in books.work if isinstance(work, kinds)]
        if not found:
            return None
        name, books, work = found[choice % len(found)]
        books.work.remove(work)
        return name, books, work

    @initialize(count=st.integers(min_value=1, max_value=2))
    def start(self, count: int) -> None:
        for _ in range(count):
            self.add()

    @rule()
    @precondition(lambda self: len(self.instances) < 3)
    def add(self) -> None:
        name = f"i{next(self.names)}"
        self.instances[name] = Books()
        self.tell(InstanceUp(name, MEMORY, DISK))

    @rule(model=st.sampled_from(sorted(SIZES)))
    def request(self, model: str) -> None:
        number = next(self.numbers)
        self.requests += 1
        self.asked_at[number] = self.now
        self.tell(Request(number, model))

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
            self.tell(Downloaded(name, work.model, SIZES[work.model]))

    @rule(choice=ANY)
    def finish_load(self, choice: int) -> None:
        if picked := self.pick(choice, Load):
            name, books, work = picked
            if not books.draining:
                books.loaded.append(work.model)
            self.tell(Loaded(name, work.model))

    @rule(choice=ANY, kind=st.sampled_from(sorted(LoadFailure, key=str)))
    def fail_load(self, choice: int, kind: LoadFailure) -> None:
        if picked := self.pick(choice, (Download, Load)):
            name, books, work = picked
            if isinstance(work, Download) and kind is LoadFailure.OUT_OF_MEMORY:
                kind = LoadFailure.MISSING
            books.memory.pop(work.model, None)
            self.tell(LoadFailed(name, work.model, kind, 500))

    @rule(choice=ANY)
    def finish_unload(self, choice: int) -> None:
        if picked := self.pick(choice, Unload):
            name, books, work = picked
            books.memory.pop(work.model)
            self.tell(Unloaded(name, work.model))

    @rule(choice=ANY, status=st.sampled_from([200, 200, 200, 400, 500, 0, None]))
    def answer(self, choice: int, status: int | None) -> None:
        flying = [request for books in self.instances.values() for request in books.flying]
        if flying:
            self.tell(Replied(flying[choice % len(flying)], status))

    @rule(choice=ANY)
    def lose(self, choice: int) -> None:
        if not self.instances:
            return
        name = list(self.instances)[choice % len(self.instances)]
        self.kept_disks[name] = self.instances[name].disk
        draining = self.instances[name].draining
        self.instances[name] = Books()
        self.instances[name].draining = draining
        self.tell(InstanceLost(name))
        self.instances.pop(name, None)
        if draining:
            del self.kept_disks[name]

    @rule(choice=ANY, disk_kept=st.booleans())
    def return_lost(self, choice: int, disk_kept: bool) -> None:
        if self.kept_disks:
            name = list(self.kept_disks)[choice % len(self.kept_disks)]
            disk = self.kept_disks.pop(name)
            self.instances[name] = Books()
            if disk_kept:
                self.instances[name].disk = disk
            self.tell(InstanceUp(name, MEMORY, DISK, disk_kept=disk_kept))

    @rule(choice=ANY)
    def drain(self, choice: int) -> None:
        names = [name for name, books in self.instances.items() if not books.draining]
        if names:
            name = names[choice % len(names)]
            self.instances[name].draining = True
            self.tell(InstanceDraining(name))

    @rule(seconds=st.floats(min_value=0.0, max_value=WAIT))
    def let_time_pass(self, seconds: float) -> None:
        self.now += seconds
        deadline = self.fleet.next_deadline()
        if deadline is not None and deadline <= self.now:
            self.tell(Tick())
        deadline = self.fleet.next_deadline()
        assert deadline is None or deadline > self.now

    @invariant()
    def no_budget_is_exceeded(self) -> None:
        for name, books in self.instances.items():
            assert books.draining or sum(books.memory.values()) <= MEMORY, name
            assert sum(SIZES[model] for model in books.disk) <= DISK, name

    @invariant()
    def the_snapshot_agrees_with_the_books(self) -> None:
        for snapshot in self.fleet.snapshot().instances:
            if snapshot.instance not in self.instances:
                assert snapshot.state == "down"
                assert not snapshot.models, "a lost instance holds a model"
                assert snapshot.memory_bytes == 0
                continue
            books = self.instances[snapshot.instance]
            assert [model.model for model in snapshot.models if model.state == "loaded"] == books.loaded
            assert set(snapshot.on_disk) == books.disk
            assert snapshot.disk_bytes == sum(SIZES[model] for model in books.disk)
            if not books.draining:
                assert snapshot.memory_bytes == sum(books.memory.values())

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
        assert self.requests == len(self.replies)
        self.no_request_is_answered_twice()
        replay(self.recorder.steps, Fleet(SETTINGS))


FleetMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
test_the_fleet_keeps_its_promises = FleetMachine.TestCase
