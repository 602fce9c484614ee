"""A model that takes longer to load than API Gateway waits: its callers are told so in time, while the one load goes on."""

import time

import pytest

from mme_facts.limits import API_GATEWAY_TIMEOUT_SECONDS
from mme_local import FaultsClient, KillInstance, SlowLoad
from tests.e2e.support import onboard_model, only_endpoint, problem, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

LOAD_SECONDS = 32.0
TENANT, MODEL = "acme", "slow-to-load"


@pytest.fixture(scope="module")
def cold(own_platform, demo_models):
    """The platform with one model, which no instance has in memory and each takes long to load; the model's sample row."""
    folder, prepared = demo_models
    own_platform.admin_client().expect((200, 201), "PUT", f"/tenants/{TENANT}", {})
    artifact, row = (folder / prepared[0].artifact).read_bytes(), prepared[0].rows[0]
    onboard_model(own_platform.tenant_client(TENANT), TENANT, MODEL, artifact, row)
    faults = FaultsClient(lambda: own_platform.state.endpoint_url)
    before = {instance["id"]: instance["restarts"] for instance in only_endpoint(own_platform)["instances"]}
    faults.put(KillInstance(endpoint="*"))

    def back():
        instances = only_endpoint(own_platform)["instances"]
        return all(each["state"] == "up" and each["restarts"] > before[each["id"]] for each in instances)

    wait_until(back, what="the instances with empty memories")
    faults.put(SlowLoad(model=f"{TENANT}/*", seconds=LOAD_SECONDS))
    yield own_platform, row
    faults.clear()


def test_callers_hear_in_time_that_the_model_is_being_loaded_and_then_it_answers_after_one_load(cold):
    platform, row = cold
    client, path = platform.tenant_client(TENANT), f"/tenants/{TENANT}/models/{MODEL}/invocations"
    loads = platform.loads()

    def call(**headers):
        started = time.monotonic()
        answer = client.call("POST", path, row.encode(), {"content-type": "text/csv", **headers})
        return answer, time.monotonic() - started

    hurried, seconds = call(**{"x-request-timeout": "2"})
    problem(hurried, 503, "model-loading")
    assert int(hurried.headers["retry-after"]) >= 1
    assert 1.0 < seconds < 4.0
    patient, seconds = call()
    problem(patient, 503, "model-loading")
    assert int(patient.headers["retry-after"]) >= 1
    assert 4.0 < seconds < API_GATEWAY_TIMEOUT_SECONDS
    assert wait_until(lambda: call()[0].status == 200, what="an answer of the loaded model")
    assert platform.loads() == loads + 1
