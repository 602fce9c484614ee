"""`mme tenants top`: counts of the log, costs of the heat, both side by side."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from types import SimpleNamespace

import pytest
import typer
from botocore.exceptions import ClientError
from rich.console import Console
from typer.testing import CliRunner

from mme_cli.errors import CommandError
from mme_cli.main import app
from mme_cli.top import usage
from mme_cli.top.command import _range
from mme_cli.top.fleet import UNITS, EndpointFleet, Prices, endpoint_fleet
from mme_cli.top.report import print_report, report
from mme_cli.top.sources import Sources, stack_sources
from mme_facts.heat import HeatRules
from mme_tenancy import heat_collection
from mme_tenancy.heat_collection import HeatCollection
from mme_tenancy.testing import FakeClock
from mme_tenancy.testing_heat import MemoryHeat
from tests.tenancy.log_lines import Log

NOON = 1_795_953_600
RULES = HeatRules({"xgboost": ("one",), "idle": ("two",)}, recount_seconds=86_400)


class Heat(MemoryHeat):
    """With its pools, as the bucket has them."""

    def pools(self):
        return sorted({key.split("/")[1] for key in self.objects})


class SageMaker:
    """Two endpoints of two instances."""

    def __init__(self, count=2):
        self.count = count

    def describe_endpoint(self, *, EndpointName):  # noqa: N803 - boto3's names
        if EndpointName not in ("one", "two"):
            raise ClientError({"Error": {"Code": "ValidationException", "Message": "Could not find endpoint"}}, "DescribeEndpoint")
        return {"EndpointConfigName": "config", "ProductionVariants": [{"CurrentInstanceCount": self.count}]}

    def describe_endpoint_config(self, *, EndpointConfigName):  # noqa: N803
        return {"ProductionVariants": [{"InstanceType": "ml.m5.xlarge"}]}


class CloudWatch:
    """The fleet watch's metric."""

    def __init__(self, *averages):
        self.averages = averages

    def get_metric_statistics(self, **_request):
        return {"Datapoints": [{"Average": value} for value in self.averages]}


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def sources(log):
    sizes = {"acme": 10_000_000, "globex": 30_000_000}

    def versions(keys):
        return [SimpleNamespace(memory_bytes=None, size_bytes=sizes[key.tenant]) if key.tenant in sizes else None for key in keys]

    return Sources(log, Heat(), versions, SageMaker(), CloudWatch(2.0, 2.0))


def collect(sources, until=3600):
    clock = FakeClock()
    for at in range(420, until + 421, 300):
        clock.now = float(NOON + at)
        HeatCollection(sources.queries, sources.heat, clock, RULES).collect(clock.monotonic() + 60)


def ask(sources, prices=(), start=NOON, end=NOON + 3600):
    return report(sources, start=start, end=end, prices=Prices.parse(prices), clock=FakeClock())


def cost_of(document):
    return Decimal(document["total"]["cost"])


def test_requests_are_counted_by_tenant_with_those_that_found_no_route(log, sources):
    for at in range(100):
        log.write(NOON + at, tenant="acme", latency_ms=float(at), cold=int(at < 3))
    log.write(NOON + 5, tenant="globex", endpoint=None, status=404, model_latency_ms=None)
    log.write(NOON + 6, tenant="globex", status=502, failed=1)
    log.write(NOON - 0.001, tenant="early")
    log.write(NOON + 3600, tenant="late")
    document = ask(sources).document("requests")
    acme, globex = document["tenants"]
    assert (acme["tenant"], acme["requests"], acme["cold"], acme["bytes_in"], acme["bytes_out"]) == ("acme", 100, 3, 1000, 200)
    assert (acme["p50_ms"], acme["p99_ms"]) == (pytest.approx(49.5), pytest.approx(98.01))
    assert (globex["tenant"], globex["requests"], globex["failed"]) == ("globex", 2, 1)
    assert document["total"]["requests"] == 102
    assert (document["from"], document["to"]) == ("2026-11-29T12:00:00Z", "2026-11-29T13:00:00Z")


def test_costs_add_up_to_the_fleets_cost_exactly(log, sources):
    for at in range(0, 3600, 7):
        log.write(NOON + at, tenant=f"t{at % 13}", model=f"m{at % 5}", model_latency_ms=0.1 + at % 3)
    collect(sources)
    document = ask(sources, ["0.23"]).document("cost")
    assert cost_of(document) == Decimal("0.92"), "two endpoints, two instances each, an hour"
    shares = [Decimal(row["cost"]) for row in document["tenants"]]
    assert sum(shares) + Decimal(document["unused_cost"]) == cost_of(document)
    assert Decimal(document["unused_cost"]) == Decimal("0.46"), "nobody asked the idle pool"
    assert sum(Decimal(row["cost_memory"]) + Decimal(row["cost_time"]) for row in document["tenants"]) == sum(shares)
    assert shares == sorted(shares, reverse=True)


def test_memory_is_paid_by_its_size_and_time_by_its_length(log, sources):
    for at in range(0, 3600, 60):
        log.write(NOON + at, tenant="acme", model_latency_ms=30.0)
        log.write(NOON + at, tenant="globex", model_latency_ms=10.0)
    collect(sources)
    found = ask(sources, start=NOON + 300)
    acme, globex = found.split.shares["acme"], found.split.shares["globex"]
    assert acme.time == pytest.approx(3 * globex.time, rel=1e-6)
    overhead = 100 << 20
    assert globex.memory / acme.memory == pytest.approx((overhead + 30e6) / (overhead + 10e6), rel=0.05)


def test_a_tenant_that_only_stays_resident_pays_for_its_memory(log, sources):
    log.write(NOON + 10, tenant="globex")
    for at in range(600, 3600, 60):
        log.write(NOON + at, tenant="acme")
    collect(sources)
    found = ask(sources, start=NOON + 600)
    assert found.split.shares["globex"].memory > 0
    assert found.split.shares["globex"].time == 0
    (row,) = [row for row in found.document("cost")["tenants"] if row["tenant"] == "globex"]
    assert row["requests"] == 0


def test_without_heat_costs_go_by_time_and_the_report_says_so(log, sources):
    log.write(NOON + 10, tenant="acme", model_latency_ms=30.0)
    log.write(NOON + 10, tenant="globex", model_latency_ms=10.0)
    document = ask(sources).document("cost")
    assert [row["cost_share"] for row in document["tenants"]] == [0.75, 0.25]
    (pool,) = document["pools"]
    assert "no heat" in pool["method"]
    assert cost_of(document) == Decimal(2), "two instance-hours"


def test_models_in_a_tail_are_nobodys_and_still_paid(log, sources, monkeypatch):
    monkeypatch.setattr(heat_collection, "MOST_ROWS", 100)
    monkeypatch.setattr(usage, "_OF_TENANTS", usage._OF_TENANTS.replace("10000", "100"))
    log.write(NOON + 1, tenant="acme", count=2)
    for number in range(101):
        log.write(NOON + 2, tenant=f"t{number}")
    collect(sources, 0)
    found = ask(sources, end=NOON + 300)
    assert found.split.shares["*"].time > 0
    assert found.requests.truncated == 2
    assert found.split.cost == sum(pool.cost for pool in found.pools)


def test_the_text_names_tenants_costs_and_the_method(log, sources):
    log.write(NOON + 10, tenant="acme", count=3)
    log.write(NOON + 10, tenant="globex")
    collect(sources)
    console = Console(file=io.StringIO(), width=140)
    print_report(ask(sources, ["ml.m5.xlarge=0.23"]), console, order="requests", rows=1)
    text = console.file.getvalue()
    assert "cost in USD" in text
    assert "acme" in text
    assert "and 1 more tenants" in text
    assert "2.00 x ml.m5.xlarge" in text
    assert "half by byte-seconds resident" in text
    assert "used by nobody: 0.4600 USD" in text


def test_an_order_that_is_asked_for_is_kept(log, sources):
    log.write(NOON, tenant="many", count=5, bytes_in=1, latency_ms=1.0)
    log.write(NOON, tenant="slow", latency_ms=99.0, bytes_in=1)
    log.write(NOON, tenant="large", bytes_in=1000, latency_ms=1.0)
    log.write(NOON, tenant="frozen", cold=1, bytes_in=1, latency_ms=1.0)
    found = ask(sources)
    first = {order: found.rows(order)[0].tenant for order in ("requests", "p99", "bytes", "cold")}
    assert first == {"requests": "many", "p99": "slow", "bytes": "large", "cold": "frozen"}


def test_a_query_that_fails_is_told(log, sources):
    log.failing = {NOON}
    with pytest.raises(CommandError, match="gave no answer"):
        ask(sources)
    log.busy = True
    with pytest.raises(CommandError, match="no more queries"):
        ask(sources)


def test_instances_are_the_metrics_average_or_those_of_now():
    measured = endpoint_fleet(SageMaker(), CloudWatch(1.0, 2.0), "one", start=0, end=7200)
    assert (measured.instances, measured.measured, measured.instance_type) == (1.5, True, "ml.m5.xlarge")
    assert measured.cost(7200, Decimal("0.5")) == UNITS * 3 // 2
    now = endpoint_fleet(SageMaker(3), CloudWatch(), "one", start=0, end=60)
    assert (now.instances, now.measured) == (3.0, False)
    gone = endpoint_fleet(SageMaker(), CloudWatch(), "gone", start=0, end=60)
    assert (gone.instances, gone.instance_type) == (0.0, None)


def test_prices_are_by_type_or_for_all():
    fleet = EndpointFleet("e", "ml.m5.xlarge", 1.0, measured=True)
    assert Prices.parse(["0.23"]).hourly(fleet) == Decimal("0.23")
    assert Prices.parse(["ml.m5.xlarge=0.3", "0.1"]).hourly(fleet) == Decimal("0.3")
    assert Prices.parse([]).hourly(fleet) == 1
    with pytest.raises(CommandError, match="has no price"):
        Prices.parse(["ml.c5.xlarge=0.3"]).hourly(fleet)


@pytest.mark.parametrize("text", ["", "free", "-1", "nan", "ml.m5.xlarge=", "m5=0.2"])
def test_a_price_that_is_none_is_refused(text):
    with pytest.raises(CommandError, match="price"):
        Prices.parse([text])


def test_ranges_are_read():
    assert _range("30m", None, None, 10_000.5) == (10_001 - 1800, 10_001)
    assert _range("1h", "2026-11-29T12:00Z", "2026-11-29T14:00:00+01:00", 0) == (NOON, NOON + 3600)
    for wrong in (("1y", None, None), ("0m", None, None), ("1h", "noon", None), ("1h", None, "1969-01-01"), ("99999d", None, None)):
        with pytest.raises(typer.BadParameter):
            _range(*wrong, 10_000)


def test_without_a_platform_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["tenants", "top"])
    assert isinstance(done.exception, CommandError)
    assert "no local cloud runs here" in str(done.exception)


def test_stacks_without_the_outputs_are_named(local_cloud, monkeypatch):
    for name, value in local_cloud.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", local_cloud.admin.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", local_cloud.admin.secret_access_key)
    with pytest.raises(CommandError, match="stacks Nothing cannot be read"):
        stack_sources(["Nothing"], region="us-east-1")
    template = {"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}, "Outputs": {"BucketName": {"Value": "b"}, "TableName": {"Value": "t"}}}
    cloudformation = local_cloud.client("cloudformation")
    cloudformation.create_stack(StackName="half", TemplateBody=json.dumps(template))
    cloudformation.get_waiter("stack_create_complete").wait(StackName="half", WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    with pytest.raises(CommandError, match="no output InvocationLogGroup"):
        stack_sources(["half"], region="us-east-1")
