"""What every event leads to, whatever it says: a look at the endpoints, and work on the warm-ups that are due.

What is due is in the endpoints' records. So whoever looks next goes on, whatever became of the one before: a process that dies lets its
lease run out, and another one continues from its checkpoint, or gives the warm-up up.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from mme_facts.warm_up import WarmUpEndpoint
from mme_tenancy.warm_up.execute import Stop
from mme_tenancy.warm_up.holder import Holder, Tools
from mme_tenancy.warm_up.ports import Continuations
from mme_tenancy.warm_up.report import warm_up_document

__all__ = ["Did", "Trigger", "Visited", "new_holder"]

Did = str
"""What a visit did: ``nothing``, ``sent`` (another invocation has it), ``ended``, ``paused`` or ``lost`` (see `Stop`)."""


@dataclass(frozen=True, slots=True)
class Visited:
    """What came of a visit.

    Attributes:
        did: by endpoint.
        errors: why others could not be dealt with, by endpoint.
    """

    did: Mapping[str, Did]
    errors: Mapping[str, Exception]


def new_holder() -> str:
    """An id that no other process has."""
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Visits endpoints.

    Attributes:
        targets: the endpoints that are warmed.
        tools: what their warm-ups are worked on with.
        continuations: calls the function itself.
        holder: makes ids.
    """

    targets: tuple[WarmUpEndpoint, ...]
    tools: Tools
    continuations: Continuations
    holder: Callable[[], str] = new_holder

    def visit(self, endpoints: Collection[str] | None = None, *, stop_at: float, start: bool = False) -> Visited:
        """Look at endpoints and do what is due. One that cannot be dealt with keeps no other one from its turn.

        Args:
            endpoints: names; those that are not warmed here are passed over. Default: all.
            stop_at: when this must have returned, on the monotonic clock.
            start: warm them although nothing has changed, unless a warm-up is under way.
        """
        did: dict[str, Did] = {}
        errors: dict[str, Exception] = {}
        due: list[WarmUpEndpoint] = []
        # An invocation that has too little time from the start would only call the next one like it, on and on.
        may_work = self.tools.has_time(stop_at)
        for target in [target for target in self.targets if endpoints is None or target.endpoint in endpoints]:
            try:
                record = self.tools.observer.look(target.endpoint, start=start)
            except Exception as error:
                errors[target.endpoint] = error
                continue
            did[target.endpoint] = "nothing"
            if record is None or not record.is_free(self.tools.clock.wall()):
                continue
            if may_work:
                due.append(target)
            else:
                self.tools.report.note(target.endpoint, "this invocation has too little time to warm anything", level="WARNING")
        # One is worked on here; the others need not wait for that.
        here = due[:1] + [target for target in due[1:] if not self._send(target.endpoint, did)]
        for target in here:
            try:
                did[target.endpoint] = self._work(target, stop_at, did)
            except Exception as error:
                del did[target.endpoint]
                errors[target.endpoint] = error
        return Visited(did, errors)

    def told(self, endpoint: str) -> Mapping[str, Any] | None:
        """The newest warm-up of an endpoint, for people; ``None``: there has been none."""
        record = self.tools.store.read(endpoint)
        return None if record is None or record.warm_up is None else warm_up_document(record.warm_up)

    def _work(self, target: WarmUpEndpoint, stop_at: float, did: dict[str, Did]) -> Did:
        if not self.tools.has_time(stop_at):
            self._send(target.endpoint, did)
            return did[target.endpoint]
        holder = Holder(self.tools, target, self.holder())
        record = holder.take()
        if record is None:
            return "nothing"
        stop = holder.work(record, stop_at=stop_at)
        if stop is Stop.PAUSED:
            self._send(target.endpoint, did)
        return stop.value

    def _send(self, endpoint: str, did: dict[str, Did]) -> bool:
        """Whether another invocation was asked to look after an endpoint; without it the next minute does."""
        try:
            self.continuations.send(endpoint)
        except Exception as error:
            self.tools.report.trouble(endpoint, "no other invocation could be asked: the next minute goes on", error)
            return False
        did[endpoint] = "sent"
        return True
