"""CloudWatch's API as clients see it, in the three protocols that clients speak."""

from __future__ import annotations

import json
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

import boto3
import botocore.session
import pytest
from botocore.exceptions import ClientError

from mme_local.cloudwatch.responses import OPERATIONS
from tests.local.conftest import Workbench, allow

PROTOCOLS = {"cbor": "smithy-rpc-v2-cbor", "json": "json", "query": "query"}
DIMENSIONS = [{"Name": "EndpointName", "Value": "ours"}, {"Name": "VariantName", "Value": "AllTraffic"}]
NOW = datetime.now(UTC).replace(microsecond=0)
MINUTE = NOW.replace(second=0)


def speaking(cloud, protocol, folder):
    """A client whose model knows one protocol only, as those of older versions do."""
    session = botocore.session.Session()
    loader = session.get_component("data_loader")
    model = loader.load_service_model("cloudwatch", "service-2")
    model["metadata"] |= {"protocol": protocol, "protocols": [protocol]}
    place = folder / protocol / "cloudwatch" / "2010-08-01"
    place.mkdir(parents=True)
    (place / "service-2.json").write_text(json.dumps(model))
    fresh = botocore.session.Session()
    fresh.get_component("data_loader").search_paths.insert(0, str(folder / protocol))
    keys = cloud.admin
    return boto3.session.Session(
        aws_access_key_id=keys.access_key_id, aws_secret_access_key=keys.secret_access_key, region_name=cloud.region, botocore_session=fresh
    ).client("cloudwatch", endpoint_url=cloud.endpoint_url)


@pytest.fixture(scope="module", params=PROTOCOLS)
def cloudwatch(request, shared_cloud, tmp_path_factory):
    with closing(speaking(shared_cloud, PROTOCOLS[request.param], tmp_path_factory.mktemp("models"))) as client:
        assert client.meta.service_model.resolved_protocol == PROTOCOLS[request.param]
        yield client


@pytest.fixture
def modern(shared_cloud):
    """A client as it is: what is refused does not depend on the protocol."""
    with closing(shared_cloud.client("cloudwatch")) as client:
        yield client


@pytest.fixture(autouse=True)
def _empty(local_cloud):
    """Every test begins with an empty cloud."""


@contextmanager
def refused(client, code, text):
    """A refusal with the code that clients know, and as the modelled exception where there is one."""
    with pytest.raises(ClientError, match=text) as caught:
        yield
    assert caught.value.response["Error"]["Code"] == code


def put(client, name="Errors", value=1.0, minute=1, **members):
    datum = {"MetricName": name, "Dimensions": DIMENSIONS, "Timestamp": MINUTE - timedelta(minutes=minute), "Unit": "Count", **members}
    client.put_metric_data(
        Namespace="Platform", MetricData=[datum if {"Values", "StatisticValues"} & members.keys() else {**datum, "Value": value}]
    )


def statistics(client, **members):
    asked = {"Namespace": "Platform", "MetricName": "Errors", "Dimensions": DIMENSIONS, "Period": 60, "Statistics": ["Sum", "SampleCount"]}
    span = {"StartTime": MINUTE - timedelta(minutes=10), "EndTime": MINUTE}
    return client.get_metric_statistics(**{**asked, **span, **members})


def query(name, metric="Errors", **members):
    return {
        "Id": name,
        "MetricStat": {"Metric": {"Namespace": "Platform", "MetricName": metric, "Dimensions": DIMENSIONS}, "Period": 60, "Stat": "Sum"},
        **members,
    }


def data(client, *queries, **members):
    return client.get_metric_data(
        **{"MetricDataQueries": list(queries), "StartTime": MINUTE - timedelta(minutes=10), "EndTime": MINUTE, **members}
    )


def alarm(name="errors", **members):
    return {
        "AlarmName": name,
        "Namespace": "Platform",
        "MetricName": "Errors",
        "Dimensions": DIMENSIONS,
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 10.5,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "ignore",  # a state that a test sets must outlast the next look
        **members,
    }


def test_values_come_back_as_statistics(cloudwatch):
    put(cloudwatch, value=2.5)
    put(cloudwatch, Values=[1.0, 4.0], Counts=[2.0, 3.0])
    put(cloudwatch, StatisticValues={"SampleCount": 2.0, "Sum": 10.0, "Minimum": 3.0, "Maximum": 7.0}, minute=2)
    answer = statistics(cloudwatch, Statistics=["SampleCount", "Average", "Sum", "Minimum", "Maximum"])
    assert answer["Label"] == "Errors"
    points = sorted(answer["Datapoints"], key=lambda point: point["Timestamp"])
    assert points == [
        {
            "Timestamp": MINUTE - timedelta(minutes=2),
            "Unit": "Count",
            "SampleCount": 2.0,
            "Average": 5.0,
            "Sum": 10.0,
            "Minimum": 3.0,
            "Maximum": 7.0,
        },
        {
            "Timestamp": MINUTE - timedelta(minutes=1),
            "Unit": "Count",
            "SampleCount": 6.0,
            "Average": pytest.approx(16.5 / 6),
            "Sum": 16.5,
            "Minimum": 1.0,
            "Maximum": 4.0,
        },
    ]
    percentiles = cloudwatch.get_metric_statistics(
        Namespace="Platform",
        MetricName="Errors",
        Dimensions=DIMENSIONS,
        Period=60,
        ExtendedStatistics=["p50", "p100"],
        StartTime=MINUTE - timedelta(minutes=10),
        EndTime=MINUTE,
    )["Datapoints"]
    assert [point["ExtendedStatistics"] for point in percentiles] == [{"p50": 3.25, "p100": 4.0}]  # none of a statistic set


def test_a_metric_without_data_has_no_datapoints(cloudwatch):
    put(cloudwatch)
    assert statistics(cloudwatch, Dimensions=DIMENSIONS[:1])["Datapoints"] == []
    assert statistics(cloudwatch, Unit="Seconds")["Datapoints"] == []
    assert statistics(cloudwatch, MetricName="Others")["Datapoints"] == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.0**361])
def test_numbers_that_are_none_are_refused_in_every_protocol(cloudwatch, value):
    with refused(cloudwatch, "InvalidParameterValue", "must be between"):
        put(cloudwatch, value=value)


def test_a_thousand_data_go_in_one_compressed_call(cloudwatch):
    moment = MINUTE - timedelta(minutes=1)
    many = [{"MetricName": "Errors", "Dimensions": DIMENSIONS, "Timestamp": moment, "Value": 1.0} for _ in range(1000)]
    cloudwatch.put_metric_data(Namespace="Platform", MetricData=many)
    assert [point["Sum"] for point in statistics(cloudwatch)["Datapoints"]] == [1000.0]


@pytest.mark.parametrize(
    ("members", "code", "text"),
    [
        ({"Value": float("nan")}, "InvalidParameterValue", "must be between"),
        ({"Value": 2.0**361}, "InvalidParameterValue", "must be between"),
        ({}, "MissingParameter", "is required"),
        ({"Value": 1.0, "Values": [1.0]}, "InvalidParameterCombination", "mutually exclusive"),
        ({"Values": [1.0, 2.0], "Counts": [1.0]}, "InvalidParameterValue", "same size"),
        ({"Values": [1.0] * 151}, "InvalidParameterValue", "between 1 and 150"),
        ({"Values": [1.0], "Counts": [0.0]}, "InvalidParameterValue", "greater than 0"),
        ({"Value": 1.0, "Counts": [1.0]}, "InvalidParameterCombination", "requires"),
        ({"Value": 1.0, "Timestamp": NOW - timedelta(days=15)}, "InvalidParameterValue", "past two weeks"),
        ({"Value": 1.0, "Timestamp": NOW + timedelta(hours=3)}, "InvalidParameterValue", "two hours in the future"),
        ({"Value": 1.0, "StorageResolution": 10}, "InvalidParameterValue", "must be 1 or 60"),
        ({"Value": 1.0, "Unit": "Furlongs"}, "ValidationError", "enum value set"),
        ({"Value": 1.0, "Dimensions": [DIMENSIONS[0], DIMENSIONS[0]]}, "ValidationError", "more than once"),
        ({"StatisticValues": {"SampleCount": 0.0, "Sum": 0.0, "Minimum": 0.0, "Maximum": 0.0}}, "InvalidParameterValue", "greater than 0"),
        ({"StatisticValues": {"SampleCount": 2.0, "Sum": 3.0, "Minimum": 2.0, "Maximum": 1.0}}, "InvalidParameterValue", "Minimum"),
    ],
)
def test_data_that_is_not_allowed_is_refused_whole(modern, members, code, text):
    with refused(modern, code, text):
        modern.put_metric_data(
            Namespace="Platform", MetricData=[{"MetricName": "Errors", "Value": 1.0}, {"MetricName": "Errors", **members}]
        )
    assert modern.list_metrics()["Metrics"] == []


@pytest.mark.parametrize(
    ("members", "code", "text"),
    [
        ({"Period": 45}, "InvalidParameterValue", "multiple of 60"),
        ({"EndTime": MINUTE - timedelta(days=1)}, "InvalidParameterValue", "must be less than"),
        ({"StartTime": MINUTE - timedelta(days=2)}, "InvalidParameterCombination", "exceeds the limit of 1440"),
        ({"ExtendedStatistics": ["p99"]}, "InvalidParameterCombination", "Exactly one"),
        ({"Statistics": ["Mean"]}, "ValidationError", "enum value set"),
    ],
)
def test_statistics_that_cannot_be_had_are_refused(modern, members, code, text):
    with refused(modern, code, text):
        statistics(modern, **members)


def test_metric_math_is_answered(cloudwatch):
    for minute, errors in ((1, 5.0), (2, 1.0), (4, 3.0)):
        put(cloudwatch, value=errors, minute=minute)
        put(cloudwatch, "Requests", value=100.0, minute=minute)
    answer = data(
        cloudwatch,
        query("errors", ReturnData=False),
        query("requests", "Requests", Label="${PROP('Dim.EndpointName')}: ${LABEL} up to ${MAX}"),
        {"Id": "share", "Expression": "100 * errors / requests", "Label": "share"},
        {"Id": "all", "Expression": "SUM(METRICS())"},
    )
    assert [(result["Id"], result["Label"], result["StatusCode"]) for result in answer["MetricDataResults"]] == [
        ("requests", "ours: Requests up to 100", "Complete"),
        ("share", "share", "Complete"),
        ("all", "all", "Complete"),
    ]
    assert answer["MetricDataResults"][1]["Values"] == [5.0, 1.0, 3.0]
    assert answer["MetricDataResults"][1]["Timestamps"] == [MINUTE - timedelta(minutes=minute) for minute in (1, 2, 4)]
    oldest_first = data(cloudwatch, query("errors"), ScanBy="TimestampAscending")
    assert oldest_first["MetricDataResults"][0]["Values"] == [3.0, 1.0, 5.0]


def test_metric_data_comes_in_pages(cloudwatch):
    for minute in range(1, 6):
        put(cloudwatch, value=float(minute), minute=minute)
    pages, token = [], {}
    while True:
        page = data(cloudwatch, query("a"), query("b"), MaxDatapoints=3, **token)
        pages.append([(result["Id"], result["Values"], result["StatusCode"]) for result in page["MetricDataResults"]])
        if "NextToken" not in page:
            break
        token = {"NextToken": page["NextToken"]}
    assert pages == [
        [("a", [1.0, 2.0, 3.0], "PartialData")],
        [("a", [4.0, 5.0], "Complete"), ("b", [1.0], "PartialData")],
        [("b", [2.0, 3.0, 4.0], "PartialData")],
        [("b", [5.0], "Complete")],
    ]
    with refused(cloudwatch, "InvalidNextToken", "not valid"):
        data(cloudwatch, query("a"), NextToken="nonsense")


@pytest.mark.parametrize(
    ("queries", "members", "text"),
    [
        ([query("a"), {"Id": "e", "Expression": "SEARCH('{N}', 'Sum', 60)"}], {}, "SEARCH is not a function"),
        ([{"Id": "e", "Expression": "missing + 1"}], {}, "neither the id of a query"),
        ([query("a", Label="${NONSENSE}")], {}, "which the local cloud does not know"),
        ([], {}, "between 1 and 500"),
        ([query("a")], {"MaxDatapoints": 0}, "between 1 and"),
        ([query("a")], {"LabelOptions": {"Timezone": "+0130"}}, "time zone"),
    ],
)
def test_metric_data_that_cannot_be_had_is_refused(modern, queries, members, text):
    put(modern)
    with refused(modern, "ValidationError", text):
        data(modern, *queries, **members)


def test_metrics_are_listed_by_what_is_known_of_them(cloudwatch):
    put(cloudwatch)
    put(cloudwatch, "Requests", Dimensions=DIMENSIONS[:1])

    def names(**members):
        return [metric["MetricName"] for metric in cloudwatch.list_metrics(**members)["Metrics"]]

    assert names() == ["Errors", "Requests"]
    assert names(Dimensions=[{"Name": "VariantName"}]) == ["Errors"]
    assert names(Dimensions=[{"Name": "EndpointName", "Value": "ours"}], RecentlyActive="PT3H") == ["Errors", "Requests"]
    assert names(MetricName="Requests", Namespace="Platform") == ["Requests"]
    assert names(Namespace="Elsewhere") == names(Dimensions=[{"Name": "EndpointName", "Value": "another"}]) == []


def test_an_alarm_is_put_described_and_deleted(cloudwatch):
    put(cloudwatch, value=11.0, Timestamp=datetime.now(UTC) - timedelta(minutes=1))
    cloudwatch.put_metric_alarm(**alarm(Tags=[{"Key": "team", "Value": "ml"}]))
    (described,) = cloudwatch.describe_alarms(AlarmNames=["errors"])["MetricAlarms"]
    assert (described["StateValue"], described["Threshold"], described["Dimensions"]) == ("ALARM", 10.5, DIMENSIONS)
    assert json.loads(described["StateReasonData"])["recentDatapoints"] == [11.0]
    assert abs(described["StateUpdatedTimestamp"] - datetime.now(UTC)) < timedelta(minutes=2)
    arn = described["AlarmArn"]
    cloudwatch.tag_resource(ResourceARN=arn, Tags=[{"Key": "stage", "Value": ""}])
    cloudwatch.untag_resource(ResourceARN=arn, TagKeys=["team"])
    assert cloudwatch.list_tags_for_resource(ResourceARN=arn)["Tags"] == [{"Key": "stage", "Value": ""}]
    assert [found["AlarmName"] for found in cloudwatch.describe_alarms_for_metric(
        MetricName="Errors", Namespace="Platform", Dimensions=DIMENSIONS)["MetricAlarms"]] == ["errors"]  # fmt: skip
    assert cloudwatch.describe_alarms_for_metric(MetricName="Errors", Namespace="Platform")["MetricAlarms"] == []
    cloudwatch.delete_alarms(AlarmNames=["errors"])
    assert cloudwatch.describe_alarms()["MetricAlarms"] == []
    with refused(cloudwatch, "ResourceNotFoundException", "does not exist"):
        cloudwatch.list_tags_for_resource(ResourceARN=arn)


def test_alarms_come_in_pages_and_by_kind(cloudwatch):
    for number in range(3):
        cloudwatch.put_metric_alarm(**alarm(f"part-{number}"))
    cloudwatch.put_composite_alarm(AlarmName="whole", AlarmRule="ALARM(part-0) OR ALARM(part-1)")
    first = cloudwatch.describe_alarms(MaxRecords=2)
    second = cloudwatch.describe_alarms(MaxRecords=2, NextToken=first["NextToken"])
    assert [found["AlarmName"] for page in (first, second) for found in page["MetricAlarms"]] == ["part-0", "part-1", "part-2"]
    assert "NextToken" not in second
    whole = cloudwatch.describe_alarms(AlarmTypes=["CompositeAlarm"])
    assert ([found["StateValue"] for found in whole["CompositeAlarms"]], whole["MetricAlarms"]) == (["OK"], [])
    children = cloudwatch.describe_alarms(ChildrenOfAlarmName="whole")["MetricAlarms"]
    assert [set(child) for child in children] == [{"AlarmName", "AlarmArn", "StateValue", "StateUpdatedTimestamp"}] * 2
    assert [found["AlarmName"] for found in cloudwatch.describe_alarms(ParentsOfAlarmName="part-1")["CompositeAlarms"]] == ["whole"]
    with refused(cloudwatch, "ValidationError", "cannot be given together"):
        cloudwatch.describe_alarms(AlarmNames=["part-0"], AlarmNamePrefix="part")
    with refused(cloudwatch, "ValidationError", "depending on it"):
        cloudwatch.delete_alarms(AlarmNames=["part-0"])


def test_a_state_is_set_and_its_history_told(cloudwatch):
    cloudwatch.put_metric_alarm(**alarm())
    cloudwatch.set_alarm_state(AlarmName="errors", StateValue="ALARM", StateReason="a drill", StateReasonData='{"why": "drill"}')
    history = cloudwatch.describe_alarm_history(AlarmName="errors")["AlarmHistoryItems"]
    assert [item["HistorySummary"] for item in history] == ["Alarm updated from INSUFFICIENT_DATA to ALARM", 'Alarm "errors" created']
    assert json.loads(history[0]["HistoryData"])["newState"]["stateReasonData"] == {"why": "drill"}
    assert cloudwatch.describe_alarm_history(HistoryItemType="Action")["AlarmHistoryItems"] == []
    cloudwatch.disable_alarm_actions(AlarmNames=["errors"])
    assert cloudwatch.describe_alarms(StateValue="ALARM")["MetricAlarms"][0]["ActionsEnabled"] is False
    cloudwatch.enable_alarm_actions(AlarmNames=["errors"])
    assert cloudwatch.describe_alarms()["MetricAlarms"][0]["ActionsEnabled"] is True
    with refused(cloudwatch, "ResourceNotFound", "nobody does not exist"):
        cloudwatch.set_alarm_state(AlarmName="nobody", StateValue="OK", StateReason="x")
    with refused(cloudwatch, "InvalidFormat", "not JSON"):
        cloudwatch.set_alarm_state(AlarmName="errors", StateValue="OK", StateReason="x", StateReasonData="{")


def test_modelled_exceptions_are_raised(cloudwatch):
    with pytest.raises(cloudwatch.exceptions.ResourceNotFound):
        cloudwatch.set_alarm_state(AlarmName="nobody", StateValue="OK", StateReason="x")
    with pytest.raises(cloudwatch.exceptions.InvalidParameterValueException):
        statistics(cloudwatch, Period=45)
    with pytest.raises(cloudwatch.exceptions.InvalidNextToken):
        cloudwatch.describe_alarms(NextToken="nonsense")


def test_dashboards_are_kept_when_they_are_json(cloudwatch):
    cloudwatch.put_dashboard(DashboardName="ours", DashboardBody='{"widgets": []}')
    assert cloudwatch.get_dashboard(DashboardName="ours")["DashboardBody"] == '{"widgets": []}'
    assert [entry["DashboardName"] for entry in cloudwatch.list_dashboards(DashboardNamePrefix="o")["DashboardEntries"]] == ["ours"]
    with refused(cloudwatch, "InvalidParameterInput", "valid JSON"):
        cloudwatch.put_dashboard(DashboardName="bad", DashboardBody="{")
    cloudwatch.delete_dashboards(DashboardNames=["ours"])
    assert cloudwatch.list_dashboards()["DashboardEntries"] == []


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.put_anomaly_detector(Namespace="Platform", MetricName="Errors", Stat="Sum"),
        lambda client: client.list_metric_streams(),
        lambda client: client.describe_insight_rules(),
        lambda client: client.get_metric_widget_image(MetricWidget="{}"),
    ],
)
def test_an_operation_that_is_not_there_is_refused(modern, call):
    with refused(modern, "InvalidAction", "does not serve"):
        call(modern)


def test_a_member_that_is_not_supported_is_refused(modern):
    with refused(modern, "ValidationError", "does not evaluate EvaluationInterval"):
        modern.put_metric_alarm(**alarm(EvaluationInterval=60))
    with refused(modern, "InvalidParameterValue", "no entities"):
        modern.put_metric_data(Namespace="Platform", MetricData=[{"MetricName": "m", "Value": 1.0}], StrictEntityValidation=True)


def test_alarm_policies_are_enforced_on_the_alarms_arn(modern, shared_cloud):
    with closing(Workbench(shared_cloud)) as bench:
        arn = "arn:aws:cloudwatch:us-east-1:000000000000:alarm:mine"
        keys = bench.user(
            allow(["cloudwatch:PutMetricAlarm", "cloudwatch:DeleteAlarms"], arn),
            allow("cloudwatch:PutMetricData", "*", StringEquals={"cloudwatch:namespace": "Mine"}),
        )
        client = bench.client("cloudwatch", keys)
        client.put_metric_alarm(**alarm("mine"))
        client.put_metric_data(Namespace="Mine", MetricData=[{"MetricName": "m", "Value": 1.0}])
        for call in (
            lambda: client.put_metric_alarm(**alarm("yours")),
            lambda: client.delete_alarms(AlarmNames=["mine", "yours"]),
            lambda: client.put_metric_data(Namespace="Yours", MetricData=[{"MetricName": "m", "Value": 1.0}]),
            client.list_metrics,
            client.describe_alarms,
        ):
            with refused(client, "AccessDenied", "not authorized"):
                call()
    assert [found["AlarmName"] for found in modern.describe_alarms()["MetricAlarms"]] == ["mine"]


def test_other_regions_and_unsigned_calls_are_refused(shared_cloud):
    with closing(Workbench(shared_cloud)) as bench:
        for path, headers, body in (
            ("/service/GraniteServiceVersion20100801/operation/ListMetrics", {"smithy-protocol": "rpc-v2-cbor"}, b"\xa0"),
            ("/", {"X-Amz-Target": "GraniteServiceVersion20100801.ListMetrics", "Content-Type": "application/x-amz-json-1.0"}, b"{}"),
            ("/", {"Content-Type": "application/x-www-form-urlencoded"}, b"Action=ListMetrics&Version=2010-08-01"),
        ):
            answer = bench.call("POST", shared_cloud.endpoint_url + path, None, body=body, headers=headers)
            assert answer.status_code == 403, (path, answer.text)
        session = shared_cloud.session()
        elsewhere = session.client("cloudwatch", region_name="eu-west-1", endpoint_url=shared_cloud.endpoint_url)
        with closing(elsewhere), refused(elsewhere, "ValidationError", "us-east-1 only, not in eu-west-1"):
            elsewhere.list_metrics()


def test_malformed_bodies_are_refused(shared_cloud):
    with closing(Workbench(shared_cloud)) as bench:
        url, admin = shared_cloud.endpoint_url, shared_cloud.admin
        cbor = {"smithy-protocol": "rpc-v2-cbor", "Content-Type": "application/cbor"}
        path = "/service/GraniteServiceVersion20100801/operation/"
        for target, headers, body in (
            (path + "ListMetrics", cbor, b"\xff\x00"),
            (path + "ListMetrics", cbor, b"\x01"),
            (path + "Nothing", cbor, b"\xa0"),
            (path + "ListMetrics", {**cbor, "Content-Encoding": "gzip"}, b"no gzip"),
            (path + "ListMetrics", {**cbor, "Content-Encoding": "br"}, b"\xa0"),
            ("/", {"X-Amz-Target": "GraniteServiceVersion20100801.ListMetrics"}, b"{"),
            ("/", {"X-Amz-Target": "GraniteServiceVersion20100801.ListMetrics"}, b'{"Unknown": 1}'),
            ("/", {}, b"Action=ListMetrics&Unknown=1"),
            ("/", {}, b"Action=Nothing"),
            ("/", {}, b"Action=GetMetricStatistics&Period=x"),
        ):
            answer = bench.call("POST", url + target, admin, body=body, headers=headers, service="monitoring")
            assert answer.status_code == 400, (target, body, answer.text)


def test_what_is_served_is_told():
    assert {"PutMetricAlarm", "GetMetricData", "PutDashboard"} <= set(OPERATIONS)
