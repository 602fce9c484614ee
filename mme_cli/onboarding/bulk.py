"""Many models: some threads register and upload, one asks how the versions are doing, and a journal keeps what is known.

How versions are doing is asked by pages of a tenant's models, which name the active versions, because a question for each version would
cost more calls than its whole admission. Only versions that stay behind others are asked for one by one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition, Event, Thread

from mme_cli.errors import CommandError
from mme_cli.onboarding.artifact import digest_of
from mme_cli.onboarding.journal import Entry, Journal
from mme_cli.onboarding.manifest import Row
from mme_cli.onboarding.outcome import DECIDED, Outcome, outcome_of
from mme_cli.onboarding.uploading import register_and_upload
from mme_cli.onboarding_client import ApiError, OnboardingClient, StoppedError

__all__ = ["Bulk", "Pace", "Progress", "Result"]

_END_SECONDS = 60.0
_STOP_SECONDS = 5.0
"""How long a run that is stopped waits for the answers to requests that are under way."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often is asked and written.

    Attributes:
        uploading_seconds: between two looks at a tenant's models while uploads are under way.
        first_seconds: between the first two looks after that; it grows by half from look to look.
        greatest_seconds: greatest such wait.
        behind_seconds: a version that became active so much later than ours was uploaded makes ours one to ask for.
        silent_seconds: when nothing was decided for so long, the oldest are asked for.
        ready_seconds: a version that is ready for so long stays so: another one keeps the route.
        unseen_seconds: a version that awaits its upload so long after it is said to be complete: its event may be lost.
        save_seconds: between two writes of the journal.
    """

    uploading_seconds: float = 15.0
    first_seconds: float = 1.0
    greatest_seconds: float = 15.0
    behind_seconds: float = 5.0
    silent_seconds: float = 20.0
    ready_seconds: float = 15.0
    unseen_seconds: float = 60.0
    save_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        total: models in the manifest.
        uploaded: of them, those whose artifact is with the platform.
        admitted: of them, those that can serve.
        failed: those that were rejected or could not be sent.
    """

    total: int
    uploaded: int
    admitted: int
    failed: int


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to.

    Attributes:
        rows: the manifest.
        outcomes: by the rows' order; ``None``: not decided, because the run was stopped.
        seconds: how long it took.
    """

    rows: Sequence[Row]
    outcomes: Sequence[Outcome | None]
    seconds: float

    @property
    def failures(self) -> list[tuple[Row, Outcome]]:
        """The rows that are not admitted, with why."""
        return [
            (row, outcome) for row, outcome in zip(self.rows, self.outcomes, strict=True) if outcome is not None and not outcome.admitted
        ]

    @property
    def undecided(self) -> int:
        """How many rows are not decided."""
        return sum(outcome is None for outcome in self.outcomes)


@dataclass(slots=True)
class _Waiting:
    """A row whose artifact is with the platform."""

    index: int
    row: Row
    version: str
    since: float
    asked: float
    ready_since: float | None = None


@dataclass(slots=True)
class _Look:
    """When a tenant's models are looked at."""

    at: float
    wait: float
    waiting: dict[str, _Waiting] = field(default_factory=dict)


class Bulk:
    """One run over a manifest.

    Args:
        rows: the manifest.
        client_for: the client that calls the API for a tenant.
        journal: what earlier runs did.
        concurrency: how many models are registered and uploaded at once.
        stop: ends the run: no new request is begun.
        timeout_seconds: how long the admission of a version may take after its upload.
        pace: how often is asked and written.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        client_for: Callable[[str], OnboardingClient],
        journal: Journal,
        *,
        concurrency: int,
        stop: Event,
        timeout_seconds: float,
        pace: Pace = Pace(),
    ) -> None:
        self._rows, self._client_for, self._journal = rows, client_for, journal
        self._concurrency, self._stop, self._timeout_seconds, self._pace = concurrency, stop, timeout_seconds, pace
        self._changed = Condition()
        self._to_do = deque(range(len(rows)))
        self._workers = 0
        self._digests: dict[int, str] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._uploaded: set[int] = set()
        self._looks: dict[str, _Look] = {}
        self._last_decided_upload = 0.0
        self._last_decision = time.monotonic()
        self._broken: BaseException | None = None

    def run(self, show: Callable[[Progress], object], every_seconds: float = 0.1) -> Result:
        """Work until every row is decided, or `stop` is set, which a KeyboardInterrupt in this thread does, too.

        Args:
            show: is told again and again how far it is.
            every_seconds: how often.

        Raises:
            KeyboardInterrupt: after the journal was written.
            CommandError: the journal cannot be written.
        """
        started = time.monotonic()
        threads = [Thread(target=self._guard, args=(self._work,), daemon=True) for _ in range(min(self._concurrency, len(self._rows)))]
        self._workers = len(threads)
        threads.append(Thread(target=self._guard, args=(self._watch,), daemon=True))
        try:
            for thread in threads:
                thread.start()
            saved = started
            while not self._is_over():
                show(self._progress())
                if time.monotonic() - saved > self._pace.save_seconds:
                    self._journal.save()
                    saved = time.monotonic()
                with self._changed:
                    self._changed.wait_for(self._is_over, every_seconds)
        finally:
            decided = len(self._outcomes) == len(self._rows)
            self._stop.set()
            with self._changed:
                self._changed.notify_all()
            self._journal.save()
            patience = time.monotonic() + (_END_SECONDS if decided else _STOP_SECONDS)
            for thread in threads:
                if thread.ident is not None:
                    thread.join(max(0.0, patience - time.monotonic()))
            self._journal.save()
        show(self._progress())
        if self._broken is not None:
            raise self._broken
        return Result(self._rows, [self._outcomes.get(index) for index in range(len(self._rows))], time.monotonic() - started)

    def _is_over(self) -> bool:
        return self._stop.is_set() or len(self._outcomes) == len(self._rows)

    def _progress(self) -> Progress:
        with self._changed:
            admitted = sum(outcome.admitted for outcome in self._outcomes.values())
            return Progress(len(self._rows), len(self._uploaded), admitted, len(self._outcomes) - admitted)

    def _guard(self, work: Callable[[], None]) -> None:
        """A thread that fails unexpectedly ends the run, which raises it."""
        try:
            work()
        except StoppedError:
            return
        except BaseException as error:
            self._broken = error
            self._stop.set()

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                with self._changed:
                    if not self._to_do:
                        return
                    index = self._to_do.popleft()
                try:
                    self._begin(index, self._rows[index])
                except StoppedError:
                    raise
                except CommandError as error:
                    self._decide(index, Outcome(None, "failed", error=str(error)))
        finally:
            with self._changed:
                self._workers -= 1
                for look in self._looks.values():
                    look.at = min(look.at, time.monotonic() + self._pace.first_seconds)
                self._changed.notify_all()

    def _begin(self, index: int, row: Row) -> None:
        """Bring a row so far that its artifact is with the platform, unless an earlier run did, or even knows its end."""
        client, files = self._client_for(row.files.tenant), row.files
        self._digests[index] = sha256 = digest_of(files.artifact, self._stop)
        known = self._journal.get(row.name, sha256)
        if known is not None and known.state is not None:
            self._decide(index, Outcome(known.version, known.state, known.reasons, known.warnings))
            return
        if known is not None:
            document = client.version(files.tenant, files.model, known.version)
            if document["state"] in DECIDED:
                self._decide(index, outcome_of(document))
                return
            if document["state"] != "awaiting_upload":
                self._await(index, row, known.version)
                return
        uploaded = register_and_upload(client, files, sha256, lambda _bytes: None)
        self._await(index, row, uploaded.version)

    def _await(self, index: int, row: Row, version: str) -> None:
        now = time.monotonic()
        self._journal.put(row.name, Entry(self._digests[index], version))
        with self._changed:
            self._uploaded.add(index)
            look = self._looks.setdefault(row.files.tenant, _Look(now + self._first_look(), self._pace.first_seconds))
            look.waiting[row.files.model] = _Waiting(index, row, version, now, now)
            self._changed.notify_all()

    def _first_look(self) -> float:
        return self._pace.uploading_seconds if self._to_do else self._pace.first_seconds

    def _decide(self, index: int, outcome: Outcome, since: float | None = None) -> None:
        row = self._rows[index]
        if outcome.error is None and outcome.version is not None:
            self._journal.put(
                row.name, Entry(self._digests[index], outcome.version, outcome.state, tuple(outcome.reasons), tuple(outcome.warnings))
            )
        with self._changed:
            self._outcomes[index] = outcome
            if outcome.error is None:
                self._uploaded.add(index)
            look = self._looks.get(row.files.tenant)
            if look is not None and (waiting := look.waiting.get(row.files.model)) is not None and waiting.index == index:
                del look.waiting[row.files.model]
            self._last_decision = time.monotonic()
            self._last_decided_upload = max(self._last_decided_upload, since or 0.0)
            self._changed.notify_all()

    def _watch(self) -> None:
        """Look at tenants whose time has come, until everything is decided."""
        while not self._is_over():
            with self._changed:
                now = time.monotonic()
                due = [tenant for tenant, look in self._looks.items() if look.waiting and look.at <= now]
                if not due:
                    times = [look.at for look in self._looks.values() if look.waiting]
                    self._changed.wait(min([*(at - now for at in times), self._pace.first_seconds]))
                    continue
            for tenant in due:
                self._look(tenant)

    def _look(self, tenant: str) -> None:
        look = self._looks[tenant]
        with self._changed:
            waiting = dict(look.waiting)
        try:
            self._look_at(tenant, waiting)
        except StoppedError:
            raise
        except CommandError as error:
            for one in waiting.values():
                self._decide(one.index, Outcome(one.version, "failed", error=f"how it ended is not known: {error}"))
        with self._changed:
            uploading = self._workers > 0
            look.at = time.monotonic() + (self._pace.uploading_seconds if uploading else look.wait)
            if not uploading:
                look.wait = min(look.wait * 1.5, self._pace.greatest_seconds)

    def _look_at(self, tenant: str, waiting: dict[str, _Waiting]) -> None:
        client = self._client_for(tenant)
        left = dict(waiting)
        for model in client.models(tenant):
            one = left.get(model["model"])
            if one is not None and model["active_version"] == one.version:
                del left[model["model"]]
                self._decide(one.index, Outcome(one.version, "active"), one.since)
            if not left:
                return
        for one in self._to_ask_for(list(left.values())):
            self._ask_for(client, one)

    def _to_ask_for(self, left: list[_Waiting]) -> list[_Waiting]:
        """The last few; else those that others have overtaken and, where nothing moves, a few of the oldest."""
        now, pace = time.monotonic(), self._pace
        with self._changed:
            overtaken_before = self._last_decided_upload - pace.behind_seconds
            silent = now - self._last_decision > pace.silent_seconds
            few = not self._workers and sum(len(look.waiting) for look in self._looks.values()) <= self._concurrency
        least = pace.first_seconds if few else pace.behind_seconds
        rested = [one for one in left if now - one.asked > max(least, (one.asked - one.since) / 2)]
        overtaken = [one for one in rested if one.since < overtaken_before or one.ready_since is not None]
        oldest = sorted(rested, key=lambda one: one.since)[: self._concurrency] if silent else []
        late = [one for one in left if now - one.since > self._timeout_seconds]
        asked = rested if few else [*overtaken, *oldest, *late]
        return list({one.index: one for one in asked}.values())

    def _ask_for(self, client: OnboardingClient, one: _Waiting) -> None:
        files = one.row.files
        try:
            document = client.version(files.tenant, files.model, one.version)
            if document["state"] == "awaiting_upload" and time.monotonic() - one.since > self._pace.unseen_seconds:
                document = client.complete(files.tenant, files.model, one.version)
        except ApiError as error:
            self._decide(one.index, Outcome(one.version, "failed", error=str(error)), one.since)
            return
        now, state = time.monotonic(), document["state"]
        one.asked = now
        if state == "ready" and one.ready_since is None:
            one.ready_since = now
        stays_ready = one.ready_since is not None and now - one.ready_since > self._pace.ready_seconds
        if state in DECIDED or (state == "ready" and stays_ready):
            self._decide(one.index, outcome_of(document), one.since)
        elif now - one.since > self._timeout_seconds:
            error_text = f"version {one.version} is still {state} {self._timeout_seconds:.0f} s after its upload"
            self._decide(one.index, Outcome(one.version, state, error=error_text), one.since)
