"""Inference components: placed on the instances of their endpoint, each a fleet of its copies.

The fleets of copies are fleets like those of variants; an instance of such a fleet is one copy. Where a copy is, and whether there is
room for it, is a matter of `mme_local.sagemaker.placement`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from mme_local.dataplane.interface import ArtifactSource, FleetSpec
from mme_local.sagemaker import exceptions
from mme_local.sagemaker.hosting import ComponentMover, Hosting, Surroundings, cancelled
from mme_local.sagemaker.placement import Needs
from mme_local.sagemaker.policies import Policy, component_policy
from mme_local.sagemaker.resources import Endpoint, FleetOwner, InferenceComponent, Model, Run, Variant
from mme_local.sagemaker.rollout import DeploymentError, RollbackError, end_fleet
from mme_local.wire import AwsError, ValidationError

__all__ = ["InferenceComponents", "MakeCopies", "specification_for"]

logger = logging.getLogger(__name__)

_KEPT = ("Specification", "Specifications")
_SECONDS_A_MINUTE = 60
_SCALE_IN_COOLDOWN_MINUTES = 20

MakeCopies = Callable[[str, str, int, Mapping[str, Any]], tuple[FleetSpec, str | None]]
"""The fleet of copies from its name, variant, number of copies and specification; and its model's execution role, if there is one."""


class InferenceComponents(ComponentMover):
    """The inference components of one account and region.

    Args:
        around: what they need of the rest.
        hosting: the endpoints.
        model: a model by name; raises `ValidationError`.
        make_copies: makes the fleet of copies.
        artifacts: makes the reader of artifacts from bucket, execution role's ARN and endpoint name.
    """

    def __init__(
        self,
        around: Surroundings,
        hosting: Hosting,
        *,
        model: Callable[[str], Model],
        make_copies: MakeCopies,
        artifacts: Callable[[str, str, str], ArtifactSource],
    ) -> None:
        self._around, self._hosting, self._model = around, hosting, model
        self._make_copies, self._artifacts = make_copies, artifacts
        self._without_capacity: list[Callable[[str, str], None]] = []
        self._releasing: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.by_name: dict[str, InferenceComponent] = {}

    # What the API asks.

    def create(self, request: Mapping[str, Any], tags: dict[str, str]) -> InferenceComponent:
        """Start a component in the background; raises `ValidationError`."""
        name = request["InferenceComponentName"]
        if any(name.lower() == other.lower() for other in self.by_name):
            raise exceptions.already_exists("inference component", self._arn(name))
        endpoint = self._hosting.get(request["EndpointName"])
        if not endpoint.hosts_components:
            raise ValidationError(
                f'Endpoint "{endpoint.arn}" serves the models of its endpoint configuration: inference components need an endpoint whose '
                "variants have no ModelName."
            )
        self._check_in_service(endpoint)
        variant = request.get("VariantName", endpoint.variants[0].name)
        if (hosting := endpoint.variant(variant)) is None:
            raise ValidationError(f'Could not find variant "{variant}" on endpoint "{endpoint.arn}".')
        self._check(request, hosting.instance_type)
        if "RuntimeConfig" not in request:
            raise ValidationError("RuntimeConfig with CopyCount is required for an inference component that is no adapter.")
        copies = request["RuntimeConfig"]["CopyCount"]
        if copies < 1:
            raise ValidationError(f"CopyCount is {copies}: an inference component is created with at least 1 copy, and scaled to 0 later.")
        now = self._around.clock.now()
        component = InferenceComponent(name, self._arn(name), endpoint.name, variant, dict(request), now, now, copies, tags=tags)
        self.by_name[name] = component
        self._begin(component, "Creating", lambda: self._scale(component, endpoint, hosting, copies))
        return component

    def update(self, request: Mapping[str, Any]) -> InferenceComponent:
        """Change a component's specification or copies in the background; raises `ValidationError`."""
        component, endpoint, variant = self._settled(request["InferenceComponentName"])
        copies = request.get("RuntimeConfig", {}).get("CopyCount", component.copies)
        changed = bool(_specifications(request))
        if changed:
            self._check(request, variant.instance_type)
        policy = component_policy(request.get("DeploymentConfig"), component.current)
        if "DeploymentConfig" in request:
            component.deployment_config = request["DeploymentConfig"]
        new = {**component.request, **{member: request[member] for member in _KEPT if member in request}}
        if changed:
            for member in _KEPT:
                if member not in request:
                    new.pop(member, None)

        async def work() -> None:
            """The copies that there are, then as many as there shall be."""
            if changed:
                await self._replace(component, endpoint, variant, new, policy)
            await self._scale(component, endpoint, variant, copies)

        component.copies = copies
        self._begin(component, "Updating", work)
        return component

    def set_copies(self, name: str, copies: int) -> InferenceComponent:
        """Change the number of copies in the background; raises `ValidationError`."""
        component, endpoint, variant = self._settled(name)
        component.copies = copies
        self._begin(component, "Updating", lambda: self._scale(component, endpoint, variant, copies))
        return component

    def get(self, name: str) -> InferenceComponent:
        """A component by name; raises `ValidationError`."""
        if name not in self.by_name:
            raise exceptions.could_not_find("inference component", self._arn(name))
        return self.by_name[name]

    def delete(self, name: str) -> InferenceComponent:
        """End a component in the background; raises `ValidationError`."""
        component = self.get(name)
        if component.status not in ("InService", "Failed"):
            raise exceptions.component_in_progress(component.arn)
        endpoint = self._hosting.get(component.endpoint_name)
        if not endpoint.settled.is_set():
            raise exceptions.in_progress(endpoint.arn)
        variant = endpoint.variant(component.variant_name)
        assert variant is not None
        self._begin(component, "Deleting", lambda: self._scale(component, endpoint, variant, 0))
        return component

    def of_endpoint(self, name: str) -> list[str]:
        """The names of the components on an endpoint."""
        return [component.name for component in self.by_name.values() if component.endpoint_name == name]

    def run_for_request(self, component: InferenceComponent) -> Run:
        """The fleet that gets a request; raises `AwsError` when the component has no copy."""
        run = component.run
        traffic = component.traffic
        if component.next_run is not None and traffic and (traffic >= 1 or self._around.chance() < traffic):
            run = component.next_run
        if run is None or not run.current:
            for listener in self._without_capacity:
                listener(component.endpoint_name, component.name)
            raise exceptions.no_capacity()
        return run

    def on_missing_capacity(self, listener: Callable[[str, str], None]) -> None:
        """Call ``listener`` with endpoint and component of every request that found no copy (metric NoCapacityInvocationFailures)."""
        self._without_capacity.append(listener)

    async def close(self) -> None:
        """Stop what runs and forget everything."""
        while self.by_name or self._releasing:
            # Forgotten first, so that nobody changes them meanwhile; what others create meanwhile goes with the next turn.
            components = list(self.by_name.values())
            self.by_name.clear()
            await cancelled(component.task for component in components)
            await cancelled(list(self._releasing.values()))
            self._releasing.clear()
            for component in components:
                for fleet in _fleets(component):
                    await end_fleet(self._around.fleets(), fleet)

    # What the endpoint asks.

    def names(self, endpoint: str) -> Sequence[str]:
        """The components of an endpoint."""
        return self.of_endpoint(endpoint)

    def busy(self, endpoint: str) -> Sequence[str]:
        """Those that change at the moment."""
        return [name for name in self.of_endpoint(endpoint) if self.by_name[name].status not in ("InService", "Failed")]

    def plan(self, endpoint: Endpoint, variants: Sequence[Variant], role_arn: str) -> tuple[Sequence[Run], Sequence[Run]]:
        """Place the components on new instances; raises when a variant is gone or there is no room."""
        old, new = [], []
        for name in self.of_endpoint(endpoint.name):
            component = self.by_name[name]
            variant = next((one for one in variants if one.name == component.variant_name), None)
            if variant is None or variant.hosts is None:
                raise DeploymentError(
                    f"The new endpoint configuration has no variant {component.variant_name} for inference component {name}."
                )
            if component.run is None or not component.run.current:
                continue
            run = self._new_run(component, endpoint, variant, component.request, component.run.count, role_arn)
            component.next_run = run
            if not self._place(variant, run, component.request, run.count):
                raise DeploymentError(exceptions.NO_ROOM)
            old.append(component.run)
            new.append(run)
        return old, new

    def shift(self, endpoint: str, traffic: float) -> None:
        """Give the components' new fleets this share of the requests."""
        for name in self.of_endpoint(endpoint):
            self.by_name[name].traffic = traffic

    def settle(self, endpoint: str, *, moved: bool) -> None:
        """Keep the new fleets, or forget them."""
        for name in self.of_endpoint(endpoint):
            component = self.by_name[name]
            if component.next_run is not None and moved:
                component.run = component.next_run
            component.next_run, component.traffic = None, 0.0
            if component.run is not None and not moved:
                self._keep(component, component.run)

    def fleets(self, endpoint: str) -> Collection[str]:
        """The fleets of the copies, those to come included."""
        return [fleet for name in self.of_endpoint(endpoint) for fleet in _fleets(self.by_name[name])]

    def _keep(self, component: InferenceComponent, run: Run) -> None:
        """After an update of the endpoint that went back: the component has the copies that there are."""
        run.count = component.copies = run.current
        run.set_current(run.current)
        variant = self._hosting.get(component.endpoint_name).variant(component.variant_name)
        assert variant is not None
        self._place(variant, run, component.request, run.current)
        if not run.current:
            component.run = None

    # What happens in the background.

    def _begin(self, component: InferenceComponent, status: str, work: Callable[[], Awaitable[None]]) -> None:
        component.status, component.modified = status, self._around.clock.now()
        component.settled.clear()
        settling = self._settle(component, status, work)
        component.task = asyncio.get_running_loop().create_task(settling, name=f"{status} {component.name}")

    async def _settle(self, component: InferenceComponent, status: str, work: Callable[[], Awaitable[None]]) -> None:
        began = self._around.clock.time()
        try:
            await work()
            component.failure_reason = None
            await self._hosting.rest(began, self._around.settings.component_seconds)
            if status == "Deleting":
                if self.by_name.get(component.name) is component:  # else everything is being closed
                    del self.by_name[component.name]
            else:
                component.status = "InService"
        except Exception as error:
            # Whatever went wrong below is the component's failure, as on AWS; the gateway goes on.
            logger.warning("inference component %s: %s", component.name, error)
            component.failure_reason = str(error) or type(error).__name__
            component.copies = component.current
            component.status = "Failed" if status == "Creating" else "InService"
        finally:
            component.modified = self._around.clock.now()
            self._hosting.forget_owners(component.endpoint_name)
            component.settled.set()

    async def _scale(self, component: InferenceComponent, endpoint: Endpoint, variant: Variant, copies: int) -> None:
        """Have as many copies as wanted, and the instances for them where their scaling is managed."""
        run = component.run
        if run is None and copies:
            run = component.run = self._new_run(component, endpoint, variant, component.request, copies, endpoint.role_arn)
        if run is None:
            return
        before = run.current
        try:
            if copies > before:
                await self.make_room(endpoint, variant, run, component.request, copies)
            run.count = max(before, copies)
            await self._hosting.rollout.resize([run], copies)
        finally:
            run.count = run.current
            self._place(variant, run, component.request, run.current)
            if not run.current:
                component.run = None
            self._release(endpoint, variant)

    async def _replace(
        self, component: InferenceComponent, endpoint: Endpoint, variant: Variant, request: dict[str, Any], policy: Policy
    ) -> None:
        """Replace the copies by those of another specification, batch by batch."""
        if component.run is None:
            component.request = request
            return
        component.next_run = self._new_run(component, endpoint, variant, request, component.run.count, endpoint.role_arn)
        change = _ComponentChange(self, component, endpoint, variant, request, component.run, component.next_run)
        rollout = self._hosting.rollout
        try:
            await rollout.forward(change, policy)
        except Exception:
            try:
                await rollout.back(change, policy)
            except RollbackError as error:
                logger.warning(
                    "inference component %s: its old copies come back only when the new ones are gone: %s", component.name, error
                )
                change.shift(0.0)
                await rollout.stop(component.next_run)
                await change.room(0, None)
                await rollout.resize(change.old, None)
            finally:
                component.next_run, component.traffic = None, 0.0
                component.run.set_current(component.run.current)
                self._release(endpoint, variant)
            raise
        component.run, component.request = component.next_run, request
        component.next_run, component.traffic = None, 0.0
        await rollout.finish(change)
        component.run.set_current(component.run.current)
        self._release(endpoint, variant)

    def _new_run(
        self, component: InferenceComponent, endpoint: Endpoint, variant: Variant, request: Mapping[str, Any], copies: int, role_arn: str
    ) -> Run:
        component.generation += 1
        # Dots cannot stand in the names of endpoints, variants and components, so they separate the parts.
        fleet = f"{endpoint.name}.{component.generation}.{variant.name}.{component.name}"
        spec, role = self._make_copies(fleet, variant.name, max(copies, 1), _chosen(request, variant.instance_type))
        self._hosting.owners[fleet] = FleetOwner(endpoint.name, variant.name, component.name, variant.instance_type)

        def recount(_count: int) -> None:
            """Copies of the fleet that serves and of the one to come."""
            component.current = sum(run.current for run in (component.run, component.next_run) if run is not None)

        return Run(spec, self._artifacts(spec.bucket, role or role_arn, endpoint.name), max(copies, 1), counted=recount)

    # Instances

    async def make_room(self, endpoint: Endpoint, variant: Variant, run: Run, request: Mapping[str, Any], copies: int) -> None:
        """Reserve what copies need; where instances are managed, more of them come. Raises when there is no room."""
        assert variant.hosts is not None
        scaling = variant.given.get("ManagedInstanceScaling", {})
        most = scaling.get("MaxInstanceCount", variant.hosts.count) if scaling.get("Status") == "ENABLED" else variant.hosts.count
        while not self._place(variant, run, request, copies):
            if variant.hosts.count >= most or not _needs(_chosen(request, variant.instance_type)).within(variant.hosts.capacity):
                raise DeploymentError(exceptions.NO_ROOM)
            try:
                self._hosting.check_limit(variant.instance_type, 1)
            except AwsError as error:
                raise DeploymentError(f"{exceptions.NO_ROOM} {error.message}") from None
            self._around.capacity(endpoint.name)
            variant.desired_count = variant.hosts.count + 1
            text = f"Scaling out desired instance count to {variant.desired_count}."
            self._hosting.set_doing(endpoint, [variant], "Updating", text)
            await self._around.clock.sleep(self._around.settings.instance_seconds)
            variant.hosts.resize(variant.hosts.count + 1)
            self._count(endpoint, variant)

    def _place(self, variant: Variant, run: Run, request: Mapping[str, Any], copies: int) -> bool:
        """Reserve what so many copies need on the instances there are. Whether there was room."""
        assert variant.hosts is not None
        specification = _chosen(request, variant.instance_type)
        packed = specification.get("SchedulingConfig", {}).get("PlacementStrategy") == "BINPACK"
        return variant.hosts.set(run.name, _needs(specification), copies, packed=packed)

    def _release(self, endpoint: Endpoint, variant: Variant) -> None:
        """Let instances go that hold no copy, where their number is managed: after the cooldown if there is one."""
        scaling = variant.given.get("ManagedInstanceScaling", {})
        key = endpoint.name, variant.name
        if scaling.get("Status") != "ENABLED" or key in self._releasing or not self._surplus(variant):
            return
        task = asyncio.get_running_loop().create_task(self._let_go(endpoint, variant), name=f"scale in {endpoint.name}")
        self._releasing[key] = task
        task.add_done_callback(lambda _task: self._releasing.pop(key, None))

    def _surplus(self, variant: Variant) -> int:
        hosts, scaling = variant.hosts, variant.given["ManagedInstanceScaling"]
        assert hosts is not None
        packing = scaling.get("ScaleInPolicy", {}).get("Strategy") == "CONSOLIDATION"
        idle = hosts.count - hosts.consolidated() if packing else hosts.idle
        return int(max(0, min(idle, hosts.count - scaling.get("MinInstanceCount", 1))))

    async def _let_go(self, endpoint: Endpoint, variant: Variant) -> None:
        policy = variant.given["ManagedInstanceScaling"].get("ScaleInPolicy")
        while self._surplus(variant):
            if policy is not None:
                await self._around.clock.sleep(policy.get("CooldownInMinutes", _SCALE_IN_COOLDOWN_MINUTES) * _SECONDS_A_MINUTE)
            if self._hosting.by_name.get(endpoint.name) is not endpoint or endpoint.variant(variant.name) is not variant:
                return
            step = min(self._surplus(variant), policy.get("MaximumStepSize", 1) if policy is not None else self._surplus(variant))
            hosts = variant.hosts
            assert hosts is not None
            if not step or not hosts.resize(hosts.count - step):
                return
            variant.desired_count = hosts.count
            self._hosting.set_doing(endpoint, [variant], "Updating", f"Scaling in desired instance count to {hosts.count}.")
            self._count(endpoint, variant)

    def _count(self, endpoint: Endpoint, variant: Variant) -> None:
        assert variant.hosts is not None
        variant.current_count = variant.desired_count = variant.hosts.count
        self._hosting.set_doing(endpoint, [variant], None)

    # Rules

    def _arn(self, name: str) -> str:
        return self._around.arn("inference-component", name)

    def _check_in_service(self, endpoint: Endpoint) -> None:
        if endpoint.status != "InService":
            raise ValidationError(f'Endpoint "{endpoint.arn}" is not InService but {endpoint.status}.')

    def _settled(self, name: str) -> tuple[InferenceComponent, Endpoint, Variant]:
        component = self.get(name)
        if component.status == "Failed":
            raise ValidationError(f'Cannot update inference component "{component.arn}" in Failed status: delete it.')
        if component.status != "InService":
            raise exceptions.component_in_progress(component.arn)
        endpoint = self._hosting.get(component.endpoint_name)
        self._check_in_service(endpoint)
        variant = endpoint.variant(component.variant_name)
        assert variant is not None
        return component, endpoint, variant

    def _check(self, request: Mapping[str, Any], instance_type: str) -> None:
        if ("Specification" in request) == ("Specifications" in request):
            raise ValidationError("Exactly one of Specification and Specifications must be given.")
        for given in _specifications(request):
            if "BaseInferenceComponentName" in given:
                raise ValidationError(
                    f"BaseInferenceComponentName {given['BaseInferenceComponentName']}: the local cloud serves no adapters, because its "
                    "model servers cannot load one onto a base model. Create an inference component of its own."
                )
            if ("ModelName" in given) == ("Container" in given):
                raise ValidationError("A specification needs exactly one of ModelName and Container.")
            if "Container" in given and "Image" not in given["Container"]:
                raise ValidationError("Container.Image is required for an inference component that is no adapter.")
            if "ModelName" in given and self._model(given["ModelName"]).multi_model_container is not None:
                raise ValidationError(f"Model {given['ModelName']} is in MultiModel mode: an inference component has one model.")
            if "ComputeResourceRequirements" not in given:
                raise ValidationError("ComputeResourceRequirements are required for an inference component that is no adapter.")
            needs = given["ComputeResourceRequirements"]
            if needs.get("MaxMemoryRequiredInMb", needs["MinMemoryRequiredInMb"]) < needs["MinMemoryRequiredInMb"]:
                raise ValidationError("MaxMemoryRequiredInMb cannot be less than MinMemoryRequiredInMb.")
        _chosen(request, instance_type)


class _ComponentChange:
    """An update of a component's specification, as `Rollout` sees it."""

    def __init__(
        self,
        components: InferenceComponents,
        component: InferenceComponent,
        endpoint: Endpoint,
        variant: Variant,
        request: Mapping[str, Any],
        old: Run,
        new: Run,
    ) -> None:
        self._components, self._component, self._endpoint, self._variant = components, component, endpoint, variant
        self._before, self._request = component.request, request
        self.old, self.new = [old], [new]

    async def room(self, new: int | None, old: int | None) -> None:
        """Reserve what both need."""
        (leaving,), (coming,) = self.old, self.new
        wanted = [
            (leaving, self._before, leaving.count if old is None else old),
            (coming, self._request, coming.count if new is None else new),
        ]
        hosts = self._variant.hosts
        assert hosts is not None
        # Those that become fewer first: what they leave is room for the others.
        for run, request, copies in sorted(wanted, key=lambda one: one[2] - hosts.copies(one[0].name)):
            await self._components.make_room(self._endpoint, self._variant, run, request, copies)

    def doing(self, status: str) -> None:
        """Components have no events."""

    def shift(self, traffic: float) -> None:
        """Shares the requests."""
        self._component.traffic = traffic


def _fleets(component: InferenceComponent) -> list[str]:
    return [run.name for run in (component.run, component.next_run) if run is not None]


def _specifications(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    many: Sequence[Mapping[str, Any]] = request.get("Specifications", [])
    return [request["Specification"]] if "Specification" in request else many


def specification_for(request: Mapping[str, Any], instance_type: str) -> Mapping[str, Any] | None:
    """A component's specification for an instance type: the one that names it, or one that names none; ``None`` if there is neither."""
    given = _specifications(request)
    named = (one for one in given if one.get("InstanceType") == instance_type)
    general = (one for one in given if "InstanceType" not in one)
    return next(itertools.chain(named, general), None)


def _chosen(request: Mapping[str, Any], instance_type: str) -> Mapping[str, Any]:
    if (chosen := specification_for(request, instance_type)) is None:
        raise ValidationError(f"No specification is for {instance_type}, the instance type of the variant.")
    return chosen


def _needs(specification: Mapping[str, Any]) -> Needs:
    given = specification["ComputeResourceRequirements"]
    return Needs(
        float(given.get("NumberOfCpuCoresRequired", 0)),
        int(given["MinMemoryRequiredInMb"]),
        int(given.get("NumberOfAcceleratorDevicesRequired", 0)),
    )
