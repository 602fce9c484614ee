"""An endpoint in virtual time, and a registry of models for it: what tests of warm-ups call."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mme_tenancy.invocation import ModelReply
from mme_tenancy.registry import Change
from mme_tenancy.retries import RuntimeFault
from mme_tenancy.routes import Model, Route
from mme_tenancy.testing import FakeClock, MemoryRegistry
from mme_tenancy.versions import Sample, State
from mme_tenancy.warm_up.plan import Step, WarmUpPlan

ENDPOINT, VARIANT = "one", "AllTraffic"
LOAD, SERVICE = 2.0, 0.05
NOW = "2026-11-29T12:00:00.000Z"

NOT_READY = RuntimeFault("ModelNotReadyException", 429)
THROTTLED = RuntimeFault("ThrottlingException", 400)
UNAVAILABLE = RuntimeFault("ServiceUnavailable", 503)
REJECTED = RuntimeFault("ModelError", 424, 400)
BROKEN = RuntimeFault("ModelError", 424, 500)
TIMED_OUT = RuntimeFault("ReadTimeout")
GONE = RuntimeFault("ValidationError", 400, None, "Failed to download model data")


@dataclass
class VirtualEndpoint:
    """`mme_tenancy.invocation.Runtime`: a model that is not resident takes its load time first.

    Attributes:
        clock: sleeps for loads and answers.
        resident: the models that are loaded.
        faults: by TargetModel, what the next calls of it meet; the last entry goes on for ever, ``None`` answers.
        calls: every call: when, target, request and timeout.
        answers: when each answer was given, and whether the model was resident.
    """

    clock: FakeClock
    resident: set[str] = field(default_factory=set)
    faults: dict[str, list[RuntimeFault | None]] = field(default_factory=dict)
    calls: list = field(default_factory=list)
    answers: list = field(default_factory=list)

    def invoke(self, target, request, timeout_seconds):
        self.calls.append((self.clock.now, target, request, timeout_seconds))
        script = self.faults.get(target.target_model) or self.faults.get("*") or [None]
        fault = script.pop(0) if len(script) > 1 else script[0]
        if fault is not None:
            self.clock.sleep(0.01)
            raise fault
        resident = target.target_model in self.resident
        if not resident:
            self.clock.sleep(LOAD)
            self.resident.add(target.target_model)
        self.clock.sleep(SERVICE)
        self.answers.append((self.clock.now, resident))
        return ModelReply(b"0", "text/csv")

    @property
    def called(self):
        """How often each model was called."""
        return Counter(target.target_model for _when, target, _request, _timeout in self.calls)


def registered(make_version, count, *, registry=None, state=State.ACTIVE):
    """So many models of tenant acme that are routed to the endpoint; the registry and their TargetModels."""
    registry = registry or MemoryRegistry()
    targets = []
    for number in range(count):
        name = f"m{number:03d}"
        sample = Sample("text/csv", f"sample of {name}".encode(), "text/csv")
        version = make_version(
            state,
            model=name,
            artifact=name.encode(),
            moving=False,
            sample=sample,
            size_bytes=100,
            memory_bytes=100,
            timings={"first_invocation_seconds": LOAD + SERVICE},
        )
        route = Route(ENDPOINT, VARIANT, str(version.id), version.name.target_model)
        registry.write(Change(None, version), Change(None, Model("acme", name, 1, NOW, NOW, route)))
        targets.append(version.name.target_model)
    return registry, targets


def plan_of(targets, *, in_flight=4, moved_share=1.0, rate=0.01):
    """A plan that calls these models in their order."""
    steps = tuple(Step(target, 100, LOAD, rate, SERVICE, 60.0) for target in targets)
    return WarmUpPlan(kind=None, steps=steps, skipped={}, in_flight=in_flight, moved_share=moved_share, requests_per_second=0.0)
