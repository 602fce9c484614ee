"""`mme tenants top` against the clients' own counts: ten thousand requests over HTTP, on a clock that runs 30 times as fast."""

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise

import pytest

from mme_cli.cdk import deploy
from mme_cli.cloud import running_cloud
from mme_cli.platform import LocalPlatform, local_status
from mme_cli.top.fleet import Prices
from mme_cli.top.report import report
from mme_cli.top.sources import local_sources
from mme_facts.metrics import HEAT_NAMESPACE
from mme_tenancy.clock import SystemClock
from mme_tenancy.heat import read
from tests.e2e.support import PROJECT, onboard_model, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SCALE = 30.0
REQUESTS, THREADS = 10_000, 6


@pytest.fixture(scope="module")
def quick_platform(tmp_path_factory):
    """The reference app as the real CLI deploys it, with room for all models on each instance."""
    with running_cloud(models_per_instance=8, clock_scale=SCALE) as cloud:
        state = deploy(cloud, PROJECT, print, "--output", str(tmp_path_factory.mktemp("cdk.out")))
        folder = tmp_path_factory.mktemp("where-mme-up-runs")
        state.write(folder / ".mme")
        yield LocalPlatform(state), folder


def now(platform):
    return float(local_status(platform.state)["clock"]["now"])


class Clients:
    """Callers of several tenants that count for themselves what they send and get."""

    def __init__(self, platform, models):
        calls = []
        for weight, ((tenant, model), row) in enumerate(models.items(), 1):
            client = platform.tenant_client(tenant)
            for path, body in (
                *[(f"/tenants/{tenant}/models/{model}/invocations", row.encode())] * 9 * weight,
                (f"/tenants/{tenant}/models/{model}/invocations", b"no,row"),
                (f"/tenants/{tenant}/models/no-such-model/invocations", row.encode()),
            ):
                calls.append((client, tenant, model, path, body))
        self.calls = random.Random(7).choices(calls, k=REQUESTS)
        self.requests, self.routed, self.failed, self.bytes_in, self.bytes_out, self.statuses = (Counter() for _ in range(6))
        self._lock = threading.Lock()

    def send(self):
        threads = [threading.Thread(target=self._send, args=(range(number, REQUESTS, THREADS),)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send(self, numbers):
        for number in numbers:
            client, tenant, model, path, body = self.calls[number]
            answer = client.call("POST", path, body, {"content-type": "text/csv", "accept": "text/csv"})
            with self._lock:
                self.requests[tenant] += 1
                self.statuses[answer.status] += 1
                self.failed[tenant] += answer.status >= 500
                self.bytes_in[tenant] += len(body)
                self.routed[tenant, model] += answer.status != 404
                if answer.status == 200:
                    self.bytes_out[tenant] += len(answer.body)


@pytest.fixture(scope="module")
def traffic(quick_platform, demo_models):
    """Ten thousand requests; who sent what, and when they were sent."""
    platform, _folder = quick_platform
    folder, prepared = demo_models
    admin, rows = platform.admin_client(), {}
    for model in prepared:
        admin.expect((200, 201), "PUT", f"/tenants/{model.tenant}", {})
        client = platform.tenant_client(model.tenant)
        onboard_model(client, model.tenant, model.model, (folder / model.artifact).read_bytes(), model.rows[0])
        rows[model.tenant, model.model] = model.rows[0]
    clients = Clients(platform, rows)
    start = int(now(platform))
    clients.send()
    return clients, start, int(now(platform)) + 1


@pytest.fixture(scope="module")
def collected(quick_platform, traffic):
    """The pool's heat, once the scheduled collector has counted every window of the traffic."""
    platform, _folder = quick_platform
    _clients, start, end = traffic
    sources = local_sources(platform.state)

    def whole():
        found = read(sources.heat, "xgboost", start=start - 3600, end=end + 3600)
        reaches = found.windows and found.windows[0].key.start <= start and found.windows[-1].key.end >= end
        return found if reaches and all(one.key.end == other.key.start for one, other in pairwise(found.windows)) else None

    return wait_until(whole, seconds=90, what="the heat of all windows")


def test_heat_holds_every_request_that_had_a_route_once(traffic, collected):
    clients, _start, _end = traffic
    assert collected.total.requests == sum(clients.routed.values())
    assert {name: counts.requests for name, counts in collected.by_model().items()} == dict(clients.routed)
    assert len(collected.windows) >= 2


def test_top_agrees_with_the_clients_own_counts_exactly(quick_platform, traffic, collected):
    _platform, folder = quick_platform
    clients, start, end = traffic
    assert sum(clients.requests.values()) == REQUESTS
    assert clients.statuses[200] > 0.8 * REQUESTS
    assert clients.statuses[404] > 0
    arguments = ["tenants", "top", "--start", moment(start), "--end", moment(end), "--usd-per-hour", "0.23", "--json"]
    done = subprocess.run([sys.executable, "-m", "mme_cli.main", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    rows = {row["tenant"]: row for row in document["tenants"]}
    for name, counted in (("requests", clients.requests), ("failed", clients.failed), ("bytes_in", clients.bytes_in)):
        assert {tenant: row[name] for tenant, row in rows.items()} == {tenant: counted[tenant] for tenant in rows}, name
    assert {tenant: row["bytes_out"] for tenant, row in rows.items()} == dict(clients.bytes_out)
    assert document["total"]["requests"] == REQUESTS
    assert document["not_listed_requests"] == 0
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in rows.values())


def test_costs_add_up_to_the_fleets_cost(quick_platform, traffic, collected):
    platform, _folder = quick_platform
    _clients, start, end = traffic
    found = report(local_sources(platform.state), start=start, end=end, prices=Prices.parse(["0.23"]), clock=SystemClock())
    document = found.document("cost")
    (pool,) = document["pools"]
    ((fleet,),) = [row["endpoints"] for row in document["pools"]]
    assert (fleet["instances"], fleet["instance_type"], fleet["measured"]) == (2.0, "ml.m5.xlarge", True)
    cost = Decimal(document["total"]["cost"])
    assert cost == Decimal(pool["cost"]) == round(Decimal(2 * (end - start)) / 3600 * Decimal("0.23"), 9)
    assert sum(Decimal(row["cost"]) for row in document["tenants"]) == cost
    assert Decimal(document["unused_cost"]) == 0
    assert all(Decimal(row["cost_memory"]) > 0 and Decimal(row["cost_time"]) > 0 for row in document["tenants"])


def test_the_collector_publishes_what_it_does_and_misses_nothing(quick_platform, collected):
    platform, _folder = quick_platform
    metrics = platform.client("cloudwatch").list_metrics(Namespace=HEAT_NAMESPACE)["Metrics"]
    assert {"windows", "missing", "lag_seconds", "failed", "late_lines"} <= {metric["MetricName"] for metric in metrics}
    (dimension,) = metrics[0]["Dimensions"]

    def least_missing():
        end = now(platform)
        found = platform.client("cloudwatch").get_metric_statistics(
            Namespace=HEAT_NAMESPACE,
            MetricName="missing",
            Dimensions=[dimension],
            StartTime=end - 1800,
            EndTime=end + 60,
            Period=86_400,
            Statistics=["Minimum"],
        )["Datapoints"]
        return bool(found) and min(point["Minimum"] for point in found) == 0

    wait_until(least_missing, what="a pass that leaves nothing to be collected")


def moment(epoch_seconds):
    return datetime.fromtimestamp(epoch_seconds, UTC).isoformat()
