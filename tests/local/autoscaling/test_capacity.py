"""Capacities through SageMaker's own operations, with a data plane in the test's hands."""

from __future__ import annotations

import asyncio

import pytest

from mme_local.autoscaling.capacity import BusyError, RefusedError, SageMakerCapacity
from mme_local.autoscaling.models import Key
from tests.local.sagemaker_double import Double, config, created, model, run

TARGET: Key = ("sagemaker", "endpoint/shared/variant/AllTraffic", "sagemaker:variant:DesiredInstanceCount")
COPIES: Key = ("sagemaker", "inference-component/acme", "sagemaker:inference-component:DesiredCopyCount")


async def in_service(double: Double, count: int = 2) -> SageMakerCapacity:
    endpoint = created(double.sagemaker, count)
    await endpoint.settled.wait()
    return SageMakerCapacity(double.sagemaker)


def test_what_does_not_exist_has_no_capacity():
    async def story():
        capacity = SageMakerCapacity(Double().sagemaker)
        assert (capacity.desired(TARGET), capacity.desired(COPIES)) == (None, None)
        for key in (TARGET, COPIES):
            with pytest.raises(RefusedError, match="Could not find"):
                capacity.set(key, 2)
            await capacity.settled(key)
            assert capacity.shortfall(key, 2) == f"{key[1]} is gone."

    run(story())


def test_a_variant_is_resized_and_busy_meanwhile():
    async def story():
        double = Double()
        capacity = await in_service(double)
        double.fleets.gate.clear()
        capacity.set(TARGET, 4)
        assert capacity.desired(TARGET) == 4
        with pytest.raises(BusyError):
            capacity.set(TARGET, 5)
        waiting = asyncio.ensure_future(capacity.settled(TARGET))
        await asyncio.sleep(0)
        assert not waiting.done()
        double.fleets.gate.set()
        await waiting
        assert capacity.shortfall(TARGET, 4) is None

    run(story())


def test_what_sagemaker_refuses_is_told_with_its_reason():
    async def story():
        capacity = await in_service(Double(instance_limit=3))
        with pytest.raises(RefusedError, match=r"account-level service limit 'ml\.m5\.xlarge for endpoint usage' is 3"):
            capacity.set(TARGET, 4)
        assert capacity.desired(TARGET) == 2

    run(story())


def test_a_change_that_fails_falls_short():
    async def story():
        double = Double()
        capacity = await in_service(double)
        double.fleets.fail_with = "no instance of the type is free"
        capacity.set(TARGET, 4)
        await capacity.settled(TARGET)
        assert "no instance of the type is free" in str(capacity.shortfall(TARGET, 4))
        assert capacity.desired(TARGET) == 2, "the endpoint keeps what it had"

    run(story())


def test_burstable_instances_are_not_scaled():
    async def story():
        double = Double()
        double.sagemaker.create_model(model())
        given = config("first")
        given["ProductionVariants"][0]["InstanceType"] = "ml.t2.medium"
        double.sagemaker.create_endpoint_config(given)
        await double.sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"}).settled.wait()
        assert "ml.t2.medium is a burstable instance type" in str(SageMakerCapacity(double.sagemaker).refusal(TARGET))
        assert (await in_service(Double())).refusal(TARGET) is None

    run(story())
