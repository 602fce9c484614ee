"""The status document and the live stream of a real cloud."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager

import httpx
import psutil
import pytest

from mme_local import FailInvoke, SlowLoad


@contextmanager
def stream(shared, after=None, **options):
    """A reader of the stream: an iterator over its messages."""
    query = "" if after is None else f"?after={after}"
    with httpx.stream("GET", f"{shared.cloud.endpoint_url}/_mme/stream{query}", timeout=30, **options) as answer:
        yield answer, messages(answer)


def messages(answer):
    number, deadline = None, time.monotonic() + 30
    for line in answer.iter_lines():
        assert time.monotonic() < deadline, "what was waited for did not come"
        if line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("data: "):
            yield number, json.loads(line[6:])


def until(read, wanted):
    """The items of the stream up to one that ``wanted`` takes."""
    items = []
    for _, message in read:
        items += message["items"]
        if any(wanted(item) for item in message["items"]):
            return items
    raise AssertionError(f"the stream ended after {items}")


class TestStatus:
    def test_it_tells_models_memory_disk_and_tenants(self, shared):
        before = shared.status()
        for model in ("acme/a", "acme/b", "acme/b"):
            shared.invoke(model)
        status = shared.status()
        (instance,) = status["instances"]
        assert (status["status"], status["config"], status["failure_reason"]) == ("InService", "c1", None)
        assert (status["requests"] - before["requests"], status["cold_loads"] - before["cold_loads"]) == (3, 2)
        assert status["hit_ratio"] == pytest.approx(status["hits"] / status["requests"], abs=1e-4)
        assert {model["target_model"] for model in instance["models"]} == {"acme/a.tar.gz", "acme/b.tar.gz"}
        assert all(model["bytes"] > 100_000_000 and model["in_flight"] == 0 for model in instance["models"])
        assert instance["memory_bytes"] == sum(model["bytes"] for model in instance["models"]) <= instance["memory_budget_bytes"]
        assert (instance["model_count"], instance["models_on_disk"], instance["current"]) == (2, 2, True)
        assert 0 < instance["disk_bytes"] < instance["disk_budget_bytes"]
        (tenant,) = [entry for entry in status["tenants"] if entry["tenant"] == "acme"]
        assert (tenant["requests"], tenant["hits"], tenant["errors"]) == (3, 1, 0)
        (variant,) = status["variants"]
        assert (variant["name"], variant["instance_type"], variant["current_count"]) == ("AllTraffic", "ml.m5.xlarge", 1)

    def test_without_models_it_only_counts_them(self, shared):
        shared.invoke("acme/a")
        document = httpx.get(f"{shared.cloud.endpoint_url}/_mme/status?models=0").json()
        (instance,) = document["endpoints"][0]["instances"]
        assert instance["models"] == []
        assert instance["model_count"] >= 1
        assert "loads_by_model" not in document["endpoints"][0]

    def test_a_load_under_way_shows_with_its_waiting_request(self, shared):
        shared.invoke("acme/a")
        shared.invoke("acme/b")
        fault = shared.cloud.faults.put(SlowLoad(model="globex/*", seconds=1))
        caller = threading.Thread(target=shared.invoke, args=("globex/c",))
        caller.start()

        def loading():
            return [model for model in shared.status()["instances"][0]["moving"] if model["state"] == "loading"]

        (moving,) = shared.bench.wait_for(loading)
        caller.join()
        shared.cloud.faults.remove(fault.id)
        assert (moving["target_model"], moving["waiting"]) == ("globex/c.tar.gz", 1)
        assert moving["bytes"] > 100_000_000

    def test_faults_alarms_and_targets_are_in_it(self, shared):
        cloudwatch, scaling = shared.bench.client("cloudwatch"), shared.bench.client("application-autoscaling")
        scaling.register_scalable_target(
            ServiceNamespace="sagemaker",
            ResourceId="endpoint/shared/variant/AllTraffic",
            ScalableDimension="sagemaker:variant:DesiredInstanceCount",
            MinCapacity=1,
            MaxCapacity=3,
        )
        fault = shared.cloud.faults.put(FailInvoke(error="InternalFailure", model="none"))
        document = shared.cloud.status()
        (target,) = document["scaling"]["targets"]
        assert (target["resource"], target["min"], target["max"]) == ("endpoint/shared/variant/AllTraffic", 1, 3)
        assert document["faults"][-1]["id"] == fault.id
        assert cloudwatch.describe_alarms()["MetricAlarms"] == document["alarms"] == []
        shared.cloud.faults.clear()
        scaling.deregister_scalable_target(
            ServiceNamespace="sagemaker",
            ResourceId="endpoint/shared/variant/AllTraffic",
            ScalableDimension="sagemaker:variant:DesiredInstanceCount",
        )

    def test_the_counters_survive_an_update(self, shared):
        shared.invoke("acme/a")
        before = shared.status()
        shared.configure("c2")
        with stream(shared) as (_, read):
            shared.sagemaker.update_endpoint(EndpointName="shared", EndpointConfigName="c2")
            shared.settle()
            items = until(read, lambda item: item["type"] == "instance-gone")
        after = shared.status()
        for counter in ("requests", "hits", "cold_loads", "evictions", "loads_by_model", "tenants"):
            assert after[counter] == before[counter]
        assert (after["config"], len(after["instances"])) == ("c2", 1)
        assert after["instances"][0]["fleet"] != before["instances"][0]["fleet"]
        assert "instance-lost" not in [item["type"] for item in items], "the old fleet goes in order"
        shared.invoke("acme/a")
        assert shared.status()["requests"] == before["requests"] + 1


class TestStream:
    def test_it_tells_loads_evictions_and_seconds_as_they_come(self, shared):
        with stream(shared) as (answer, read):
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            for model in ("acme/a", "acme/b", "globex/c", "acme/a"):
                shared.invoke(model)
            seen, requests = set(), 0
            while not ({"load", "loaded", "evicted"} <= seen and requests >= 4):
                message = next(read)[1]
                assert message["missed"] == 0
                seen |= {item["type"] for item in message["items"]}
                requests += sum(second["requests"] for second in message["seconds"])

    def test_it_tells_events_and_statuses(self, shared):
        with stream(shared) as (_, read):
            change = {"VariantName": "AllTraffic", "DesiredWeight": 2}
            shared.sagemaker.update_endpoint_weights_and_capacities(EndpointName="shared", DesiredWeightsAndCapacities=[change])
            items = until(read, lambda item: item.get("status") == "IN_SERVICE")
        event = next(item for item in items if item["type"] == "event")
        assert (event["endpoint"], event["status"], event["source"]) == ("shared", "UPDATING", "aws.sagemaker")
        shared.settle()

    def test_it_tells_errors_and_lost_instances(self, shared):
        with stream(shared) as (_, read):
            with pytest.raises(shared.runtime.exceptions.ClientError):
                shared.invoke("nobody/nothing")
            items = until(read, lambda item: item["type"] == "error")
            assert items[-1]["code"] == "ValidationError"
            (instance,) = shared.status()["instances"]
            psutil.Process(instance["pid"]).kill()
            until(read, lambda item: item["type"] == "instance-lost")
            until(read, lambda item: item["type"] == "instance-up")

    def test_a_reader_that_comes_back_goes_on_where_it_was(self, shared):
        with stream(shared) as (_, read):
            shared.invoke("acme/a")
            shared.invoke("acme/b")
            shared.invoke("globex/c")
            until(read, lambda item: item["type"] == "loaded")
            number = next(read)[0]
        shared.invoke("acme/a")
        shared.invoke("acme/b")
        with stream(shared, headers={"last-event-id": str(number)}) as (_, read):
            assert next(read)[1]["items"]
        with stream(shared, after="1") as (_, read):
            first = next(read)[1]
            assert first["items"][0]["type"]
            assert first["missed"] == 0

    def test_a_reader_that_does_not_read_costs_a_bounded_amount_and_holds_nobody_up(self, shared):
        gateway = psutil.Process(shared.cloud._process.pid)
        port = int(shared.cloud.endpoint_url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.sendall(b"GET /_mme/stream?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            before = gateway.memory_info().rss
            with stream(shared) as (_, read):
                for _ in range(3):
                    for model in ("acme/a", "acme/b", "globex/c"):
                        shared.invoke(model)
                until(read, lambda item: item["type"] == "loaded")
            assert gateway.memory_info().rss - before < 64 * 1024 * 1024

    def test_there_is_a_greatest_number_of_readers(self, shared):
        url = f"{shared.cloud.endpoint_url}/_mme/stream"
        readers = []
        try:
            with httpx.Client(limits=httpx.Limits(max_connections=None), timeout=30) as client:
                for _ in range(40):
                    answer = client.send(client.build_request("GET", url), stream=True)
                    readers.append(answer)
                    if answer.status_code != 200:
                        break
                assert answer.status_code == 503
                for reader in readers:
                    reader.close()
                shared.bench.wait_for(lambda: _status(url) == 200)
        finally:
            for reader in readers:
                reader.close()

    @pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"host": "evil.example"}, {"sec-fetch-site": "cross-site"}])
    def test_web_pages_and_foreign_names_are_refused(self, shared, headers):
        assert httpx.get(f"{shared.cloud.endpoint_url}/_mme/stream", headers=headers).status_code == 403

    def test_a_cloud_stops_at_once_although_somebody_reads(self, shared):
        """The last test of this module: the cloud is gone."""
        with stream(shared) as (_, read):
            shared.cloud._process.terminate()
            list(read)  # ends in order, not by a broken connection
        assert shared.cloud._process.wait(10) == 0


def _status(url):
    with httpx.stream("GET", url) as answer:
        return answer.status_code
