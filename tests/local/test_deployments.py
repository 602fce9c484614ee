"""Updates of endpoints step by step: policies, alarms, time limits, rollbacks, and what is told of them."""

from __future__ import annotations

import asyncio

import pytest

from mme_fleet import InstanceUp, Step
from mme_local.sagemaker.settings import ControlPlaneSettings
from mme_local.wire import AwsError
from tests.local.sagemaker_double import Double, body, config, created, run

OLD, NEXT = b"shared.1.AllTraffic", b"shared.2.AllTraffic"


@pytest.fixture
def double():
    return Double()


def size(value, kind="INSTANCE_COUNT"):
    return {"Type": kind, "Value": value}


def blue_green(kind="ALL_AT_ONCE", wait=600, termination=0, **sizes):
    routing = {"Type": kind, "WaitIntervalInSeconds": wait, **sizes}
    return {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing, "TerminationWaitInSeconds": termination}}


def rolling(batch=1, wait=600, **values):
    return {"RollingUpdatePolicy": {"MaximumBatchSize": size(batch), "WaitIntervalInSeconds": wait, **values}}


def watched(policy, *names):
    return {**policy, "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": name} for name in names]}}


async def until(condition):
    """Give the background its turns until something holds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def serving(double, count=4):
    endpoint = created(double.sagemaker, count)
    await endpoint.settled.wait()
    double.sagemaker.create_endpoint_config(config("next", count))
    return endpoint


def update(double, policy=None, **values):
    given = {"DeploymentConfig": policy} if policy is not None else {}
    return double.sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "next", **given, **values})


def traffic(endpoint):
    return endpoint.pending.traffic if endpoint.pending is not None else None


def test_a_canary_gets_its_share_and_then_all(double):
    async def scenario():
        endpoint = await serving(double)
        update(double, blue_green("CANARY", CanarySize=size(1)))
        await until(lambda: traffic(endpoint) == 0.25 and endpoint.pending.variants[0].doing.status == "Baking")
        assert double.fleets.fleets == {"shared.1.AllTraffic": 4, "shared.2.AllTraffic": 4}, "the whole new fleet is there"
        double.chances += [0.24, 0.26]
        assert [await body(double.sagemaker, endpoint) for _ in range(2)] == [NEXT, OLD]
        assert await body(double.sagemaker, endpoint, "AllTraffic") == NEXT
        (waiting,) = endpoint.pending.variants
        assert (waiting.doing.status, waiting.current_count) == ("Baking", 4)
        double.clock.jump(600)
        await until(lambda: traffic(endpoint) == 1.0)
        assert double.fleets.fleets["shared.1.AllTraffic"] == 4, "the old fleet stays while the new one bakes"
        double.clock.jump(600)
        await endpoint.settled.wait()
        assert double.fleets.fleets == {"shared.2.AllTraffic": 4}
        assert (endpoint.status, endpoint.config_name, endpoint.pending) == ("InService", "next", None)

    run(scenario())


def test_linear_shifts_step_by_step_and_waits_before_the_old_fleet_goes(double):
    async def scenario():
        endpoint = await serving(double)
        update(double, blue_green("LINEAR", termination=300, LinearStepSize=size(50, "CAPACITY_PERCENT")))
        for share in (0.5, 1.0):
            await until(lambda share=share: traffic(endpoint) == share and endpoint.pending.variants[0].doing.status == "Baking")
            baking = endpoint.pending.variants[0].doing
            double.clock.jump(600)
        await until(lambda: endpoint.pending.variants[0].doing is not baking)
        assert double.fleets.fleets["shared.1.AllTraffic"] == 4
        double.clock.jump(300)
        await endpoint.settled.wait()
        assert double.fleets.fleets == {"shared.2.AllTraffic": 4}

    run(scenario())


def test_rolling_replaces_a_batch_at_a_time(double):
    async def scenario():
        endpoint = await serving(double)
        update(double, rolling(2))
        await until(lambda: traffic(endpoint) == pytest.approx(1 / 3))
        assert double.fleets.fleets == {"shared.1.AllTraffic": 4, "shared.2.AllTraffic": 2}
        double.clock.jump(600)
        await until(lambda: traffic(endpoint) == 1.0)
        assert double.fleets.fleets == {"shared.1.AllTraffic": 2, "shared.2.AllTraffic": 4}
        assert (endpoint.variants[0].current_count, endpoint.pending.variants[0].current_count) == (2, 4)
        double.clock.jump(600)
        await endpoint.settled.wait()
        assert double.fleets.fleets == {"shared.2.AllTraffic": 4}
        assert endpoint.variants[0].current_count == endpoint.variants[0].desired_count == 4

    run(scenario())


@pytest.mark.parametrize("policy", [blue_green("CANARY", CanarySize=size(1)), rolling(1)], ids=["canary", "rolling"])
def test_an_alarm_rolls_back_and_says_so(double, policy):
    async def scenario():
        endpoint = await serving(double)
        double.alarms.update(errors="OK", latency="INSUFFICIENT_DATA")
        update(double, watched(policy, "errors", "latency"))
        await until(lambda: traffic(endpoint) and endpoint.pending.variants[0].doing.status == "Baking")
        if "RollingUpdatePolicy" in policy:
            double.clock.jump(600)
            await until(lambda: double.fleets.fleets["shared.1.AllTraffic"] == 3)
        double.alarms["errors"] = "ALARM"
        await endpoint.settled.wait()
        assert (endpoint.status, endpoint.config_name, endpoint.pending) == ("InService", "first", None)
        assert "One or more configured alarms have tripped: [errors]" in endpoint.failure_reason
        assert double.fleets.fleets == {"shared.1.AllTraffic": 4}, "the instance count is kept"
        assert await body(double.sagemaker, endpoint) == OLD
        assert double.statuses()[-3:] == ["UPDATING", "ROLLING_BACK", "IN_SERVICE"]

    run(scenario())


@pytest.mark.parametrize(
    ("states", "text"), [({"errors": "ALARM"}, "have tripped: [errors]"), ({}, "do not exist: [errors]")], ids=["in alarm", "missing"]
)
def test_an_alarm_that_rings_or_is_missing_before_the_update_ends_it_before_anything_starts(double, states, text):
    async def scenario():
        endpoint = await serving(double)
        double.alarms.update(states)
        update(double, watched({}, "errors"))
        await endpoint.settled.wait()
        assert ("start", "shared.2.AllTraffic") not in double.fleets.history
        assert (endpoint.status, text in endpoint.failure_reason) == ("InService", True)

    run(scenario())


def test_an_alarm_after_the_update_changes_nothing(double):
    async def scenario():
        endpoint = await serving(double)
        double.alarms["errors"] = "OK"
        update(double, watched(blue_green(wait=0), "errors"))
        await endpoint.settled.wait()
        double.alarms["errors"] = "ALARM"
        double.clock.jump(3600)
        await asyncio.sleep(0)
        assert (endpoint.status, endpoint.config_name, endpoint.failure_reason) == ("InService", "next", None)

    run(scenario())


def test_an_update_that_takes_too_long_rolls_back(double):
    async def scenario():
        endpoint = await serving(double)
        policy = blue_green(wait=60)
        policy["BlueGreenUpdatePolicy"]["MaximumExecutionTimeoutInSeconds"] = 600
        double.fleets.gate.clear()
        update(double, policy)
        await until(lambda: ("start", "shared.2.AllTraffic") in double.fleets.history)
        double.clock.jump(700)
        double.fleets.gate.set()
        await endpoint.settled.wait()
        assert "took longer than MaximumExecutionTimeoutInSeconds, 600" in endpoint.failure_reason
        assert double.fleets.fleets == {"shared.1.AllTraffic": 4}

    run(scenario())


def test_a_new_fleet_that_fails_rolls_back_and_keeps_the_scaled_count(double):
    async def scenario():
        endpoint = await serving(double, count=2)
        change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 4}
        double.sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": [change]})
        await endpoint.settled.wait()
        double.fleets.failing = "shared.2.AllTraffic"
        update(double, RetainAllVariantProperties=True)
        await endpoint.settled.wait()
        assert (endpoint.status, endpoint.failure_reason) == ("InService", "shared.2.AllTraffic failed")
        assert double.fleets.fleets == {"shared.1.AllTraffic": 4}
        assert double.statuses()[-3:] == ["UPDATING", "ROLLING_BACK", "IN_SERVICE"]
        double.fleets.failing = None
        update(double, RetainAllVariantProperties=True)
        await endpoint.settled.wait()
        assert (endpoint.failure_reason, double.fleets.fleets) == (None, {"shared.3.AllTraffic": 4})

    run(scenario())


def test_a_rolling_update_whose_rollback_fails_serves_with_both_and_can_be_mended(double):
    async def scenario():
        endpoint = await serving(double)
        double.alarms["errors"] = "OK"
        update(double, watched(rolling(1), "errors"))
        await until(lambda: traffic(endpoint))
        double.clock.jump(600)
        await until(lambda: double.fleets.fleets["shared.1.AllTraffic"] == 3)
        double.fleets.fail_with = "no instances left"
        double.alarms["errors"] = "ALARM"
        await endpoint.settled.wait()
        assert endpoint.status == "UpdateRollbackFailed"
        assert double.statuses()[-1] == "UPDATE_ROLLBACK_FAILED"
        assert "have tripped" in endpoint.failure_reason
        assert "The rollback failed, too: no instances left" in endpoint.failure_reason
        assert set(double.fleets.fleets) == {"shared.1.AllTraffic", "shared.2.AllTraffic"}
        assert set(endpoint.all_fleets) == set(double.fleets.fleets)
        double.chances += [0.0, 0.99]
        assert {await body(double.sagemaker, endpoint) for _ in range(2)} == {OLD, NEXT}
        double.fleets.fail_with = None
        update(double)
        await endpoint.settled.wait()
        assert (endpoint.status, double.fleets.fleets) == ("InService", {"shared.3.AllTraffic": 4})

    run(scenario())


def test_an_endpoint_whose_rollback_failed_can_be_deleted_with_all_its_fleets(double):
    async def scenario():
        endpoint = await serving(double)
        double.alarms["errors"] = "OK"
        update(double, watched(rolling(1), "errors"))
        await until(lambda: traffic(endpoint))
        double.clock.jump(600)
        await until(lambda: double.fleets.fleets["shared.1.AllTraffic"] == 3)
        double.fleets.fail_with, double.alarms["errors"] = "none left", "ALARM"
        await endpoint.settled.wait()
        double.sagemaker.delete_endpoint("shared")
        await endpoint.settled.wait()
        assert (double.fleets.fleets, double.sagemaker.endpoints, double.sagemaker.hosting.owners) == ({}, {}, {})

    run(scenario())


def test_the_last_deployment_config_can_be_used_again(double):
    async def scenario():
        endpoint = await serving(double)
        policy = blue_green(wait=0)
        update(double, policy)
        await endpoint.settled.wait()
        assert endpoint.deployment_config == policy
        double.sagemaker.create_endpoint_config(config("first-again", 4))
        with pytest.raises(AwsError, match="cannot be given together with RetainDeploymentConfig"):
            update(double, policy, RetainDeploymentConfig=True)
        double.sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "first-again", "RetainDeploymentConfig": True})
        await endpoint.settled.wait()
        assert endpoint.deployment_config == policy

    run(scenario())


def test_a_deployment_config_of_the_creation_can_be_retained_and_has_to_be_right(double):
    async def scenario():
        endpoint = await serving(double)
        given = {"EndpointName": "other", "EndpointConfigName": "next", "DeploymentConfig": blue_green("CANARY")}
        with pytest.raises(AwsError, match="needs CanarySize"):
            double.sagemaker.create_endpoint(given)
        policy = rolling(2, wait=0)
        double.sagemaker.delete_endpoint("shared")
        await endpoint.settled.wait()
        endpoint = double.sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first", "DeploymentConfig": policy})
        await endpoint.settled.wait()
        update(double, RetainDeploymentConfig=True)
        await endpoint.settled.wait()
        assert (endpoint.config_name, endpoint.deployment_config) == ("next", policy)

    run(scenario())


def test_an_update_counts_the_instances_of_both_fleets_and_a_rolling_one_only_a_batch(double):
    async def scenario():
        endpoint = await serving(double, count=6)
        with pytest.raises(AwsError, match="current utilization of 6 Instances and a request delta of 6 Instances") as caught:
            update(double)
        assert (caught.value.code, endpoint.status) == ("ResourceLimitExceeded", "InService")
        update(double, rolling(3, wait=0))
        await endpoint.settled.wait()
        assert (endpoint.config_name, double.fleets.fleets) == ("next", {"shared.2.AllTraffic": 6})

    run(scenario())


def test_a_scaling_that_fails_rolls_back_with_its_own_status(double):
    async def scenario():
        endpoint = await serving(double, count=2)
        double.fleets.fail_with = "Unable to provision requested ML compute capacity"
        change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 3, "DesiredWeight": 2.0}
        double.sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": [change]})
        await endpoint.settled.wait()
        assert double.statuses()[-3:] == ["UPDATING", "ROLLING_BACK", "IN_SERVICE"]
        (variant,) = endpoint.variants
        assert (variant.desired_count, variant.current_count, variant.desired_weight, variant.doing) == (2, 2, 1.0, None)
        assert endpoint.failure_reason == "Unable to provision requested ML compute capacity"

    run(scenario())


def test_the_current_count_grows_with_the_instances_that_come_up(double):
    async def scenario():
        endpoint = await serving(double, count=2)
        (variant,) = endpoint.variants
        double.fleets.gate.clear()
        change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 4}
        double.sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": [change]})
        await until(lambda: variant.doing is not None)
        await asyncio.sleep(0)
        up = Step(0.0, InstanceUp("i", 1, 1), ())
        double.sagemaker("another", up)
        assert (variant.current_count, variant.desired_count) == (2, 4)
        double.sagemaker("shared.1.AllTraffic", up)
        assert (variant.current_count, variant.desired_count) == (3, 4)
        double.fleets.fail_with = "no more instances"
        double.fleets.gate.set()
        await endpoint.settled.wait()
        assert (variant.current_count, variant.desired_count, endpoint.failure_reason) == (2, 2, "no more instances")
        double.sagemaker("shared.1.AllTraffic", up)
        assert variant.current_count == 2, "an instance that comes back is no new one"

    run(scenario())


def test_every_phase_of_an_update_is_told(double):
    async def scenario():
        endpoint = await serving(double)
        double.told.clear()
        double.alarms["errors"] = "OK"
        update(double, watched(rolling(2), "errors"))
        for share in (pytest.approx(1 / 3), 1.0):
            await until(lambda share=share: traffic(endpoint) == share and endpoint.pending.variants[0].doing.status == "Baking")
            double.clock.jump(600)
        await endpoint.settled.wait()
        phases = []
        for kind, detail in double.told:
            if kind == "SageMaker Endpoint Deployment State Change":
                variants = (*detail.get("PendingDeploymentSummary", {}).get("ProductionVariants", []), *detail["ProductionVariants"])
                phases.append({one["VariantStatus"][0]["Status"] for one in variants if "VariantStatus" in one})
        once = [{"Creating"}, {"ActivatingTraffic"}, {"Baking"}]
        assert phases == [*once, {"Baking", "Deleting"}, *once]

    run(scenario())


def test_statuses_last_as_long_as_the_settings_say():
    double = Double(scale=1000.0, settings=ControlPlaneSettings(creating_seconds=300, updating_seconds=200, deleting_seconds=100))

    async def scenario():
        moments = {}
        endpoint = created(double.sagemaker)
        for name, begin in (
            ("Creating", lambda: None),
            ("Updating", lambda: (double.sagemaker.create_endpoint_config(config("next")), update(double))),
            ("Deleting", lambda: double.sagemaker.delete_endpoint("shared")),
        ):
            began = double.clock.time()
            begin()
            assert endpoint.status == name
            await endpoint.settled.wait()
            moments[name] = double.clock.time() - began
        assert moments["Creating"] >= 300
        assert moments["Updating"] >= 200
        assert moments["Deleting"] >= 100

    run(scenario())


@pytest.mark.parametrize("values", [{"creating_seconds": -1}, {"alarm_poll_seconds": 0}])
def test_durations_that_are_none_are_refused(values):
    with pytest.raises(ValueError, match="use a number of seconds that is not negative"):
        ControlPlaneSettings(**values)
