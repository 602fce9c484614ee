"""The life of inference components, against a data plane of the tests' own: placed, scaled, replaced, moved, deleted."""

from __future__ import annotations

import asyncio

import pytest

from mme_local.dataplane import InvokeRequest
from mme_local.metrics.control_plane import variants_of
from mme_local.wire import AwsError
from tests.local.sagemaker_double import IMAGE, ROLE, Double, config, created, model, run

ROLLING = {"RollingUpdatePolicy": {"MaximumBatchSize": {"Type": "COPY_COUNT", "Value": 1}, "WaitIntervalInSeconds": 600}}
NO_ROOM = "There is not enough hardware resources on the instances for this endpoint to create a copy of the inference component."
MANAGED = {"Status": "ENABLED", "MinInstanceCount": 0, "MaxInstanceCount": 3}


@pytest.fixture
def double():
    return Double()


def hosting(name="hosting", **values):
    variant = {"VariantName": "AllTraffic", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1, **values}
    return {"EndpointConfigName": name, "ExecutionRoleArn": ROLE, "ProductionVariants": [variant]}


def specification(memory=256, cpus=1.0, **values):
    needs = {"MinMemoryRequiredInMb": memory, "NumberOfCpuCoresRequired": cpus}
    given = {"ComputeResourceRequirements": needs, "ModelName": "single", **values}
    return {member: value for member, value in given.items() if value is not None}


def component(name="c", copies=1, **values):
    given = {"InferenceComponentName": name, "EndpointName": "dedicated", "RuntimeConfig": {"CopyCount": copies}}
    return {**given, "Specification": specification(**values)}


def dedicated_models(double):
    single = {"Image": IMAGE, "ModelDataUrl": "s3://bucket/models/a.tar.gz", "Environment": {"A": "1"}}
    double.sagemaker.create_model({"ModelName": "single", "ExecutionRoleArn": ROLE, "PrimaryContainer": single})
    double.sagemaker.create_model(model())


async def dedicated(double, **values):
    dedicated_models(double)
    double.sagemaker.create_endpoint_config(hosting(**values))
    endpoint = double.sagemaker.create_endpoint({"EndpointName": "dedicated", "EndpointConfigName": "hosting"})
    await endpoint.settled.wait()
    return endpoint


async def made(double, *args, **values):
    one = double.sagemaker.components.create(component(*args, **values), {})
    await one.settled.wait()
    return one


async def scaled(double, name, copies):
    one = double.sagemaker.components.set_copies(name, copies)
    await one.settled.wait()
    return one


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def body(double, name):
    run = double.sagemaker.components.run_for_request(double.sagemaker.components.by_name[name])
    return (await double.sagemaker.hosting.ask(run, InvokeRequest(b"", None))).body


class TestSpecificationsByInstanceType:
    def test_metrics_and_placement_take_the_same_one(self, double):
        async def scenario():
            await dedicated(double)
            for name, members in (
                ("named", [specification(512), specification(256, InstanceType="ml.m5.xlarge")]),
                ("general", [specification(512, InstanceType="ml.m5.2xlarge"), specification(256)]),
            ):
                request = component(name)
                del request["Specification"]
                await double.sagemaker.components.create({**request, "Specifications": members}, {}).settled.wait()
            (facts,) = variants_of(double.sagemaker)
            placed = {spec.memory_bytes for spec in double.fleets.specs.values()}
            assert {one.memory_bytes for one in facts.components} == placed == {256 * 1024 * 1024}

        run(scenario())

    def test_a_component_without_copies_stays_when_the_endpoint_moves_to_a_type_that_it_has_none_for(self, double):
        async def scenario():
            endpoint = await dedicated(double)
            request = component("c")
            del request["Specification"]
            members = [specification(256, InstanceType="ml.m5.xlarge")]
            await double.sagemaker.components.create({**request, "Specifications": members}, {}).settled.wait()
            await scaled(double, "c", 0)
            double.sagemaker.create_endpoint_config(hosting("large", InstanceType="ml.m5.2xlarge"))
            double.sagemaker.update_endpoint({"EndpointName": "dedicated", "EndpointConfigName": "large"})
            await endpoint.settled.wait()
            assert (endpoint.status, endpoint.config_name) == ("InService", "large")
            (facts,) = variants_of(double.sagemaker)
            assert [(one.copies, one.memory_bytes) for one in facts.components] == [(0, 0)]

        run(scenario())


class TestCreating:
    def test_a_component_is_a_fleet_of_its_copies_with_its_memory(self, double):
        async def scenario():
            endpoint = await dedicated(double)
            assert (endpoint.status, endpoint.fleets, double.fleets.history) == ("InService", [], [])
            double.fleets.gate.clear()
            one = double.sagemaker.components.create(component(copies=2, memory=512), {"tenant": "a"})
            assert (one.status, one.copies, one.current) == ("Creating", 2, 0)
            double.fleets.gate.set()
            await one.settled.wait()
            assert (one.status, one.copies, one.current, one.failure_reason) == ("InService", 2, 2, None)
            fleet = "dedicated.1.AllTraffic.c"
            spec = double.fleets.specs[fleet]
            assert double.fleets.fleets == {fleet: 2}
            assert (spec.model_key, spec.bucket, spec.memory_bytes, spec.environment) == (
                "models/a.tar.gz",
                "bucket",
                512 << 20,
                {"A": "1"},
            )
            owner = double.sagemaker.owner(fleet)
            assert (owner.endpoint, owner.variant, owner.component, owner.instance_type) == ("dedicated", "AllTraffic", "c", "ml.m5.xlarge")
            assert await body(double, "c") == fleet.encode()
            assert endpoint.variants[0].hosts.placed() == [{fleet: 2}]

        run(scenario())

    def test_a_container_may_be_given_instead_of_a_model(self, double):
        async def scenario():
            await dedicated(double)
            container = {"Image": IMAGE, "ArtifactUrl": "s3://other/b.tar.gz", "Environment": {"B": "2"}}
            await made(double, ModelName=None, Container=container)
            spec = double.fleets.specs["dedicated.1.AllTraffic.c"]
            assert (spec.bucket, spec.model_key, spec.environment) == ("other", "b.tar.gz", {"B": "2"})

        run(scenario())

    @pytest.mark.parametrize("values", [{"memory": 16385}, {"cpus": 4.25}, {"copies": 5}], ids=["memory", "cpus", "copies"])
    def test_copies_that_do_not_fit_fail_with_the_reason_and_reserve_nothing(self, double, values):
        async def scenario():
            endpoint = await dedicated(double)
            one = await made(double, **values)
            assert (one.status, one.failure_reason, one.current) == ("Failed", NO_ROOM, 0)
            assert (double.fleets.fleets, endpoint.variants[0].hosts.placed()) == ({}, [{}])
            with pytest.raises(AwsError, match="in Failed status"):
                double.sagemaker.components.set_copies("c", 1)
            await double.sagemaker.components.delete("c").settled.wait()
            assert double.sagemaker.components.by_name == {}

        run(scenario())

    def test_an_accelerator_that_the_instances_do_not_have_does_not_fit(self, double):
        async def scenario():
            await dedicated(double)
            needs = {"MinMemoryRequiredInMb": 128, "NumberOfAcceleratorDevicesRequired": 1}
            assert (await made(double, ComputeResourceRequirements=needs)).failure_reason == NO_ROOM

        run(scenario())

    def test_copies_that_do_not_start_fail_with_their_reason(self, double):
        async def scenario():
            endpoint = await dedicated(double)
            double.fleets.fail_with = "no server for this image"
            one = await made(double)
            assert (one.status, one.failure_reason) == ("Failed", "no server for this image")
            assert endpoint.variants[0].hosts.placed() == [{}]

        run(scenario())

    def test_the_specification_of_the_instance_type_counts(self, double):
        async def scenario():
            await dedicated(double)
            several = [specification(memory=9999, InstanceType="ml.g5.xlarge"), specification(memory=300, InstanceType="ml.m5.xlarge")]
            given = {member: value for member, value in component().items() if member != "Specification"}
            one = double.sagemaker.components.create({**given, "Specifications": several}, {})
            await one.settled.wait()
            assert double.fleets.specs["dedicated.1.AllTraffic.c"].memory_bytes == 300 << 20
            with pytest.raises(AwsError, match=r"No specification is for ml\.m5\.xlarge"):
                double.sagemaker.components.create({**given, "InferenceComponentName": "d", "Specifications": several[:1]}, {})

        run(scenario())

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"EndpointName": "none"}, 'Could not find endpoint "arn:aws:sagemaker:us-east-1:000000000000:endpoint/none"'),
            ({"VariantName": "none"}, 'Could not find variant "none"'),
            ({"RuntimeConfig": None}, "CopyCount is required"),
            ({"RuntimeConfig": {"CopyCount": 0}}, "created with at least 1 copy"),
            ({"Specification": None}, "Exactly one of Specification and Specifications"),
            ({"Specification": {"ModelName": "single"}}, "ComputeResourceRequirements are required"),
            ({"Specification": specification(ModelName="none")}, "Could not find model"),
            ({"Specification": specification(ModelName="m")}, "is in MultiModel mode"),
            ({"Specification": specification(ModelName=None)}, "exactly one of ModelName and Container"),
            ({"Specification": specification(Container={"Image": "i"})}, "exactly one of ModelName and Container"),
            ({"Specification": specification(ModelName=None, Container={})}, r"Container\.Image is required"),
            (
                {"Specification": specification(ComputeResourceRequirements={"MinMemoryRequiredInMb": 256, "MaxMemoryRequiredInMb": 128})},
                "MaxMemoryRequiredInMb cannot be less",
            ),
            (
                {"Specification": {"BaseInferenceComponentName": "base"}},
                "BaseInferenceComponentName base: the local cloud serves no adapters",
            ),
        ],
    )
    def test_bad_components_are_refused(self, double, change, text):
        async def scenario():
            await dedicated(double)
            given = {member: value for member, value in {**component(), **change}.items() if value is not None}
            with pytest.raises(AwsError, match=text):
                double.sagemaker.components.create(given, {})
            assert double.sagemaker.components.by_name == {}

        run(scenario())

    def test_names_are_unique_whatever_their_case(self, double):
        async def scenario():
            await dedicated(double)
            await made(double, "base")
            with pytest.raises(AwsError, match="Cannot create already existing inference component"):
                double.sagemaker.components.create(component("BASE"), {})

        run(scenario())

    def test_an_endpoint_of_models_takes_none_and_does_not_become_one(self, double):
        async def scenario():
            endpoint = created(double.sagemaker)
            await endpoint.settled.wait()
            with pytest.raises(AwsError, match="need an endpoint whose variants have no ModelName"):
                double.sagemaker.components.create({**component(), "EndpointName": "shared"}, {})
            double.sagemaker.create_endpoint_config(hosting())
            with pytest.raises(AwsError, match="cannot change between models and inference components"):
                double.sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "hosting"})

        run(scenario())


class TestChanging:
    def test_copies_come_and_go_to_zero_and_back(self, double):
        async def scenario():
            endpoint = await dedicated(double)
            missed = []
            double.sagemaker.components.on_missing_capacity(lambda *names: missed.append(names))
            await made(double)
            one = await scaled(double, "c", 3)
            assert (one.current, double.fleets.fleets) == (3, {"dedicated.1.AllTraffic.c": 3})
            await scaled(double, "c", 0)
            assert (one.status, one.copies, one.current, double.fleets.fleets) == ("InService", 0, 0, {})
            assert endpoint.variants[0].hosts.idle == 1
            with pytest.raises(AwsError, match="Inference Component has no capacity to process this request") as caught:
                await body(double, "c")
            assert (caught.value.code, missed) == ("ValidationError", [("dedicated", "c")])
            await scaled(double, "c", 1)
            assert await body(double, "c") == b"dedicated.2.AllTraffic.c"

        run(scenario())

    def test_copies_beyond_the_room_leave_those_that_serve(self, double):
        async def scenario():
            endpoint = await dedicated(double)
            await made(double, copies=3)
            one = await scaled(double, "c", 5)
            assert (one.status, one.failure_reason, one.copies, one.current) == ("InService", NO_ROOM, 3, 3)
            assert endpoint.variants[0].hosts.copies("dedicated.1.AllTraffic.c") == 3
            await scaled(double, "c", 4)
            assert (one.current, one.failure_reason) == (4, None)

        run(scenario())

    def test_one_change_at_a_time(self, double):
        async def scenario():
            await dedicated(double)
            await made(double)
            double.fleets.gate.clear()
            one = double.sagemaker.components.set_copies("c", 2)
            for call in (
                lambda: double.sagemaker.components.set_copies("c", 1),
                lambda: double.sagemaker.components.update({"InferenceComponentName": "c", "RuntimeConfig": {"CopyCount": 1}}),
                lambda: double.sagemaker.components.delete("c"),
            ):
                with pytest.raises(AwsError, match="Cannot update in-progress inference component"):
                    call()
            double.sagemaker.create_endpoint_config(hosting("next"))
            with pytest.raises(AwsError, match="while its inference components are changing: c"):
                double.sagemaker.update_endpoint({"EndpointName": "dedicated", "EndpointConfigName": "next"})
            double.fleets.gate.set()
            await one.settled.wait()

        run(scenario())

    def test_another_specification_replaces_the_copies_batch_by_batch(self, double):
        async def scenario():
            endpoint = await dedicated(double)
            one = await made(double, copies=2)
            change = {"InferenceComponentName": "c", "Specification": specification(memory=1024), "DeploymentConfig": ROLLING}
            double.sagemaker.components.update(change)
            old, new = "dedicated.1.AllTraffic.c", "dedicated.2.AllTraffic.c"
            await until(lambda: one.traffic == pytest.approx(1 / 3))
            assert (one.status, double.fleets.fleets, one.current) == ("Updating", {old: 2, new: 1}, 3)
            assert endpoint.variants[0].hosts.placed() == [{old: 2, new: 1}]
            double.chances += [0.3, 0.4]
            assert [await body(double, "c") for _ in range(2)] == [new.encode(), old.encode()]
            double.clock.jump(600)
            await until(lambda: one.traffic == 1.0)
            assert double.fleets.fleets == {old: 1, new: 2}
            double.clock.jump(600)
            await one.settled.wait()
            assert (one.status, one.current, double.fleets.fleets) == ("InService", 2, {new: 2})
            assert endpoint.variants[0].hosts.placed() == [{new: 2}]
            assert one.request["Specification"]["ComputeResourceRequirements"]["MinMemoryRequiredInMb"] == 1024
            assert set(double.sagemaker.hosting.owners) == {new}

        run(scenario())

    @pytest.mark.parametrize("failure", ["start", "alarm", "room"])
    def test_a_specification_that_fails_leaves_the_old_copies(self, double, failure):
        async def scenario():
            endpoint = await dedicated(double)
            one = await made(double, copies=2)
            rollback = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "errors"}]}}
            double.alarms["errors"] = "OK"
            if failure == "start":
                double.fleets.failing = "dedicated.2.AllTraffic.c"
            memory = 16000 if failure == "room" else 1024
            change = {"InferenceComponentName": "c", "Specification": specification(memory=memory)}
            double.sagemaker.components.update({**change, "DeploymentConfig": {**ROLLING, **rollback}})
            if failure == "alarm":
                await until(lambda: one.traffic)
                double.clock.jump(600)
                await until(lambda: one.traffic == 1.0)
                double.alarms["errors"] = "ALARM"
            await one.settled.wait()
            text = {"start": "AllTraffic.c failed", "alarm": "have tripped: [errors]", "room": NO_ROOM}[failure]
            assert (one.status, text in one.failure_reason) == ("InService", True)
            assert (one.current, one.copies, double.fleets.fleets) == (2, 2, {"dedicated.1.AllTraffic.c": 2})
            assert endpoint.variants[0].hosts.placed() == [{"dedicated.1.AllTraffic.c": 2}]
            assert one.request["Specification"]["ComputeResourceRequirements"]["MinMemoryRequiredInMb"] == 256

        run(scenario())

    def test_old_copies_without_room_beside_the_new_ones_come_back_when_those_are_gone(self, double):
        async def scenario():
            endpoint = await dedicated(double)
            one = await made(double, copies=2, cpus=1.0)
            rollback = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "errors"}]}}
            double.alarms["errors"] = "OK"
            change = {"InferenceComponentName": "c", "Specification": specification(cpus=1.5)}
            double.sagemaker.components.update({**change, "DeploymentConfig": {**ROLLING, **rollback}})
            await until(lambda: one.traffic)
            double.clock.jump(600)
            await until(lambda: one.traffic == 1.0)
            double.alarms["errors"] = "ALARM"
            await one.settled.wait()
            assert (one.current, double.fleets.fleets) == (2, {"dedicated.1.AllTraffic.c": 2})
            assert endpoint.variants[0].hosts.placed() == [{"dedicated.1.AllTraffic.c": 2}]

        run(scenario())

    def test_a_specification_without_copies_waits_for_the_next_ones(self, double):
        async def scenario():
            await dedicated(double)
            one = await made(double)
            await scaled(double, "c", 0)
            double.sagemaker.components.update({"InferenceComponentName": "c", "Specification": specification(memory=700)})
            await one.settled.wait()
            assert double.fleets.fleets == {}
            await scaled(double, "c", 1)
            assert double.fleets.specs["dedicated.2.AllTraffic.c"].memory_bytes == 700 << 20

        run(scenario())


class TestInstances:
    def test_managed_instances_come_with_copies_and_go_to_zero_with_them(self, double):
        async def scenario():
            endpoint = await dedicated(double, ManagedInstanceScaling=MANAGED)
            (variant,) = endpoint.variants
            await made(double, copies=2, cpus=2.0)
            one = await scaled(double, "c", 5)
            assert (one.current, variant.current_count, variant.desired_count) == (5, 3, 3)
            scalings = [detail for kind, detail in double.told if kind == "SageMaker Endpoint Deployment State Change"]
            assert scalings[-1]["ProductionVariants"][0]["VariantStatus"][0]["StatusMessage"] == "Scaling out desired instance count to 3."
            await scaled(double, "c", 2)
            await until(lambda: variant.current_count == 2)
            await scaled(double, "c", 0)
            await until(lambda: variant.current_count == 0)
            await scaled(double, "c", 1)
            assert (variant.current_count, one.current) == (1, 1)

        run(scenario())

    def test_managed_instances_stop_at_their_maximum_and_never_come_for_a_copy_that_fits_none(self, double):
        async def scenario():
            endpoint = await dedicated(double, ManagedInstanceScaling=MANAGED)
            one = await made(double, copies=7, cpus=2.0)
            assert (one.status, one.failure_reason) == ("Failed", NO_ROOM)
            await until(lambda: endpoint.variants[0].current_count == 0)
            other = await made(double, "d", memory=20000)
            assert (other.failure_reason, endpoint.variants[0].current_count) == (NO_ROOM, 0)

        run(scenario())

    @pytest.mark.parametrize("missing", ["capacity", "limit"])
    def test_managed_instances_that_cannot_be_had_are_the_reason(self, missing):
        double = Double(instance_limit=1 if missing == "limit" else 10)

        async def scenario():
            await dedicated(double, ManagedInstanceScaling=MANAGED)
            if missing == "capacity":
                double.no_capacity = "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error."
            one = await made(double, copies=3, cpus=2.0)
            text = {
                "capacity": "InsufficientInstanceCapacity",
                "limit": "account-level service limit 'ml.m5.xlarge for endpoint usage' is 1",
            }
            assert (one.status, text[missing] in one.failure_reason) == ("Failed", True)

        run(scenario())

    def test_a_scale_in_policy_waits_for_its_cooldown_and_goes_step_by_step(self, double):
        async def scenario():
            policy = {"Strategy": "IDLE_RELEASE", "MaximumStepSize": 1, "CooldownInMinutes": 5}
            endpoint = await dedicated(double, ManagedInstanceScaling={**MANAGED, "ScaleInPolicy": policy})
            (variant,) = endpoint.variants
            await made(double, copies=6, cpus=2.0)
            await scaled(double, "c", 0)
            for left in (2, 1, 0):
                assert variant.current_count == left + 1
                double.clock.jump(300)
                await until(lambda left=left: variant.current_count == left)

        run(scenario())

    def test_consolidation_moves_copies_together(self, double):
        async def scenario():
            policy = {"Strategy": "CONSOLIDATION", "MaximumStepSize": 2, "CooldownInMinutes": 5}
            endpoint = await dedicated(double, InitialInstanceCount=3, ManagedInstanceScaling={**MANAGED, "ScaleInPolicy": policy})
            (variant,) = endpoint.variants
            await made(double, copies=6, cpus=1.0)
            await scaled(double, "c", 3)
            double.clock.jump(300)
            await until(lambda: variant.current_count == 1)
            assert variant.hosts.placed() == [{"dedicated.1.AllTraffic.c": 3}]

        run(scenario())

    def test_unmanaged_instances_stay_and_are_scaled_by_hand_as_far_as_copies_allow(self, double):
        async def scenario():
            endpoint = await dedicated(double, InitialInstanceCount=2)
            await made(double, copies=3, cpus=2.0)

            async def resize(count):
                change = {"VariantName": "AllTraffic", "DesiredInstanceCount": count}
                double.sagemaker.update_weights_and_capacities({"EndpointName": "dedicated", "DesiredWeightsAndCapacities": [change]})
                await endpoint.settled.wait()
                return endpoint.variants[0].current_count, endpoint.failure_reason

            assert await resize(1) == (2, NO_ROOM)
            await scaled(double, "c", 2)
            assert await resize(1) == (1, None)
            await scaled(double, "c", 0)
            assert await resize(0) == (0, None)

        run(scenario())

    def test_an_update_of_the_endpoint_moves_the_copies_to_its_new_instances(self, double):
        async def scenario():
            endpoint = await dedicated(double)
            one = await made(double, copies=2)
            double.sagemaker.create_endpoint_config(hosting("next", InstanceType="ml.m5.2xlarge"))
            double.sagemaker.update_endpoint({"EndpointName": "dedicated", "EndpointConfigName": "next"})
            await endpoint.settled.wait()
            new = "dedicated.2.AllTraffic.c"
            assert (endpoint.status, endpoint.config_name, double.fleets.fleets) == ("InService", "next", {new: 2})
            assert (one.current, one.run.name, one.next_run, one.traffic) == (2, new, None, 0.0)
            assert endpoint.variants[0].hosts.placed() == [{new: 2}]
            assert await body(double, "c") == new.encode()
            await scaled(double, "c", 8)
            assert one.current == 8

        run(scenario())

    @pytest.mark.parametrize("failure", ["room", "start", "variant"])
    def test_an_update_that_cannot_take_the_copies_rolls_back(self, double, failure):
        async def scenario():
            endpoint = await dedicated(double)
            one = await made(double, copies=3)
            values = {"room": {"InstanceType": "ml.m5.large"}, "variant": {"VariantName": "Other"}, "start": {}}[failure]
            double.sagemaker.create_endpoint_config(hosting("next", **values))
            if failure == "start":
                double.fleets.failing = "dedicated.2.AllTraffic.c"
            double.sagemaker.update_endpoint({"EndpointName": "dedicated", "EndpointConfigName": "next"})
            await endpoint.settled.wait()
            assert (endpoint.status, endpoint.config_name, bool(endpoint.failure_reason)) == ("InService", "hosting", True)
            assert (one.current, one.next_run, double.fleets.fleets) == (3, None, {"dedicated.1.AllTraffic.c": 3})
            assert await body(double, "c") == b"dedicated.1.AllTraffic.c"

        run(scenario())

    def test_copies_that_do_not_come_back_after_a_failed_update_of_the_endpoint_are_no_longer_counted(self, double):
        async def scenario():
            endpoint = await dedicated(double, InitialInstanceCount=2)
            one = await made(double, copies=2)
            double.sagemaker.create_endpoint_config(hosting("next", InitialInstanceCount=2))
            rolling = {"MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": 1}, "WaitIntervalInSeconds": 600}
            policy = {"RollingUpdatePolicy": rolling, "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "errors"}]}}
            double.alarms["errors"] = "OK"
            double.sagemaker.update_endpoint({"EndpointName": "dedicated", "EndpointConfigName": "next", "DeploymentConfig": policy})
            await until(lambda: one.traffic)
            double.clock.jump(600)
            await until(lambda: double.fleets.fleets["dedicated.1.AllTraffic.c"] == 1)
            double.fleets.fail_with, double.alarms["errors"] = "no instances left", "ALARM"
            await endpoint.settled.wait()
            old = "dedicated.1.AllTraffic.c"
            assert (endpoint.status, endpoint.config_name, double.fleets.fleets) == ("InService", "hosting", {old: 1})
            assert (one.copies, one.current, one.next_run, await body(double, "c")) == (1, 1, None, old.encode())
            assert [host for host in endpoint.variants[0].hosts.placed() if host] == [{old: 1}]
            double.fleets.fail_with = None
            await scaled(double, "c", 2)
            assert double.fleets.fleets == {old: 2}

        run(scenario())


class TestEnding:
    def test_a_component_goes_before_its_endpoint_and_frees_its_room(self, double):
        async def scenario():
            endpoint = await dedicated(double)
            one = await made(double, copies=4)
            with pytest.raises(AwsError, match="has inference components: delete c first"):
                double.sagemaker.delete_endpoint("dedicated")
            assert double.sagemaker.components.delete("c").status == "Deleting"
            await one.settled.wait()
            assert (double.fleets.fleets, double.sagemaker.components.by_name, double.sagemaker.hosting.owners) == ({}, {}, {})
            assert (await made(double, "d", copies=4)).status == "InService"
            await double.sagemaker.components.delete("d").settled.wait()
            double.sagemaker.delete_endpoint("dedicated")
            await endpoint.settled.wait()
            assert double.sagemaker.endpoints == {}

        run(scenario())

    def test_copies_that_are_going_get_no_more_requests(self, double):
        async def scenario():
            await dedicated(double)
            await made(double)
            double.fleets.answer_gate.clear()
            request = asyncio.create_task(body(double, "c"))
            await asyncio.sleep(0)
            one = double.sagemaker.components.set_copies("c", 0)
            await until(lambda: not one.current)
            assert double.fleets.fleets == {"dedicated.1.AllTraffic.c": 1}, "it still answers what is under way"
            with pytest.raises(AwsError, match="has no capacity"):
                await body(double, "c")
            double.fleets.answer_gate.set()
            assert await request == b"dedicated.1.AllTraffic.c"
            await one.settled.wait()
            assert double.fleets.fleets == {}

        run(scenario())

    def test_a_request_under_way_is_answered_before_the_copies_go(self, double):
        async def scenario():
            await dedicated(double)
            one = await made(double)
            double.fleets.answer_gate.clear()
            request = asyncio.create_task(body(double, "c"))
            await asyncio.sleep(0)
            double.sagemaker.components.delete("c")
            await asyncio.sleep(0.01)
            assert double.fleets.fleets == {"dedicated.1.AllTraffic.c": 1}
            double.fleets.answer_gate.set()
            assert await request == b"dedicated.1.AllTraffic.c"
            await one.settled.wait()
            assert double.fleets.fleets == {}

        run(scenario())

    def test_closing_ends_what_runs_and_what_is_starting(self, double):
        async def scenario():
            await dedicated(double)
            await made(double)
            double.fleets.gate.clear()
            double.sagemaker.components.create(component("d"), {})
            await asyncio.sleep(0)
            await double.sagemaker.close()
            assert (double.fleets.fleets, double.sagemaker.components.by_name, double.sagemaker.endpoints) == ({}, {}, {})

        run(scenario())

    def test_a_component_that_is_created_while_everything_is_closed_ends_too(self, double):
        async def scenario():
            await dedicated(double)
            await made(double)
            double.fleets.stop_gate.clear()
            closing = asyncio.create_task(double.sagemaker.close())
            await asyncio.sleep(0.01)
            late = double.sagemaker.components.create(component("late"), {})
            await late.settled.wait()
            assert "dedicated.1.AllTraffic.late" in double.fleets.fleets
            double.fleets.stop_gate.set()
            await closing
            assert (double.fleets.fleets, double.sagemaker.components.by_name, double.sagemaker.endpoints) == ({}, {}, {})

        run(scenario())

    def test_an_update_that_finds_no_room_for_the_copies_leaves_no_owner_of_a_fleet(self, double):
        async def scenario():
            endpoint = await dedicated(double, InstanceType="ml.m5.2xlarge")
            await made(double, cpus=5.0)
            double.sagemaker.create_endpoint_config(hosting("small", InstanceType="ml.m5.xlarge"))
            double.sagemaker.update_endpoint({"EndpointName": "dedicated", "EndpointConfigName": "small"})
            await endpoint.settled.wait()
            assert endpoint.failure_reason == NO_ROOM
            assert set(double.sagemaker.hosting.owners) == set(double.fleets.fleets) == {"dedicated.1.AllTraffic.c"}

        run(scenario())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"ExecutionRoleArn": None}, "ExecutionRoleArn is required"),
        ({"ExecutionRoleArn": ROLE + "-other"}, "Could not assume role"),
        (hosting(ManagedInstanceScaling={"MinInstanceCount": 3, "MaxInstanceCount": 2}), "MinInstanceCount cannot be greater"),
        (hosting(InstanceType=None), "InstanceType is required"),
        ({"ProductionVariants": hosting()["ProductionVariants"] + config("x", variant="B")["ProductionVariants"]}, "or none has"),
        (
            config("x") | {"ProductionVariants": [{**config("x")["ProductionVariants"][0], "ManagedInstanceScaling": {}}]},
            "inference comp",
        ),
    ],
)
def test_bad_configurations_are_refused(double, change, text):
    double.sagemaker.create_model(model())
    given = {member: value for member, value in {**hosting(), **change}.items() if value is not None}
    given["ProductionVariants"] = [{k: v for k, v in one.items() if v is not None} for one in given["ProductionVariants"]]
    with pytest.raises(AwsError, match=text):
        double.sagemaker.create_endpoint_config(given)
