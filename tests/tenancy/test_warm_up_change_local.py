"""What the local cloud's SageMaker describes while an endpoint changes, step by step, and the changes that are found in it."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from mme_local.sagemaker.responses import ControlPlane
from mme_local.wire import AwsError
from mme_tenancy.aws.endpoints import SageMakerFleets
from mme_tenancy.warm_up.change import compare
from tests.local.sagemaker_double import Double, config, run
from tests.local.test_deployments import blue_green, rolling, serving, size, traffic, until, update, watched


class Api:
    """DescribeEndpoint of a client, without HTTP."""

    def __init__(self, double):
        self._control_plane = ControlPlane(double.sagemaker)

    def describe_endpoint(self, **given):
        try:
            return self._control_plane._describe_endpoint(given)
        except AwsError as error:
            raise ClientError({"Error": {"Code": error.code, "Message": error.message}}, "DescribeEndpoint") from error


class Looker:
    """Looks at the endpoint, on some of the events, and remembers what it found and which event that was."""

    def __init__(self, double, on=lambda _number: True):
        self._fleets, self._clock, self._on = SageMakerFleets(Api(double)), double.clock, on
        self.seen = self.under_way = None
        self.found, self.ended, self.events = [], [], 0

    def told(self, detail):
        self.events += 1
        if self._on(self.events):
            self.look(detail)

    def look(self, detail=None):
        look = compare(self.seen, self._fleets.state("shared"), self._clock.time(), self.under_way)
        if look.change is not None and (self.under_way is None or look.change.number != self.under_way.number):
            self.found.append((look.change, stages(detail)))
        if look.reason:
            self.ended.append(look.reason)
        self.seen, self.under_way = look.seen, look.change


def stages(detail):
    pending = (detail or {}).get("PendingDeploymentSummary", {}).get("ProductionVariants", ())
    return [status["Status"] for variant in pending for status in variant.get("VariantStatus", ())]


LOOKS = {
    "every event": lambda _number: True,
    "every second event": lambda number: number % 2 == 0,
    "every third event": lambda number: number % 3 == 0,
    "no event": lambda _number: False,
}


@pytest.fixture(params=LOOKS.values(), ids=LOOKS)
def watched_double(request):
    """A control plane, and somebody who looks at its endpoint on those events, and whenever a test says so."""
    double = Double()
    looker = Looker(double, request.param)
    tell = double.sagemaker.hosting._around.publish
    around = double.sagemaker.hosting._around

    def publish(kind, detail, resources):
        tell(kind, detail, resources)
        looker.told(detail)

    object.__setattr__(around, "publish", publish)
    return double, looker


def found(looker):
    return [(change.kind.value, change.instances_before, change.instances_after, change.empty_instances) for change, _ in looker.found]


async def begun(double, looker, count=4):
    """The endpoint serves, and was looked at."""
    endpoint = await serving(double, count)
    looker.look()
    assert looker.found == []
    return endpoint


async def scaled(double, endpoint, count):
    change = {"VariantName": "AllTraffic", "DesiredInstanceCount": count}
    double.sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": [change]})
    await endpoint.settled.wait()


def test_a_scale_out_is_one_change_and_a_scale_in_none(watched_double):
    double, looker = watched_double

    async def scenario():
        endpoint = await begun(double, looker, 2)
        await scaled(double, endpoint, 5)
        looker.look()
        looker.look()
        assert found(looker) == [("scale-out", 2, 5, 3)]
        await scaled(double, endpoint, 3)
        looker.look()
        await scaled(double, endpoint, 2)
        looker.look()
        assert len(looker.found) == 1
        assert looker.under_way is None
        assert looker.ended == ["the instances that were added are gone again"]

    run(scenario())


def test_instances_that_are_not_to_be_had_are_no_change(watched_double):
    double, looker = watched_double

    async def scenario():
        endpoint = await begun(double, looker, 2)
        double.fleets.fail_with = "no capacity"
        await scaled(double, endpoint, 5)
        looker.look()
        assert (looker.found, double.statuses()[-2:]) == ([], ["ROLLING_BACK", "IN_SERVICE"])

    run(scenario())


POLICIES = {
    "no policy": (None, 0),
    "all at once": (blue_green(wait=0), 0),
    "all at once, baking": (blue_green(wait=600, termination=300), 2),
    "canary": (blue_green("CANARY", CanarySize=size(1), termination=300), 3),
    "linear": (blue_green("LINEAR", LinearStepSize=size(50, "CAPACITY_PERCENT")), 2),
}


@pytest.mark.parametrize(("policy", "waits"), POLICIES.values(), ids=POLICIES)
def test_an_update_is_one_change_of_the_whole_fleet(watched_double, policy, waits):
    double, looker = watched_double

    async def scenario():
        endpoint = await begun(double, looker)
        update(double, policy)
        for _ in range(waits):
            await until(lambda: endpoint.settled.is_set() or (endpoint.pending and endpoint.pending.variants[0].doing.status == "Baking"))
            baking = endpoint.pending.variants[0].doing
            double.clock.jump(600)
            await until(lambda baking=baking: endpoint.settled.is_set() or endpoint.pending.variants[0].doing is not baking)
        await endpoint.settled.wait()
        looker.look()
        looker.look()
        assert found(looker) == [("update", 4, 4, 4)]
        ((change, _),) = looker.found
        assert (change.config_before, change.config_after) == ("first", "next")

    run(scenario())


@pytest.mark.parametrize("policy", [None, blue_green("CANARY", CanarySize=size(1))], ids=["all at once", "canary"])
def test_an_update_is_found_at_the_moment_when_its_fleet_gets_all_requests(policy):
    double = Double()
    looker, shares = Looker(double), []
    tell, around = double.sagemaker.hosting._around.publish, double.sagemaker.hosting._around

    def publish(kind, detail, resources):
        tell(kind, detail, resources)
        before = len(looker.found)
        looker.told(detail)
        if len(looker.found) > before:
            shares.append((stages(detail), traffic(double.sagemaker.endpoint("shared"))))

    object.__setattr__(around, "publish", publish)

    async def scenario():
        endpoint = await begun(double, looker)
        update(double, policy)
        if policy is not None:
            await until(lambda: traffic(endpoint) == 0.25 and endpoint.pending.variants[0].doing.status == "Baking")
            assert looker.found == []
            double.clock.jump(600)
            await until(lambda: traffic(endpoint) == 1.0)
            assert len(looker.found) == 1
            double.clock.jump(600)
        await endpoint.settled.wait()
        # It is told just before the share is changed, without anything in between.
        assert shares == [(["ActivatingTraffic"], 0.0 if policy is None else 0.25)]

    run(scenario())


def test_the_batches_of_a_rolling_update_add_up_to_the_whole_fleet(watched_double):
    double, looker = watched_double

    async def scenario():
        endpoint = await begun(double, looker)
        update(double, rolling(2))
        for share in (1 / 3, 1.0):
            await until(lambda share=share: traffic(endpoint) == pytest.approx(share))
            await until(lambda: endpoint.pending.variants[0].doing.status == "Baking")
            looker.look()
            double.clock.jump(600)
        await endpoint.settled.wait()
        looker.look()
        looker.look()
        assert {change.kind.value for change, _ in looker.found} == {"update"}
        assert (looker.under_way.instances_after, looker.under_way.empty_instances, len(looker.found)) == (4, 4, 1)

    run(scenario())


ROLLBACKS = {
    "before the shift": (blue_green("CANARY", CanarySize=size(1)), 0),
    "after the shift": (blue_green(wait=600), 0),
    "after the last shift": (blue_green("CANARY", CanarySize=size(1)), 1),
}


@pytest.mark.parametrize(("policy", "waits"), ROLLBACKS.values(), ids=ROLLBACKS)
def test_an_update_that_is_rolled_back_leaves_nothing_to_warm(watched_double, policy, waits):
    double, looker = watched_double

    async def scenario():
        endpoint = await begun(double, looker)
        double.alarms["errors"] = "OK"
        update(double, watched(policy, "errors"))
        await until(lambda: traffic(endpoint) and endpoint.pending.variants[0].doing.status == "Baking")
        for _ in range(waits):
            looker.look()  # whoever sees the last shift only takes it for the first
            double.clock.jump(600)
            await until(lambda: traffic(endpoint) == 1.0)
        looker.look()
        shifted = traffic(endpoint) == 1.0
        assert found(looker) == [("update", 4, 4, 4)] * shifted
        double.alarms["errors"] = "ALARM"
        await endpoint.settled.wait()
        looker.look()
        looker.look()
        assert (looker.under_way, len(looker.found)) == (None, shifted)
        assert looker.ended == ["the update is rolled back"] * shifted

    run(scenario())


def test_a_fleet_that_does_not_start_is_no_change(watched_double):
    double, looker = watched_double

    async def scenario():
        endpoint = await begun(double, looker)
        double.fleets.failing = "shared.2.AllTraffic"
        update(double)
        await endpoint.settled.wait()
        looker.look()
        assert looker.found == []

    run(scenario())


def test_an_endpoint_that_is_deleted_and_created_again_is_a_new_fleet(watched_double):
    double, looker = watched_double

    async def scenario():
        endpoint = await begun(double, looker)
        await scaled(double, endpoint, 5)
        looker.look()
        double.sagemaker.delete_endpoint("shared")
        await endpoint.settled.wait()
        looker.look()
        assert looker.under_way is None
        assert looker.ended[0] in {"the endpoint is Deleting", "the endpoint was deleted"}
        double.sagemaker.create_endpoint_config(config("anew", 2))
        again = double.sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "anew"})
        await again.settled.wait()
        looker.look()
        looker.look()
        assert found(looker) == [("scale-out", 4, 5, 1), ("update", 5, 2, 2)]

    run(scenario())
