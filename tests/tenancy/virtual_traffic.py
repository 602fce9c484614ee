"""The product's own invocation path over the simulated fleet, in virtual time: callers wait for `mme_fleet.Simulator`, not for a clock.

The path blocks its caller, so each caller is a greenlet; the simulator's heap says who goes on when.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from greenlet import getcurrent, greenlet

from mme_fleet import Costs, FleetSettings, InstanceSpec, LoadCosts, RequestAnswer, Simulator
from mme_tenancy.clock import Clock
from mme_tenancy.errors import TenancyError, ThrottledError
from mme_tenancy.fairness import Fairness, Limits
from mme_tenancy.invocation import InvocationRequest, Invoker, ModelReply
from mme_tenancy.invocation_path import Addressee, InvocationPath
from mme_tenancy.retries import RuntimeFault
from mme_tenancy.routes import Model, Route, Target
from mme_tenancy.tenants import Quotas, Tenant
from mme_tenancy.testing import FakeClock

MIB = 2**20
NOW = "2026-11-29T12:00:00.000Z"
REQUEST = InvocationRequest(b"1,2", "text/csv")
REPLY = ModelReply(b"1.0", "text/csv")
ANY_NUMBER = 10**6


class VirtualClock(FakeClock):
    """The simulator's time; who sleeps is woken by it."""

    def __init__(self, simulator: Simulator) -> None:
        super().__init__()
        self.simulator = simulator

    def monotonic(self) -> float:
        return self.simulator.now

    def sleep(self, seconds: float) -> None:
        caller = getcurrent()
        self.simulator.at(self.simulator.now + seconds, caller.switch)
        caller.parent.switch()


class SimulatedRuntime:
    """SageMaker's runtime in front of the simulated fleet; knows which answers waited for a load."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.cold: set[greenlet] = set()

    def invoke(self, target: Target, _request: InvocationRequest, _timeout_seconds: float) -> ModelReply:
        caller, simulator = getcurrent(), self.simulator

        def answered(answer: RequestAnswer) -> None:
            # Not at once: the fleet is in the middle of its step.
            simulator.at(simulator.now, partial(caller.switch, answer))

        simulator.ask(target.target_model, answered)
        answer = caller.parent.switch()
        if answer.cold or (answer.error is not None and answer.error.code == "ModelNotReadyException"):
            self.cold.add(caller)
        if answer.error is not None:
            raise RuntimeFault(answer.error.code, answer.error.status, answer.error.original_status, answer.error.message)
        return REPLY


@dataclass
class Counts:
    """What callers of one kind saw: seconds until each answer, how many of those waited for a load, and errors by their kind."""

    seconds: list[float] = field(default_factory=list)
    cold: int = 0
    refused: dict[type[TenancyError], int] = field(default_factory=dict)

    @property
    def cold_ratio(self) -> float:
        return self.cold / len(self.seconds)


class Containers:
    """Where the path runs: each container has an `InvocationPath` of its own, with its own `Fairness`; the one used last is used next.

    Args:
        make: a path.
        each: requests that one container takes at a time: ``None`` for any number, as a process of an application; 1 as AWS Lambda does.
        most: containers at the same time; a request beyond them is refused, as by reserved concurrency.
    """

    def __init__(self, make: Callable[[], InvocationPath], *, each: int | None, most: int = 1000) -> None:
        self._make, self._most = make, most
        self._one = make() if each is None else None
        self._idle: list[InvocationPath] = []
        self.made = 0

    def take(self) -> InvocationPath:
        if self._one is not None:
            return self._one
        if self._idle:
            return self._idle.pop()
        if self.made >= self._most:
            raise ThrottledError("no container is left")
        self.made += 1
        return self._make()

    def give_back(self, path: InvocationPath) -> None:
        if self._one is None:
            self._idle.append(path)


class World:
    """Tenants' models on two simulated instances, and callers.

    Args:
        quotas: of each tenant.
        each: see `Containers`.
        plan: whether a usage plan in front keeps each tenant to its `requests_per_second`, wherever its calls run then.
    """

    def __init__(self, quotas: Mapping[str, Quotas], *, each: int | None, plan: bool = False) -> None:
        load = LoadCosts(
            unpacked_bytes=lambda _model: 20 * MIB,
            download_bytes_per_second=100e6,
            download_latency_seconds=0.05,
            load_bytes_per_second=200e6,
            load_constant_seconds=0.8,
        )
        costs = Costs(
            unpacked_bytes=load.unpacked_bytes,
            download_seconds=load.download_seconds,
            load_seconds=load.load_seconds,
            service_seconds=lambda _model: 0.015,
        )
        instance = InstanceSpec(memory_bytes=200 * 20 * MIB, disk_bytes=1000 * 20 * MIB)
        self.simulator = Simulator(costs, [instance, instance], settings=FleetSettings(load_concurrency=8))
        self.clock: Clock = VirtualClock(self.simulator)
        self.runtime = SimulatedRuntime(self.simulator)
        self._tenants = {name: Tenant(name, NOW, NOW, quotas=quota) for name, quota in quotas.items()}
        # The product's own bucket stands for API Gateway's: one for all containers, and it keeps rates only.
        self._gateway = Fairness(self.clock) if plan else None
        self.containers = Containers(self._path, each=each)

    def _path(self) -> InvocationPath:
        jitter = random.Random(7).random
        invoker = Invoker(self.runtime, self.clock, jitter)
        return InvocationPath(self._look_up, invoker, self.clock, background=lambda renew: renew())

    def _look_up(self, tenant: str, model: str) -> Addressee:
        version = "v1-0123456789ab"
        route = Route("shared", "AllTraffic", version, f"{tenant}/{model}/{version}.tar.gz")
        return Addressee(self._tenants[tenant], Model(tenant, model, 1, NOW, NOW, route))

    def run(self, arrivals: Iterable[tuple[float, str, str]], *, counted_from: float, noisy: str) -> dict[bool, Counts]:
        """Let calls come; returns what the noisy tenant's callers and the others saw of those that came from ``counted_from`` on."""
        counts = {True: Counts(), False: Counts()}

        def call(tenant: str, model: str) -> None:
            came = self.simulator.now
            seen = counts[tenant == noisy] if came >= counted_from else Counts()
            caller = getcurrent()
            try:
                self._call(tenant, model)
            except TenancyError as error:
                kind = type(error)
                seen.refused[kind] = seen.refused.get(kind, 0) + 1
            else:
                seen.seconds.append(self.simulator.now - came)
                seen.cold += caller in self.runtime.cold
            self.runtime.cold.discard(caller)

        last = 0.0
        for last, tenant, model in arrivals:
            self.simulator.at(last, partial(self._spawn, call, tenant, model))
        self.simulator.run([], until=last + 90)
        return counts

    def _spawn(self, call: Callable[[str, str], None], tenant: str, model: str) -> None:
        greenlet(call).switch(tenant, model)

    def _call(self, tenant: str, model: str) -> None:
        if self._gateway is not None:
            limits = Limits(self._tenants[tenant].quotas.requests_per_second, ANY_NUMBER, ANY_NUMBER)
            with self._gateway.turn(tenant, model, limits) as turn:
                turn.answer()
        path = self.containers.take()
        try:
            path.invoke(tenant, model, REQUEST, deadline=self.simulator.now + 27, sticky_key="").outcome.answer()
        finally:
            self.containers.give_back(path)
