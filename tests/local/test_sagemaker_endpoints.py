"""The life of an endpoint, against a data plane of the tests' own."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from mme_local.dataplane import InvokeReply, InvokeRequest, StartFailed, UnknownFleet
from mme_local.sagemaker.models import SageMaker
from mme_local.wire import AwsError

ROLE = "arn:aws:iam::000000000000:role/execution"
IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"


class MemoryFleets:
    """A data plane that keeps counts and answers with the fleet's name."""

    def __init__(self):
        self.fleets, self.history = {}, []
        self.fail_with = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.answer_gate = asyncio.Event()
        self.answer_gate.set()

    async def start_fleet(self, spec, artifacts):
        self.history.append(("start", spec.endpoint_name))
        await self.gate.wait()
        if self.fail_with:
            raise StartFailed(self.fail_with)
        self.fleets[spec.endpoint_name] = spec.instance_count

    async def resize_fleet(self, endpoint_name, instance_count):
        await self.gate.wait()
        if self.fail_with:
            raise StartFailed(self.fail_with)
        self.fleets[endpoint_name] = instance_count

    async def stop_fleet(self, endpoint_name):
        if endpoint_name not in self.fleets:
            raise UnknownFleet(endpoint_name)
        self.history.append(("stop", endpoint_name))
        del self.fleets[endpoint_name]

    async def invoke(self, endpoint_name, request):
        await self.answer_gate.wait()
        if endpoint_name not in self.fleets:
            raise UnknownFleet(endpoint_name)
        return InvokeReply(200, endpoint_name.encode(), "text/csv", "i-1", False)

    def status(self):
        return []


@pytest.fixture
def fleets():
    return MemoryFleets()


@pytest.fixture
def sagemaker(fleets):
    def check_role(arn):
        if arn != ROLE:
            raise AwsError("ValidationException", f"Could not assume role {arn}.")

    return SageMaker(
        region="us-east-1",
        account="000000000000",
        fleets=lambda: fleets,
        artifacts=lambda bucket, role, endpoint: None,
        check_role=check_role,
        now=lambda: datetime.now(UTC),
        instance_limit=5,
    )


def model(name="m", **container):
    given = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": "s3://bucket/models/", **container}
    return {"ModelName": name, "ExecutionRoleArn": ROLE, "PrimaryContainer": given}


def config(name, count=2, model_name="m", variant="AllTraffic"):
    given = {"VariantName": variant, "ModelName": model_name, "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": count}
    return {"EndpointConfigName": name, "ProductionVariants": [given]}


def created(sagemaker, count=2):
    sagemaker.create_model(model())
    sagemaker.create_endpoint_config(config("first", count))
    return sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 20))


class TestCreating:
    def test_an_endpoint_serves_when_its_fleet_does(self, sagemaker, fleets):
        async def scenario():
            fleets.gate.clear()
            endpoint = created(sagemaker)
            assert endpoint.status == "Creating"
            fleets.gate.set()
            await endpoint.settled.wait()
            assert (endpoint.status, endpoint.failure_reason) == ("InService", None)
            assert (endpoint.variant.current_count, endpoint.variant.desired_count) == (2, 2)

        run(scenario())

    def test_a_fleet_that_fails_fails_the_endpoint_with_the_reason(self, sagemaker, fleets):
        async def scenario():
            fleets.fail_with = "no server for this image"
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            assert (endpoint.status, endpoint.failure_reason) == ("Failed", "no server for this image")
            sagemaker.delete_endpoint("shared")
            await endpoint.settled.wait()
            assert not sagemaker.endpoints

        run(scenario())

    def test_names_are_unique_whatever_their_case(self, sagemaker):
        async def scenario():
            created(sagemaker)
            with pytest.raises(AwsError, match="Cannot create already existing endpoint"):
                sagemaker.create_endpoint({"EndpointName": "SHARED", "EndpointConfigName": "first"})

        run(scenario())

    def test_more_instances_than_the_limit_are_refused(self, sagemaker):
        async def scenario():
            created(sagemaker, count=3)
            sagemaker.create_endpoint_config(config("large", 3))
            with pytest.raises(AwsError, match=r"service limit 'ml\.m5\.xlarge for endpoint usage' is 5 Instances") as caught:
                sagemaker.create_endpoint({"EndpointName": "second", "EndpointConfigName": "large"})
            assert caught.value.code == "ResourceLimitExceeded"

        run(scenario())

    def test_several_variants_fail_with_the_reason(self, sagemaker):
        async def scenario():
            sagemaker.create_model(model())
            two = config("two")
            two["ProductionVariants"] += config("other", variant="Second")["ProductionVariants"]
            sagemaker.create_endpoint_config(two)
            endpoint = sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "two"})
            await endpoint.settled.wait()
            assert endpoint.status == "Failed"
            assert "one production variant" in endpoint.failure_reason

        run(scenario())

    @pytest.mark.parametrize(
        "given",
        [
            {"PrimaryContainer": {"Image": IMAGE, "ModelDataUrl": "s3://bucket/one.tar.gz"}},
            {"Containers": [model()["PrimaryContainer"], {"Image": IMAGE}]},
        ],
    )
    def test_anything_but_one_multi_model_container_fails_with_the_reason(self, sagemaker, given):
        async def scenario():
            sagemaker.create_model({"ModelName": "m", "ExecutionRoleArn": ROLE, **given})
            sagemaker.create_endpoint_config(config("first"))
            endpoint = sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})
            await endpoint.settled.wait()
            assert endpoint.status == "Failed"
            assert "single containers in MultiModel mode only" in endpoint.failure_reason

        run(scenario())


class TestUpdating:
    def test_a_new_configuration_brings_a_new_fleet_before_the_old_one_goes(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            sagemaker.create_endpoint_config(config("next", 1))
            sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "next"})
            assert endpoint.status == "Updating"
            assert (await sagemaker.invoke(endpoint, InvokeRequest(b"", "t"))).body == b"shared.1"
            await endpoint.settled.wait()
            assert fleets.history == [("start", "shared.1"), ("start", "shared.2"), ("stop", "shared.1")]
            assert fleets.fleets == {"shared.2": 1}
            assert (endpoint.status, endpoint.config_name, endpoint.variant.current_count) == ("InService", "next", 1)

        run(scenario())

    def test_a_request_under_way_is_answered_by_the_old_fleet(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            fleets.answer_gate.clear()
            request = asyncio.create_task(sagemaker.invoke(endpoint, InvokeRequest(b"", "t")))
            await asyncio.sleep(0)
            sagemaker.create_endpoint_config(config("next"))
            sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "next"})
            while endpoint.generation < 2:
                await asyncio.sleep(0)
            assert "shared.1" in fleets.fleets
            fleets.answer_gate.set()
            assert (await request).body == b"shared.1"
            await endpoint.settled.wait()
            assert set(fleets.fleets) == {"shared.2"}

        run(scenario())

    def test_a_new_fleet_that_fails_leaves_the_old_one_serving(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            sagemaker.create_endpoint_config(config("next"))
            fleets.fail_with = "no memory"
            sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "next"})
            await endpoint.settled.wait()
            assert (endpoint.status, endpoint.config_name, endpoint.failure_reason) == ("InService", "first", "no memory")
            assert (await sagemaker.invoke(endpoint, InvokeRequest(b"", "t"))).body == b"shared.1"
            fleets.fail_with = None
            sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "next"})
            await endpoint.settled.wait()
            assert (endpoint.config_name, endpoint.failure_reason) == ("next", None)

        run(scenario())

    @pytest.mark.parametrize(
        ("retain", "count"),
        [
            ({}, 1),
            ({"RetainAllVariantProperties": True}, 4),
            (
                {
                    "RetainAllVariantProperties": True,
                    "ExcludeRetainedVariantProperties": [{"VariantPropertyType": "DesiredInstanceCount"}],
                },
                1,
            ),
        ],
    )
    def test_the_instance_count_is_kept_only_if_asked(self, sagemaker, retain, count):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 4}
            sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": [change]})
            await endpoint.settled.wait()
            sagemaker.create_endpoint_config(config("next", 1))
            sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "next", **retain})
            await endpoint.settled.wait()
            assert endpoint.variant.current_count == count

        run(scenario())

    def test_one_change_at_a_time(self, sagemaker, fleets):
        async def scenario():
            fleets.gate.clear()
            endpoint = created(sagemaker)
            change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 3}
            for call in (
                lambda: sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"}),
                lambda: sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": [change]}),
                lambda: sagemaker.delete_endpoint("shared"),
            ):
                with pytest.raises(AwsError, match="Cannot update in-progress endpoint"):
                    call()
            fleets.gate.set()
            await endpoint.settled.wait()

        run(scenario())

    def test_a_resize_that_fails_keeps_the_old_count(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            fleets.fail_with = "no memory"
            change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 3}
            sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": [change]})
            await endpoint.settled.wait()
            assert (endpoint.status, endpoint.variant.desired_count, endpoint.failure_reason) == ("InService", 2, "no memory")

        run(scenario())

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"VariantName": "Other", "DesiredInstanceCount": 3}, 'Could not find variant "Other"'),
            ({"VariantName": "AllTraffic", "DesiredInstanceCount": 0}, "at least 1 instance"),
            ({"VariantName": "AllTraffic", "DesiredInstanceCount": 6}, "request delta of 4 Instances"),
        ],
    )
    def test_bad_capacities_are_refused(self, sagemaker, change, text):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            with pytest.raises(AwsError, match=text):
                sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": [change]})
            assert endpoint.status == "InService"

        run(scenario())


class TestEnding:
    def test_deleting_stops_the_fleet_and_forgets_the_endpoint(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            sagemaker.delete_endpoint("shared")
            assert endpoint.status == "Deleting"
            await endpoint.settled.wait()
            assert (sagemaker.endpoints, fleets.fleets) == ({}, {})

        run(scenario())

    def test_closing_ends_what_is_starting_and_what_runs(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            fleets.gate.clear()
            sagemaker.create_endpoint({"EndpointName": "second", "EndpointConfigName": "first"})
            await asyncio.sleep(0)
            await sagemaker.close()
            assert (sagemaker.endpoints, sagemaker.models, fleets.fleets) == ({}, {}, {})
            with suppress(asyncio.CancelledError):
                await endpoint.task

        run(scenario())


class TestModels:
    @pytest.mark.parametrize(
        ("container", "text"),
        [
            ({"ModelDataUrl": "s3://bucket/models/one.tar.gz"}, "must be an S3 prefix"),
            ({"ModelDataUrl": "https://bucket.s3.amazonaws.com/models/"}, "must be an S3 prefix"),
            ({"ModelDataSource": {"S3DataSource": {}}}, "ModelDataSource is not supported"),
        ],
    )
    def test_a_multi_model_container_needs_a_prefix(self, sagemaker, container, text):
        with pytest.raises(AwsError, match=text):
            sagemaker.create_model(model(**container))

    def test_a_model_package_is_refused(self, sagemaker):
        given = model()
        del given["PrimaryContainer"]["Image"]
        given["PrimaryContainer"]["ModelPackageName"] = "arn:aws:sagemaker:us-east-1:000000000000:model-package/p"
        with pytest.raises(AwsError, match="Model packages are not supported"):
            sagemaker.create_model(given)

    def test_a_prefix_without_its_slash_is_a_prefix(self, sagemaker):
        sagemaker.create_model(model(ModelDataUrl="s3://bucket/models"))

    def test_two_multi_model_containers_are_refused(self, sagemaker):
        given = model()
        containers = [given.pop("PrimaryContainer")] * 2
        with pytest.raises(AwsError, match="More than one container in MultiModel mode"):
            sagemaker.create_model({**given, "Containers": containers})

    def test_a_role_that_sagemaker_may_not_assume_is_refused(self, sagemaker):
        with pytest.raises(AwsError, match="Could not assume role"):
            sagemaker.create_model({**model(), "ExecutionRoleArn": ROLE + "-other"})

    def test_a_model_is_created_once(self, sagemaker):
        sagemaker.create_model(model())
        with pytest.raises(AwsError, match="Cannot create already existing model"):
            sagemaker.create_model(model())
