"""``kill -9`` of a model server while invocations run."""

import os
import signal
import threading

from mme_cli.demo.onboard import predict
from tests.e2e.support import only_endpoint, wait_until


def test_no_invocation_fails_when_a_model_server_is_killed_and_the_instance_comes_back(platform, served):
    stop, failures, answered = threading.Event(), [], []

    def invoke_on_and_on(tenant, model, prepared):
        client = platform.tenant_client(tenant)
        while not stop.is_set():
            try:
                predictions, _answer, _seconds = predict(client, tenant, model, prepared.rows[:1])
                answered.append(predictions)
            except Exception as error:
                failures.append(f"{tenant}/{model}: {error}")

    callers = [threading.Thread(target=invoke_on_and_on, args=(*key, served[key][0])) for key in list(served)[:4]]
    for caller in callers:
        caller.start()
    try:
        wait_until(lambda: len(answered) >= 20, what="invocations before the kill")
        busy = max(only_endpoint(platform)["instances"], key=lambda instance: len(instance["models"]))
        os.kill(busy["pid"], signal.SIGKILL)

        def returned():
            (instance,) = [instance for instance in only_endpoint(platform)["instances"] if instance["id"] == busy["id"]]
            return instance["state"] == "up" and instance["restarts"] == busy["restarts"] + 1 and instance

        instance = wait_until(returned, what="the instance's return")
        assert instance["pid"] != busy["pid"]
        before = len(answered)
        wait_until(lambda: len(answered) >= before + 20, what="invocations after the kill")
    finally:
        stop.set()
        for caller in callers:
            caller.join()
    assert not failures
