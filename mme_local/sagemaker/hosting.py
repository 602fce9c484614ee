"""The life of endpoints: created, updated, scaled, rolled back and deleted in the background.

All methods run on the gateway's event loop; nothing here does I/O but through the fleets given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

from mme_facts.limits import INVOKE_STREAM_SECONDS, INVOKE_TIMEOUT_SECONDS
from mme_local.dataplane.interface import InvokeReply, InvokeRequest, InvokeStream
from mme_local.sagemaker import exceptions, notices
from mme_local.sagemaker.in_flight import InFlight
from mme_local.sagemaker.placement import Hosts, capacity_of
from mme_local.sagemaker.policies import Policy, endpoint_policy
from mme_local.sagemaker.resources import Deployment, Doing, Endpoint, EndpointConfig, FleetOwner, Fleets, ResourceKind, Run, Variant
from mme_local.sagemaker.rollout import AlarmStates, Clock, DeploymentError, RollbackError, Rollout, end_fleet
from mme_local.sagemaker.settings import ControlPlaneSettings
from mme_local.wire import ValidationError

__all__ = ["ComponentMover", "Hosting", "MakeRun", "Surroundings"]

logger = logging.getLogger(__name__)

_REASON_CHARACTERS = 1024
_RESTING = ("InService", "UpdateRollbackFailed")
_DELETABLE = (*_RESTING, "Failed", "OutOfService")

MakeRun = Callable[[Endpoint, str, EndpointConfig, Mapping[str, Any], int], tuple[Run, Sequence[str], bool]]
"""The fleet of a variant: from endpoint, fleet name, configuration, variant and count; with its images and whether it has one model."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What endpoints and inference components need of the rest.

    Attributes:
        arn: makes the ARN of a resource from its kind and name.
        fleets: gives the data plane.
        clock: the scaled clock.
        settings: how long statuses last.
        alarms: the states of alarms.
        publish: sends an event to EventBridge.
        capacity: asked with an endpoint's name before instances without a fleet of their own start; raises when none can be had.
        instance_limit: instances that all endpoints together may have.
        chance: a number in [0, 1) for every request that may go several ways.
    """

    arn: Callable[[ResourceKind, str], str]
    fleets: Callable[[], Fleets]
    clock: Clock
    settings: ControlPlaneSettings
    alarms: AlarmStates
    publish: notices.Publish
    capacity: Callable[[str], None]
    instance_limit: int
    chance: Callable[[], float]


class ComponentMover:
    """What happens to an endpoint's inference components when its instances change; nothing by default."""

    def names(self, _endpoint: str) -> Sequence[str]:
        """The components of an endpoint."""
        return ()

    def busy(self, _endpoint: str) -> Sequence[str]:
        """Those that change at the moment."""
        return ()

    def plan(self, _endpoint: Endpoint, _variants: Sequence[Variant], _role_arn: str) -> tuple[Sequence[Run], Sequence[Run]]:
        """Place the components on new instances: their fleets of now, and those to come. Raises when there is no room."""
        return (), ()

    def shift(self, _endpoint: str, _traffic: float) -> None:
        """Give the components' new fleets this share of the requests."""

    def settle(self, _endpoint: str, *, moved: bool) -> None:
        """Keep the new fleets, or forget them."""

    def fleets(self, _endpoint: str) -> Collection[str]:
        """The fleets of the copies, those to come included."""
        return ()


class Hosting:
    """The endpoints of one account and region.

    Args:
        around: what they need.
        make_run: makes the fleet of a variant; raises `ValidationError`.
    """

    def __init__(self, around: Surroundings, make_run: MakeRun) -> None:
        self._around, self._make_run = around, make_run
        self.in_flight = InFlight()
        self.rollout = Rollout(around.fleets, around.clock, around.alarms, around.settings.alarm_poll_seconds, self.in_flight.drained)
        self.components = ComponentMover()
        self.owners: dict[str, FleetOwner] = {}
        self.by_name: dict[str, Endpoint] = {}

    # What the API asks.

    def get(self, name: str) -> Endpoint:
        """An endpoint by name; raises `ValidationError`."""
        if name not in self.by_name:
            raise exceptions.could_not_find("endpoint", self._around.arn("endpoint", name))
        return self.by_name[name]

    def create(self, endpoint: Endpoint, config: EndpointConfig) -> None:
        """Start an endpoint; raises `AwsError`."""
        needed = sum(one.get("InitialInstanceCount", 0) for one in config.variants)
        self.check_limit(config.variants[0].get("InstanceType", ""), needed)
        endpoint.reserved = needed
        self.by_name[endpoint.name] = endpoint
        self._begin(endpoint, "Creating", lambda: self._create(endpoint, config), self._around.settings.creating_seconds)

    def update(self, endpoint: Endpoint, config: EndpointConfig, request: Mapping[str, Any]) -> None:
        """Move an endpoint to another configuration; raises `AwsError`."""
        self._check_resting(endpoint)
        if config.hosts_components != endpoint.hosts_components:
            raise ValidationError(f'Endpoint "{endpoint.arn}" cannot change between models and inference components.')
        kept = _kept(request)
        counts = {one["VariantName"]: _count_and_weight(endpoint, one, kept)[0] for one in config.variants}
        deployment = request.get("DeploymentConfig")
        if request.get("RetainDeploymentConfig"):
            if deployment is not None:
                raise ValidationError("DeploymentConfig cannot be given together with RetainDeploymentConfig.")
            deployment = endpoint.deployment_config
        policy = endpoint_policy(deployment, {one.name: one.desired_count for one in endpoint.variants}, counts)
        needed = policy.moves[0].new if policy.moves[0].new is not None else sum(counts.values())
        self.check_limit(config.variants[0].get("InstanceType", ""), needed)
        endpoint.deployment_config, endpoint.reserved = deployment, needed
        self._begin(endpoint, "Updating", lambda: self._update(endpoint, config, kept, policy), self._around.settings.updating_seconds)

    def change_capacities(self, endpoint: Endpoint, changes: Sequence[Mapping[str, Any]]) -> None:
        """Change instance counts and weights of variants; raises `AwsError`."""
        self._check_resting(endpoint)
        wanted: dict[str, tuple[int, float]] = {}
        more = 0
        for change in changes:
            variant = endpoint.variant(change["VariantName"])
            if variant is None:
                raise ValidationError(f'Could not find variant "{change["VariantName"]}" on endpoint "{endpoint.arn}".')
            count = change.get("DesiredInstanceCount", variant.desired_count)
            if count < 1 and not endpoint.hosts_components:
                raise ValidationError(f"DesiredInstanceCount {count} is not allowed: an endpoint of models has at least 1 instance.")
            more += count - variant.desired_count
            self.check_limit(variant.instance_type, more)
            wanted[variant.name] = count, change.get("DesiredWeight", variant.desired_weight)
        for variant in endpoint.variants:
            variant.desired_count, variant.desired_weight = wanted.get(variant.name, (variant.desired_count, variant.desired_weight))
        self._begin(endpoint, "Updating", lambda: self._change_capacities(endpoint), self._around.settings.updating_seconds)

    def delete(self, endpoint: Endpoint) -> None:
        """End an endpoint; raises `ValidationError`."""
        if endpoint.status not in _DELETABLE:
            raise exceptions.in_progress(endpoint.arn)
        if components := self.components.names(endpoint.name):
            raise ValidationError(f'Endpoint "{endpoint.arn}" has inference components: delete {", ".join(components)} first.')
        self._begin(endpoint, "Deleting", lambda: self._remove(endpoint), self._around.settings.deleting_seconds)

    def check_limit(self, instance_type: str, delta: int) -> None:
        """Whether so many more instances may be had; raises ``ResourceLimitExceeded``."""
        used = sum(_instances(endpoint) for endpoint in self.by_name.values())
        if delta > 0 and used + delta > self._around.instance_limit:
            raise exceptions.over_instance_limit(instance_type, self._around.instance_limit, used, delta)

    async def close(self) -> None:
        """Stop what runs and forget everything."""
        while self.by_name:
            # Forgotten first, so that nobody changes them meanwhile; what others create meanwhile goes with the next turn.
            endpoints = list(self.by_name.values())
            self.by_name.clear()
            await cancelled(endpoint.task for endpoint in endpoints)
            for endpoint in endpoints:
                for fleet in endpoint.all_fleets:
                    await end_fleet(self._around.fleets(), fleet)
        self.owners.clear()

    # Requests

    def choose(self, endpoint: Endpoint, variant_name: str | None = None) -> Variant:
        """The variant that gets a request: of the update under way in the share of its traffic, else of the endpoint."""
        variants = endpoint.variants
        pending = endpoint.pending
        if pending is not None and pending.traffic and (pending.traffic >= 1 or self._around.chance() < pending.traffic):
            variants = pending.variants
        if variant_name is not None:
            named = next((one for one in (*variants, *endpoint.variants, *endpoint.pending_variants) if one.name == variant_name), None)
            assert named is not None, "the runtime checks it"
            return named
        return self._weighted(variants)

    def _weighted(self, variants: Sequence[Variant]) -> Variant:
        """A variant by chance, each in the share of its weight (API reference: ProductionVariant, InitialVariantWeight)."""
        if len(variants) == 1:
            return variants[0]
        point = self._around.chance() * sum(variant.current_weight for variant in variants)
        for variant in variants:
            point -= variant.current_weight
            if point < 0:
                return variant
        return variants[-1]

    async def ask(self, run: Run, request: InvokeRequest) -> InvokeReply:
        """One request to a fleet, counted so that the fleet stays until it has answered."""
        with self.in_flight.to(run.name, INVOKE_TIMEOUT_SECONDS):
            return await self._around.fleets().invoke(run.name, request)

    async def open_stream(self, run: Run, request: InvokeRequest) -> InvokeStream:
        """One request whose answer is read as it comes; the fleet stays until it has ended."""
        holding = ExitStack()
        holding.enter_context(self.in_flight.to(run.name, INVOKE_STREAM_SECONDS))
        try:
            answer = await self._around.fleets().stream(run.name, request)
        except BaseException:
            holding.close()
            raise
        return replace(answer, chunks=_Held(answer, holding))

    # What happens in the background.

    def set_status(self, endpoint: Endpoint, status: str) -> None:
        """Change an endpoint's status, and tell."""
        endpoint.status, endpoint.modified = status, self._around.clock.now()
        notices.state_change(self._around.publish, endpoint)

    def set_doing(self, endpoint: Endpoint, variants: Sequence[Variant], status: str | None, message: str = "") -> None:
        """Say what happens to the instances of some variants."""
        endpoint.modified = self._around.clock.now()
        for variant in variants:
            variant.doing = None if status is None else Doing(status, endpoint.modified, message)
        if status is not None:
            notices.deployment_change(self._around.publish, endpoint)

    def _check_resting(self, endpoint: Endpoint) -> None:
        if endpoint.status not in _RESTING:
            raise exceptions.in_progress(endpoint.arn)
        if busy := self.components.busy(endpoint.name):
            raise ValidationError(
                f'Cannot update endpoint "{endpoint.arn}" while its inference components are changing: {", ".join(busy)}.'
            )

    def _begin(self, endpoint: Endpoint, status: str, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        self.set_status(endpoint, status)
        endpoint.settled.clear()
        settling = self._settle(endpoint, work, seconds)
        endpoint.task = asyncio.get_running_loop().create_task(settling, name=f"{status} {endpoint.name}")

    async def _settle(self, endpoint: Endpoint, work: Callable[[], Awaitable[None]], seconds: float) -> None:
        began, status = self._around.clock.time(), endpoint.status
        try:
            await work()
            await self.rest(began, seconds)
            endpoint.failure_reason = None
            if status == "Deleting":
                if self.by_name.get(endpoint.name) is endpoint:  # else everything is being closed
                    del self.by_name[endpoint.name]
            else:
                self.set_status(endpoint, "InService")
        except RollbackError as error:
            endpoint.failure_reason = f"{endpoint.failure_reason} The rollback failed, too: {error}"[:_REASON_CHARACTERS]
            self.set_status(endpoint, "UpdateRollbackFailed")
        except Exception as error:
            # Whatever went wrong below is the endpoint's failure, as on AWS; the gateway goes on.
            logger.exception("endpoint %s", endpoint.name)
            endpoint.failure_reason = (str(error) or type(error).__name__)[:_REASON_CHARACTERS]
            endpoint.pending = None
            self.set_doing(endpoint, endpoint.variants, None)
            self.set_status(endpoint, "InService" if status == "Updating" else "Failed")
        finally:
            endpoint.reserved = 0
            self.forget_owners(endpoint.name)
            endpoint.settled.set()

    def forget_owners(self, endpoint_name: str) -> None:
        """Forget whose those fleets of an endpoint were that are no more."""
        endpoint = self.by_name.get(endpoint_name)
        living = {*endpoint.all_fleets, *self.components.fleets(endpoint_name)} if endpoint is not None else set()
        for fleet in [fleet for fleet, owner in self.owners.items() if owner.endpoint == endpoint_name and fleet not in living]:
            del self.owners[fleet]

    async def rest(self, began: float, seconds: float) -> None:
        """Wait until ``seconds`` have passed since ``began``."""
        if (missing := began + seconds - self._around.clock.time()) > 0:
            await self._around.clock.sleep(missing)

    async def _create(self, endpoint: Endpoint, config: EndpointConfig) -> None:
        change = self._change(endpoint, config, frozenset())
        change.doing("Creating")
        await self.rollout.resize(change.new, None)
        self._commit(endpoint, config)

    async def _update(self, endpoint: Endpoint, config: EndpointConfig, kept: frozenset[str], policy: Policy) -> None:
        change: _EndpointChange | None = None
        try:
            change = self._change(endpoint, config, kept)
            await self.rollout.forward(change, policy)
        except Exception as error:
            logger.warning("endpoint %s rolls back: %s", endpoint.name, error)
            await self._roll_back(endpoint, change, policy, str(error) or type(error).__name__)
            raise
        self._commit(endpoint, config)
        await self.rollout.finish(change)

    async def _roll_back(self, endpoint: Endpoint, change: _EndpointChange | None, policy: Policy, reason: str) -> None:
        began = self._around.clock.time()
        endpoint.failure_reason = reason
        self.set_status(endpoint, "RollingBack")
        if change is not None:
            try:
                await self.rollout.back(change, policy)
            except RollbackError as error:
                if not endpoint.hosts_components:
                    raise
                # Copies have no second place: those that come back are all there is.
                logger.warning("endpoint %s: not all copies of its inference components come back: %s", endpoint.name, error)
                for run in change.new:
                    await self.rollout.stop(run)
                try:
                    await self.rollout.resize(change.old, None)
                except Exception:
                    logger.exception("endpoint %s: not all of its old instances come back", endpoint.name)
        self.components.settle(endpoint.name, moved=False)
        await self.rest(began, self._around.settings.rolling_back_seconds)

    def _change(self, endpoint: Endpoint, config: EndpointConfig, kept: frozenset[str]) -> _EndpointChange:
        """The variants to come, as the endpoint's pending deployment."""
        old = [one.run for one in (*endpoint.variants, *endpoint.pending_variants) if one.run is not None]
        for run in old:
            run.count = run.current
        endpoint.generation += 1
        variants = [self._variant(endpoint, config, given, kept) for given in config.variants]
        moving: Sequence[Run] = ()
        coming: Sequence[Run] = ()
        if config.hosts_components:
            moving, coming = self.components.plan(endpoint, variants, config.request["ExecutionRoleArn"])
            self._around.capacity(endpoint.name)
            for variant in variants:
                variant.current_count = variant.desired_count
        endpoint.pending = Deployment(config.name, self._around.clock.now(), variants)
        new = [one.run for one in variants if one.run is not None]
        return _EndpointChange(self, endpoint, [*old, *moving], [*new, *coming])

    def _variant(self, endpoint: Endpoint, config: EndpointConfig, given: Mapping[str, Any], kept: frozenset[str]) -> Variant:
        name, (count, weight) = given["VariantName"], _count_and_weight(endpoint, given, kept)
        if config.hosts_components:
            return Variant(name, None, (), given, count, weight, hosts=Hosts(capacity_of(given["InstanceType"]), count))
        # Dots cannot stand in the names of endpoints and variants, so they separate the parts.
        fleet = f"{endpoint.name}.{endpoint.generation}.{name}"
        run, images, single = self._make_run(endpoint, fleet, config, given, count)
        variant = Variant(name, run, images, given, count, weight, single_model=single)
        run.counted = lambda current: setattr(variant, "current_count", current)
        self.owners[fleet] = FleetOwner(endpoint.name, name, None, variant.instance_type)
        return variant

    def _commit(self, endpoint: Endpoint, config: EndpointConfig) -> None:
        assert endpoint.pending is not None
        endpoint.variants, endpoint.pending = endpoint.pending.variants, None
        for variant in endpoint.variants:
            variant.current_weight, variant.doing = variant.desired_weight, None
        endpoint.config_name, endpoint.hosts_components = config.name, config.hosts_components
        endpoint.role_arn = config.request.get("ExecutionRoleArn", "")
        self.components.settle(endpoint.name, moved=True)

    async def _change_capacities(self, endpoint: Endpoint) -> None:
        before = {variant.name: (variant.current_count, variant.current_weight) for variant in endpoint.variants}
        try:
            for variant in endpoint.variants:
                await self._resize(endpoint, variant, variant.desired_count)
                variant.current_weight, variant.doing = variant.desired_weight, None
        except Exception as error:
            began = self._around.clock.time()
            endpoint.failure_reason = str(error) or type(error).__name__
            for variant in endpoint.variants:
                variant.desired_count, variant.desired_weight = before[variant.name]
            self.set_status(endpoint, "RollingBack")
            for variant in endpoint.variants:
                try:
                    await self._resize(endpoint, variant, variant.desired_count)
                except Exception:
                    logger.exception("endpoint %s: variant %s keeps %s instances", endpoint.name, variant.name, variant.current_count)
                variant.current_weight = variant.desired_weight
                variant.desired_count = variant.current_count
            await self.rest(began, self._around.settings.rolling_back_seconds)
            raise

    async def _resize(self, endpoint: Endpoint, variant: Variant, count: int) -> None:
        if count == variant.current_count:
            return
        way = "out" if count > variant.current_count else "in"
        self.set_doing(endpoint, [variant], "Updating", f"Scaling {way} desired instance count to {count}.")
        if variant.run is not None:
            variant.run.count = count
            await self.rollout.resize([variant.run], count)
            return
        assert variant.hosts is not None
        if count > variant.current_count:
            self._around.capacity(endpoint.name)
        if not variant.hosts.resize(count):
            raise DeploymentError(exceptions.NO_ROOM)
        variant.current_count = count

    async def _remove(self, endpoint: Endpoint) -> None:
        for variant in (*endpoint.variants, *endpoint.pending_variants):
            if variant.run is not None:
                await self.rollout.stop(variant.run)


class _EndpointChange:
    """An update of an endpoint, as `Rollout` sees it."""

    def __init__(self, hosting: Hosting, endpoint: Endpoint, old: Sequence[Run], new: Sequence[Run]) -> None:
        self._hosting, self._endpoint, self.old, self.new = hosting, endpoint, old, new

    async def room(self, new: int | None, old: int | None) -> None:
        """The instances of the new fleets are their own."""

    def doing(self, status: str) -> None:
        """Tell it of the variants that it concerns: the old ones are deleted."""
        if self._endpoint.pending is None:
            return
        if status == "Deleting":
            self._hosting.set_doing(self._endpoint, self._endpoint.variants, status)
        else:
            self._hosting.set_doing(self._endpoint, self._endpoint.variants, None)
            self._hosting.set_doing(self._endpoint, self._endpoint.pending.variants, status)

    def shift(self, traffic: float) -> None:
        """Shares the requests of the endpoint and of its components."""
        if (pending := self._endpoint.pending) is not None:
            pending.traffic = traffic
            for variant in pending.variants:
                variant.current_weight = variant.desired_weight
        self._hosting.components.shift(self._endpoint.name, traffic)


class _Held:
    """The parts of an answer; when they end, or nobody wants more, the fleet is let go, also before the first one is asked for."""

    def __init__(self, answer: InvokeStream, holding: ExitStack) -> None:
        self._answer, self._holding, self._parts = answer, holding, aiter(answer.chunks)

    def __aiter__(self) -> _Held:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._parts)
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Stop reading."""
        with self._holding:
            await self._answer.aclose()


async def cancelled(tasks: Iterable[asyncio.Task[None] | None]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        if task is not None and not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _kept(request: Mapping[str, Any]) -> frozenset[str]:
    excluded = {entry["VariantPropertyType"] for entry in request.get("ExcludeRetainedVariantProperties", [])}
    return frozenset({"DesiredInstanceCount", "DesiredWeight"} - excluded if request.get("RetainAllVariantProperties") else ())


def _count_and_weight(endpoint: Endpoint, given: Mapping[str, Any], kept: frozenset[str]) -> tuple[int, float]:
    """Of the variant that it replaces a variant keeps the count or the weight."""
    count, weight = given.get("InitialInstanceCount", 0), given.get("InitialVariantWeight", 1.0)
    if (old := endpoint.variant(given["VariantName"])) is not None:
        count = old.desired_count if "DesiredInstanceCount" in kept else count
        weight = old.desired_weight if "DesiredWeight" in kept else weight
    return count, weight


def _instances(endpoint: Endpoint) -> int:
    """What an endpoint counts against the limit: instances that it has, will have, and has beside them during an update."""
    left = endpoint.pending_variants if endpoint.status == "UpdateRollbackFailed" else ()
    counted = sum(max(one.desired_count, one.current_count) for one in endpoint.variants) + sum(one.current_count for one in left)
    return counted + endpoint.reserved
