"""No sequence of calls and failures leaves an endpoint stuck, a fleet without an owner, or a reservation without a copy."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mme_local.dataplane import InvokeRequest, StartFailed
from mme_local.sagemaker.placement import Needs
from mme_local.wire import AwsError
from tests.local.sagemaker_double import IMAGE, ROLE, Double, MemoryFleets, model

LIMIT = 12
ENDPOINTS, COMPONENTS = ("models", "hosts"), ("a", "b", "c")
POLICIES = st.sampled_from(
    [
        None,
        {"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}, "WaitIntervalInSeconds": 0}},
        {
            "BlueGreenUpdatePolicy": {
                "TrafficRoutingConfiguration": {
                    "Type": "CANARY",
                    "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 50},
                    "WaitIntervalInSeconds": 0,
                }
            }
        },
    ]
)
COPIES = {"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1}, "WaitIntervalInSeconds": 0}}


class FailingFleets(MemoryFleets):
    """A data plane whose starts and growths fail as often as it is told."""

    def __init__(self):
        super().__init__()
        self.failures = []

    def _maybe_fail(self):
        if self.failures and self.failures.pop(0):
            raise StartFailed("a failure that was asked for")

    async def start_fleet(self, spec, artifacts):
        await asyncio.sleep(0)
        self._maybe_fail()
        assert spec.endpoint_name not in self.fleets, "a fleet is started once"
        await super().start_fleet(spec, artifacts)

    async def resize_fleet(self, endpoint_name, instance_count):
        await asyncio.sleep(0)
        assert endpoint_name in self.fleets, "what is resized is there"
        if instance_count > self.fleets[endpoint_name]:
            self._maybe_fail()
        await super().resize_fleet(endpoint_name, instance_count)


class ControlPlane(RuleBasedStateMachine):
    """Calls as they come, also while others are under way."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.double = self.run(self._make())
        self.sagemaker, self.fleets = self.double.sagemaker, self.double.fleets
        self.configs = 0

    async def _make(self):
        double = Double(instance_limit=LIMIT)
        double.fleets = FailingFleets()
        sagemaker = double.sagemaker
        sagemaker.create_model(model())
        single = {"Image": IMAGE, "ModelDataUrl": "s3://bucket/a.tar.gz"}
        sagemaker.create_model({"ModelName": "single", "ExecutionRoleArn": ROLE, "PrimaryContainer": single})
        return double

    def run(self, work):
        return self.loop.run_until_complete(asyncio.wait_for(work, 20))

    def call(self, function, *arguments):
        """A call of the API; a refusal is an answer, too."""

        async def made():
            with suppress(AwsError):
                function(*arguments)

        self.run(made())

    def config(self, endpoint, count, managed, kind="ml.m5.xlarge"):
        self.configs += 1
        name = f"config-{self.configs}"
        variant = {"VariantName": "AllTraffic", "InstanceType": kind, "InitialInstanceCount": count}
        if endpoint == "hosts":
            scaling = {"ManagedInstanceScaling": {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 4}} if managed else {}
            self.sagemaker.create_endpoint_config(
                {"EndpointConfigName": name, "ExecutionRoleArn": ROLE, "ProductionVariants": [{**variant, **scaling}]}
            )
        else:
            model_name = "m" if managed else "single"
            self.sagemaker.create_endpoint_config(
                {"EndpointConfigName": name, "ProductionVariants": [{**variant, "ModelName": model_name}]}
            )
        return name

    @rule(endpoint=st.sampled_from(ENDPOINTS), count=st.integers(1, 4), managed=st.booleans())
    def create(self, endpoint, count, managed):
        name = self.config(endpoint, count, managed)
        self.call(self.sagemaker.create_endpoint, {"EndpointName": endpoint, "EndpointConfigName": name})

    @rule(
        endpoint=st.sampled_from(ENDPOINTS),
        count=st.integers(1, 4),
        managed=st.booleans(),
        policy=POLICIES,
        retain=st.booleans(),
        kind=st.sampled_from(["ml.m5.large", "ml.m5.xlarge"]),
    )
    def update(self, endpoint, count, managed, policy, retain, kind):
        given = {"EndpointName": endpoint, "EndpointConfigName": self.config(endpoint, count, managed, kind)}
        watched = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "errors"}]}}
        self.double.alarms.setdefault("errors", "OK")
        if policy is not None:
            given["DeploymentConfig"] = {**policy, **watched}
        self.call(self.sagemaker.update_endpoint, {**given, "RetainAllVariantProperties": retain})

    @rule(endpoint=st.sampled_from(ENDPOINTS), count=st.integers(0, 5))
    def scale(self, endpoint, count):
        change = {"VariantName": "AllTraffic", "DesiredInstanceCount": count}
        self.call(self.sagemaker.update_weights_and_capacities, {"EndpointName": endpoint, "DesiredWeightsAndCapacities": [change]})

    @rule(endpoint=st.sampled_from(ENDPOINTS))
    def delete(self, endpoint):
        self.call(self.sagemaker.delete_endpoint, endpoint)

    @rule(component=st.sampled_from(COMPONENTS), copies=st.integers(0, 5), cpus=st.sampled_from([0.5, 1.0, 3.0]))
    def create_component(self, component, copies, cpus):
        given = {"InferenceComponentName": component, "EndpointName": "hosts", "RuntimeConfig": {"CopyCount": copies}}
        self.call(self.sagemaker.components.create, {**given, "Specification": self.specification(cpus)}, {})

    @rule(component=st.sampled_from(COMPONENTS), copies=st.integers(0, 5), cpus=st.sampled_from([0.5, 1.0, 3.0]), both=st.booleans())
    def update_component(self, component, copies, cpus, both):
        given = {"InferenceComponentName": component, "Specification": self.specification(cpus), "DeploymentConfig": COPIES}
        runtime = {"RuntimeConfig": {"CopyCount": copies}} if both else {}
        self.call(self.sagemaker.components.update, {**given, **runtime})

    @rule(component=st.sampled_from(COMPONENTS), copies=st.integers(0, 6))
    def scale_component(self, component, copies):
        self.call(self.sagemaker.components.set_copies, component, copies)

    @rule(component=st.sampled_from(COMPONENTS))
    def delete_component(self, component):
        self.call(self.sagemaker.components.delete, component)

    def specification(self, cpus):
        needs = {"MinMemoryRequiredInMb": 512, "NumberOfCpuCoresRequired": cpus}
        return {"ModelName": "single", "ComputeResourceRequirements": needs}

    @rule(failures=st.lists(st.booleans(), max_size=4))
    def fail(self, failures):
        self.fleets.failures = failures

    @rule(state=st.sampled_from(["OK", "ALARM"]))
    def alarm(self, state):
        self.double.alarms["errors"] = state

    @rule(turns=st.integers(1, 10))
    def pass_time(self, turns):
        async def turn():
            for _ in range(turns):
                await asyncio.sleep(0)

        self.run(turn())

    @rule()
    def settle(self):
        self.run(self._settled())

    async def _settled(self):
        while waiting := [one for one in self.resources() if not one.settled.is_set()]:
            await waiting[0].settled.wait()
        for _ in range(5):  # what is released afterwards
            await asyncio.sleep(0)

    def resources(self):
        return [*self.sagemaker.endpoints.values(), *self.sagemaker.components.by_name.values()]

    def at_rest(self):
        return all(one.settled.is_set() for one in self.resources())

    @invariant()
    @precondition(at_rest)
    def statuses_are_final(self):
        for endpoint in self.sagemaker.endpoints.values():
            assert endpoint.status in ("InService", "Failed", "UpdateRollbackFailed"), endpoint
            assert (endpoint.pending is None) == (endpoint.status != "UpdateRollbackFailed")
            assert endpoint.reserved == 0
        for component in self.sagemaker.components.by_name.values():
            assert component.status in ("InService", "Failed"), component
            assert (component.next_run, component.traffic) == (None, 0.0)
            assert component.copies == component.current == (component.run.current if component.run else 0)

    @invariant()
    @precondition(at_rest)
    def every_fleet_has_an_owner_and_the_size_that_it_is_said_to_have(self):
        runs = [one.run for endpoint in self.sagemaker.endpoints.values() for one in (*endpoint.variants, *endpoint.pending_variants)]
        runs += [component.run for component in self.sagemaker.components.by_name.values()]
        assert self.fleets.fleets == {run.name: run.current for run in runs if run is not None and run.current}
        assert set(self.sagemaker.hosting.owners) >= set(self.fleets.fleets)

    @invariant()
    @precondition(at_rest)
    def copies_are_where_there_is_room_for_them(self):
        for endpoint in self.sagemaker.endpoints.values():
            for variant in endpoint.variants:
                if variant.hosts is None:
                    continue
                assert variant.hosts.count == variant.current_count
                placed = Counter()
                for host in variant.hosts.placed():
                    placed.update(host)
                    room = variant.hosts.capacity
                    for key, copies in host.items():
                        room = room.less(variant.hosts.needs(key), copies)
                    assert Needs().within(room)
                components = [one for one in self.sagemaker.components.by_name.values() if one.endpoint_name == endpoint.name]
                assert placed == Counter({one.run.name: one.run.current for one in components if one.run and one.run.current})

    @invariant()
    @precondition(at_rest)
    def whatever_is_in_service_answers(self):
        async def ask():
            for endpoint in self.sagemaker.endpoints.values():
                if endpoint.status in ("InService", "UpdateRollbackFailed") and not endpoint.hosts_components:
                    run = self.sagemaker.hosting.choose(endpoint).run
                    assert (await self.sagemaker.hosting.ask(run, InvokeRequest(b"", "t"))).status == 200
            for component in self.sagemaker.components.by_name.values():
                if component.current:
                    run = self.sagemaker.components.run_for_request(component)
                    assert (await self.sagemaker.hosting.ask(run, InvokeRequest(b"", None))).status == 200

        self.run(ask())

    @invariant()
    @precondition(at_rest)
    def the_limit_holds(self):
        counted = sum(one.current_count for endpoint in self.sagemaker.endpoints.values() for one in endpoint.variants)
        assert counted <= LIMIT

    def teardown(self):
        self.run(self.sagemaker.close())
        assert self.fleets.fleets == {}
        self.loop.close()


ControlPlane.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestControlPlane = ControlPlane.TestCase
