"""Lists of the control plane: filters, order and pages; and what is described while things change."""

from __future__ import annotations

import json

import botocore.session
import pytest
from botocore.validate import ParamValidator

from mme_local.sagemaker import responses
from mme_local.sagemaker.responses import ControlPlane
from mme_local.wire import AwsError, json_reply
from tests.local.sagemaker_double import Double, run
from tests.local.test_component_life import component, dedicated, dedicated_models, hosting, until

NAMES = ["e-0", "e-1", "e-2", "e-3", "e-4"]


@pytest.fixture
def double(monkeypatch):
    monkeypatch.setattr(responses, "authorize", lambda *_arguments: None)
    return Double()


def api(double):
    plane = ControlPlane(double.sagemaker)
    return lambda operation, **given: plane.serve(None, operation, given)


async def five_endpoints(double):
    """Endpoints made an hour apart; the third one fails, the first one is changed last. Their moments."""
    sagemaker = double.sagemaker
    dedicated_models(double)
    sagemaker.create_endpoint_config(hosting())
    moments = []
    for name in NAMES:
        double.clock.jump(3600)
        moments.append(double.clock.time())
        double.no_capacity = "none" if name == "e-2" else None
        await sagemaker.create_endpoint({"EndpointName": name, "EndpointConfigName": "hosting"}).settled.wait()
    double.no_capacity = None
    double.clock.jump(3600)
    change = [{"VariantName": "AllTraffic", "DesiredInstanceCount": 2}]
    await sagemaker.update_weights_and_capacities({"EndpointName": "e-0", "DesiredWeightsAndCapacities": change}).settled.wait()
    return moments


def names(listed):
    return [item["EndpointName"] for item in listed["Endpoints"]]


def test_endpoints_are_filtered_by_name_status_and_moments(double):
    async def scenario():
        moments = await five_endpoints(double)
        call = api(double)
        cases = [
            ({}, NAMES[::-1]),
            ({"NameContains": "E-3"}, ["e-3"]),
            ({"StatusEquals": "Failed"}, ["e-2"]),
            ({"CreationTimeAfter": moments[3]}, ["e-4", "e-3"]),
            ({"CreationTimeBefore": moments[1]}, ["e-0"]),
            ({"CreationTimeAfter": moments[1], "CreationTimeBefore": moments[3]}, ["e-2", "e-1"]),
            ({"LastModifiedTimeAfter": moments[4] + 1800}, ["e-0"]),
            ({"LastModifiedTimeBefore": moments[1]}, []),
            ({"SortBy": "Name", "SortOrder": "Ascending"}, NAMES),
            ({"SortBy": "Status", "SortOrder": "Ascending"}, ["e-2", "e-0", "e-1", "e-3", "e-4"]),
            ({"CreationTimeAfter": moments[4] + 9 * 3600}, []),
        ]
        for given, expected in cases:
            assert names(call("ListEndpoints", **given)) == expected, given

    run(scenario())


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_pages_hold_every_endpoint_once(double, size):
    async def scenario():
        await five_endpoints(double)
        call, found, token = api(double), [], {}
        while True:
            page = call("ListEndpoints", MaxResults=size, SortBy="Name", SortOrder="Ascending", **token)
            assert len(names(page)) <= size
            found += names(page)
            if "NextToken" not in page:
                return found
            token = {"NextToken": page["NextToken"]}

    assert run(scenario()) == NAMES


def test_a_page_has_ten_without_being_asked_and_a_foreign_token_is_refused(double):
    for number in range(12):
        double.sagemaker.create_endpoint_config(hosting(f"c-{number}"))
    call = api(double)
    assert len(call("ListEndpointConfigs")["EndpointConfigs"]) == 10
    with pytest.raises(AwsError, match="pagination token is not valid"):
        call("ListEndpointConfigs", NextToken="from-elsewhere")


def test_components_are_filtered_by_where_they_are_and_how(double):
    async def scenario():
        await dedicated(double)
        for name, memory in (("small", 256), ("large", 99999)):
            await double.sagemaker.components.create(component(name, memory=memory), {}).settled.wait()
        call = api(double)

        def found(**given):
            return [item["InferenceComponentName"] for item in call("ListInferenceComponents", **given)["InferenceComponents"]]

        assert found() == ["large", "small"]
        assert found(StatusEquals="Failed") == ["large"]
        assert found(StatusEquals="InService", EndpointNameEquals="dedicated", VariantNameEquals="AllTraffic") == ["small"]
        assert found(EndpointNameEquals="other") == found(VariantNameEquals="Other") == []

    run(scenario())


def test_what_is_described_on_the_way_has_the_shape_of_the_service(double):
    """The states that pass too quickly to be seen over HTTP."""
    shape = botocore.session.get_session().get_service_model("sagemaker").operation_model

    def described(operation, **given):
        document = json.loads(json_reply(api(double)(operation, **given))[2])
        report = ParamValidator().validate(document, shape(operation).output_shape)
        assert not report.has_errors(), report.generate_report()
        return document

    async def scenario():
        endpoint = await dedicated(double)
        double.sagemaker.create_endpoint_config(hosting("next"))
        routing = {"Type": "CANARY", "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 50}, "WaitIntervalInSeconds": 600}
        policy = {"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": routing}}
        double.sagemaker.update_endpoint({"EndpointName": "dedicated", "EndpointConfigName": "next", "DeploymentConfig": policy})
        await until(lambda: endpoint.pending is not None and endpoint.pending.traffic)
        found = described("DescribeEndpoint", EndpointName="dedicated")
        (pending,) = found["PendingDeploymentSummary"]["ProductionVariants"]
        assert (found["EndpointStatus"], pending["VariantStatus"][0]["Status"]) == ("Updating", "Baking")
        double.clock.jump(600)
        await until(lambda: endpoint.pending.traffic == 1.0)
        double.clock.jump(600)
        await endpoint.settled.wait()
        double.fleets.gate.clear()
        one = double.sagemaker.components.create(component(), {})
        assert described("DescribeInferenceComponent", InferenceComponentName="c")["InferenceComponentStatus"] == "Creating"
        double.fleets.gate.set()
        await one.settled.wait()
        double.sagemaker.components.delete("c")
        assert described("DescribeInferenceComponent", InferenceComponentName="c")["InferenceComponentStatus"] == "Deleting"
        await one.settled.wait()
        double.sagemaker.delete_endpoint("dedicated")
        assert described("DescribeEndpoint", EndpointName="dedicated")["EndpointStatus"] == "Deleting"

    run(scenario())
