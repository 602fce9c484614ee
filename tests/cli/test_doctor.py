"""`mme doctor`: what is asked of AWS, what its errors become, and what the command prints."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, NoCredentialsError
from typer.testing import CliRunner

from mme_cli import doctor
from mme_cli.doctor import Target, blind_text, examine, target
from mme_cli.doctor_rules import needed_queries
from mme_cli.errors import CommandError
from mme_cli.local_state import LocalState
from mme_cli.main import app
from mme_facts.metrics import check_use
from mme_local import Credentials

NOW = datetime(2026, 11, 29, 20, 30, 40, tzinfo=UTC)
HOUR = timedelta(hours=1)


class ScriptedSageMaker:
    """One endpoint."""

    def __init__(self, *, status="InService", age=HOUR, cache="Enabled", mode="MultiModel", error=None, config_error=None):
        self.status, self.age, self.cache, self.mode, self.error, self.config_error = status, age, cache, mode, error, config_error

    def describe_endpoint(self, **names):
        if self.error:
            raise self.error
        return {
            "EndpointName": names["EndpointName"],
            "EndpointConfigName": "config-a",
            "EndpointStatus": self.status,
            "LastModifiedTime": NOW - self.age,
            "ProductionVariants": [{"VariantName": "AllTraffic"}, {"VariantName": "Canary"}],
        }

    def describe_endpoint_config(self, **names):
        if self.config_error:
            raise self.config_error
        assert names == {"EndpointConfigName": "config-a"}
        variants = {"AllTraffic": "ml.m5.xlarge", "Canary": "ml.m5.2xlarge"}
        return {
            "ProductionVariants": [{"VariantName": name, "InstanceType": kind, "ModelName": "model-a"} for name, kind in variants.items()]
        }

    def describe_model(self, **names):
        assert names == {"ModelName": "model-a"}
        container = {"Mode": self.mode, "MultiModelConfig": {"ModelCacheSetting": self.cache}}
        return {"PrimaryContainer": container}


class ScriptedCloudWatch:
    """Answers every series that is named with one value in every period; records what it was asked."""

    def __init__(self, values=None, *, pages=1, error=None, status="Complete"):
        self.values, self.pages, self.error, self.status, self.requests = values or {}, pages, error, status, []

    def get_metric_data(self, **request):
        self.requests.append(request)
        if self.error:
            raise self.error
        page = len(self.requests) - 1
        results = []
        for query in request["MetricDataQueries"]:
            stat = query["MetricStat"]
            value = self.values.get((stat["Metric"]["MetricName"], stat["Stat"]))
            times = range(request["StartTime"], request["EndTime"], stat["Period"]) if value is not None else ()
            chosen = [time for number, time in enumerate(times) if number % self.pages == page]
            results.append(
                {
                    "Id": query["Id"],
                    "Timestamps": [datetime.fromtimestamp(time, UTC) for time in chosen],
                    "Values": [value] * len(chosen),
                    "StatusCode": self.status,
                }
            )
        return {"MetricDataResults": results} | ({"NextToken": f"page-{page + 1}"} if page + 1 < self.pages else {})


FINE = {("Invocations", "Sum"): 100, ("Invocation5XXErrors", "Sum"): 0, ("CPUUtilization", "Average"): 260}
FAILING = {**FINE, ("Invocation5XXErrors", "Sum"): 10}


def asked(sagemaker=None, cloudwatch=None, *, local=False):
    where = "the local cloud at http://127.0.0.1:1" if local else "AWS region eu-central-1"
    return Target(where, local, sagemaker or ScriptedSageMaker(), cloudwatch or ScriptedCloudWatch(FINE))


def run(sagemaker=None, cloudwatch=None, **options):
    chosen = {"variant": None, "instance_type": None, "hours": 3} | options
    return examine(asked(sagemaker, cloudwatch), "mme-a", now=NOW.timestamp(), **chosen)


def refusal(code, message="no"):
    return ClientError({"Error": {"Code": code, "Message": message}}, "Operation")


def test_one_batched_call_asks_for_every_series_as_the_catalogue_has_it():
    cloudwatch = ScriptedCloudWatch(FINE)
    run(cloudwatch=cloudwatch)
    (request,) = cloudwatch.requests
    assert len(request["MetricDataQueries"]) == len(needed_queries())
    assert datetime.fromtimestamp(request["StartTime"], UTC) == datetime(2026, 11, 29, 17, 0, tzinfo=UTC)
    assert datetime.fromtimestamp(request["EndTime"], UTC) == datetime(2026, 11, 29, 20, 30, tzinfo=UTC)
    for query in request["MetricDataQueries"]:
        stat = query["MetricStat"]
        dimensions = {item["Name"]: item["Value"] for item in stat["Metric"]["Dimensions"]}
        assert dimensions in ({"EndpointName": "mme-a", "VariantName": "AllTraffic"}, {"endpoint": "mme-a"})
        check_use(
            stat["Metric"]["Namespace"],
            stat["Metric"]["MetricName"],
            dimensions=dimensions,
            statistic=stat["Stat"],
            period_seconds=stat["Period"],
        )


def test_pages_are_followed_and_put_together():
    cloudwatch = ScriptedCloudWatch(FAILING, pages=3)
    report = run(cloudwatch=cloudwatch)
    assert [request.get("NextToken") for request in cloudwatch.requests] == [None, "page-1", "page-2"]
    assert [finding.rule.id for finding in report.diagnosis.findings] == ["server-errors"]


def test_endless_pages_end():
    with pytest.raises(CommandError, match="take fewer --hours"):
        run(cloudwatch=ScriptedCloudWatch(FINE, pages=1000))


def test_instance_type_and_cache_come_from_the_endpoints_configuration():
    report = run()
    assert (report.readings.variant, report.readings.instance.name, report.readings.cache_enabled) == ("AllTraffic", "ml.m5.xlarge", True)
    other = run(ScriptedSageMaker(cache="Disabled"), variant="Canary")
    assert (other.readings.instance.name, other.readings.cache_enabled) == ("ml.m5.2xlarge", False)


def test_a_configuration_that_may_not_be_read_leaves_the_instance_type_open():
    sagemaker = ScriptedSageMaker(config_error=refusal("AccessDeniedException"))
    assert run(sagemaker).readings.instance is None
    assert run(sagemaker, instance_type="ml.g5.xlarge").readings.instance.gpus == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sagemaker": ScriptedSageMaker(error=refusal("ValidationException", "Could not find endpoint x"))}, "has no endpoint 'mme-a'"),
        ({"sagemaker": ScriptedSageMaker(error=refusal("AccessDeniedException"))}, "may not call sagemaker:DescribeEndpoint"),
        ({"sagemaker": ScriptedSageMaker(error=NoCredentialsError())}, "no AWS credentials for AWS region eu-central-1: set AWS_PROFILE"),
        ({"sagemaker": ScriptedSageMaker(error=refusal("ExpiredTokenException"))}, "refuses the credentials"),
        ({"sagemaker": ScriptedSageMaker(error=EndpointConnectionError(endpoint_url="http://x"))}, "does not answer"),
        ({"sagemaker": ScriptedSageMaker(mode="SingleModel")}, "hosts no multi-model container"),
        ({"cloudwatch": ScriptedCloudWatch(error=refusal("AccessDenied"))}, "may not call cloudwatch:GetMetricData"),
        ({"cloudwatch": ScriptedCloudWatch(error=ConnectTimeoutError(endpoint_url="http://x"))}, "does not answer"),
        ({"cloudwatch": ScriptedCloudWatch(error=refusal("Throttling", "slow down"))}, "Throttling: slow down"),
        ({"cloudwatch": ScriptedCloudWatch(FINE, status="InternalError")}, "gave no data"),
        ({"variant": "Green"}, "has no variant 'Green': use one of AllTraffic, Canary"),
        ({"instance_type": "ml.huge.xlarge"}, "ml.huge.xlarge"),
    ],
)
def test_what_cannot_be_asked_is_one_clear_sentence(options, text):
    with pytest.raises(CommandError) as caught:
        run(**options)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_data_is_not_called_healthy_and_says_why():
    report = run(cloudwatch=ScriptedCloudWatch())
    assert report.diagnosis.blind
    assert report.document()["healthy"] is None
    assert "has no metrics of endpoint 'mme-a' (variant 'AllTraffic')" in blind_text(report)
    local = examine(
        asked(cloudwatch=ScriptedCloudWatch(), local=True), "mme-a", variant=None, instance_type=None, hours=3, now=NOW.timestamp()
    )
    assert "publishes no CloudWatch metrics yet" in blind_text(local)
    assert "mme status" in blind_text(local)


@pytest.fixture
def command(monkeypatch):
    """Runs `mme doctor` against a scripted AWS."""

    def call(*arguments, sagemaker=None, cloudwatch=None, local=False):
        monkeypatch.setattr(doctor, "target", lambda **_: asked(sagemaker, cloudwatch, local=local))
        monkeypatch.setattr(doctor.time, "time", NOW.timestamp)
        return CliRunner().invoke(app, ["doctor", "mme-a", *arguments])

    return call


def test_a_healthy_endpoint_exits_0(command):
    done = command()
    assert done.exit_code == 0
    assert "nothing is the matter" in done.stdout
    assert "cpu-low: it looks at 24 h: pass --hours 25" in done.stdout


def test_a_finding_exits_1_with_the_runbooks_words(command):
    done = command(cloudwatch=ScriptedCloudWatch(FAILING))
    assert done.exit_code == 1
    for text in ("server-errors", "now", "10 %", "above 1 %", "docs/runbook/server-errors.md"):
        assert text in done.stdout
    assert "Callers get errors that no retry of theirs explains" in done.stdout
    assert "nothing is the matter" not in done.stdout


def test_json_is_one_document(command):
    done = command("--json", cloudwatch=ScriptedCloudWatch(FAILING))
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    assert (document["endpoint"], document["status"], document["healthy"], document["metrics"]) == ("mme-a", "InService", False, True)
    (finding,) = document["findings"]
    assert (finding["rule"], finding["now"], finding["worst"], finding["users_are_hurt"]) == ("server-errors", True, "10 %", True)
    assert {"rule": "cpu-low", "why": "it looks at 24 h: pass --hours 25"} in document["not_judged"]


@pytest.mark.parametrize("local", [False, True])
def test_no_data_exits_1_and_prints_no_good_news(command, local):
    done = command("--json", cloudwatch=ScriptedCloudWatch(), local=local)
    assert isinstance(done.exception, CommandError)
    document = json.loads(done.stdout)
    assert (document["healthy"], document["metrics"], document["findings"]) == (None, False, [])


@pytest.mark.parametrize("arguments", [["--hours", "0"], ["--hours", "361"], ["--no-such-option"]])
def test_wrong_usage_exits_2(command, arguments):
    assert command(*arguments).exit_code == 2


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder without a local cloud, and an AWS configuration that names nothing."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


NOBODY = {"endpoint_url": None, "region": None, "profile": None, "aws": False}


def test_the_local_cloud_that_runs_here_is_asked_unless_aws_is_named(elsewhere):
    state = LocalState("http://127.0.0.1:4567", "us-east-1", "000000000000", os.getpid(), Credentials("AKIA", "secret"), {})
    state.write()
    here = target(**NOBODY)
    assert (here.local, here.where) == (True, "the local cloud at http://127.0.0.1:4567")
    assert here.cloudwatch.meta.endpoint_url == "http://127.0.0.1:4567"
    there = target(**NOBODY | {"aws": True, "region": "eu-central-1"})
    assert (there.local, there.where) == (False, "AWS region eu-central-1")
    assert there.sagemaker.meta.config.retries == {"mode": "standard", "total_max_attempts": 3}


def test_an_address_that_is_given_is_asked(elsewhere):
    chosen = target(**NOBODY | {"endpoint_url": "http://127.0.0.1:9", "region": "us-east-1"})
    assert (chosen.local, chosen.sagemaker.meta.endpoint_url) == (True, "http://127.0.0.1:9")


def test_the_region_may_come_from_the_environment(elsewhere, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert target(**NOBODY).where == "AWS region eu-north-1"
    assert target(**NOBODY | {"region": "eu-west-1"}).where == "AWS region eu-west-1"


def test_without_region_or_with_an_unknown_profile_the_fix_is_named(elsewhere):
    with pytest.raises(CommandError, match="pass --region, or set AWS_REGION"):
        target(**NOBODY)
    with pytest.raises(CommandError, match="nobody"):
        target(**NOBODY | {"profile": "nobody", "region": "eu-central-1"})
