"""Logs Insights and embedded metrics through the emulator: real log groups, real functions, real clients."""

from __future__ import annotations

import json
import time

import pytest
from botocore.exceptions import ClientError

from tests.local.conftest import allow

GROUP = "/ours/requests"


@pytest.fixture
def logs(bench):
    client = bench.client("logs")
    client.create_log_group(logGroupName=GROUP)
    client.create_log_stream(logGroupName=GROUP, logStreamName="s")
    return client


@pytest.fixture
def lines(logs):
    """A hundred events of the last hundred seconds."""
    now = int(time.time())
    events = [
        {"timestamp": (now - 100 + number) * 1000, "message": json.dumps({"tenant": f"t{number % 3}", "bytes": number})}
        for number in range(100)
    ]
    logs.put_log_events(logGroupName=GROUP, logStreamName="s", logEvents=events)
    return now


def span(now):
    return {"startTime": now - 1000, "endTime": now + 1000}


def results(bench, logs, query, now=None, **given):
    asked = {"logGroupName": GROUP, **span(now or int(time.time())), "queryString": query, **given}
    started = logs.start_query(**asked)["queryId"]

    def done():
        answer = logs.get_query_results(queryId=started)
        return answer if answer["status"] not in ("Scheduled", "Running") else None

    answer = bench.wait_for(done)
    assert answer["status"] == "Complete"
    return answer


def rows(answer):
    return [{cell["field"]: cell["value"] for cell in row} for row in answer["results"]]


def test_stats_of_json_fields_are_answered(bench, logs, lines):
    answer = results(bench, logs, "filter bytes >= 10 | stats count(*) as n, sum(bytes) as total by tenant | sort tenant asc", lines)
    assert rows(answer) == [
        {"tenant": "t0", "n": "30", "total": "1665"},
        {"tenant": "t1", "n": "30", "total": "1605"},
        {"tenant": "t2", "n": "30", "total": "1635"},
    ]
    assert (answer["statistics"]["recordsMatched"], answer["statistics"]["recordsScanned"]) == (90.0, 100.0)
    assert answer["statistics"]["bytesScanned"] > 0


def test_the_time_range_is_in_seconds_and_both_ends_count(bench, logs, lines):
    def count(start, end):
        (row,) = rows(results(bench, logs, "stats count(*) as n", startTime=start, endTime=end))
        return row["n"]

    assert count(lines - 100, lines - 100) == "1"
    assert count(lines - 100, lines - 91) == "10"
    assert count(lines - 1000, lines - 101) == "0"


def test_other_log_groups_do_not_count_and_several_can_be_asked(bench, logs, lines):
    logs.create_log_group(logGroupName="/other")
    logs.create_log_stream(logGroupName="/other", logStreamName="s")
    logs.put_log_events(logGroupName="/other", logStreamName="s", logEvents=[{"timestamp": lines * 1000, "message": "x"}])
    assert rows(results(bench, logs, "stats count(*) as n", lines)) == [{"n": "100"}]
    arn = f"arn:aws:logs:us-east-1:000000000000:log-group:{GROUP}"
    both = logs.start_query(logGroupIdentifiers=[arn, "/other"], queryString="stats count(*) as n by @log | sort n asc", **span(lines))[
        "queryId"
    ]
    answer = bench.wait_for(lambda: (found := logs.get_query_results(queryId=both))["status"] == "Complete" and found)
    assert [row["n"] for row in rows(answer)] == ["1", "100"]


def test_results_have_pointers_that_lead_to_the_event(bench, logs, lines):
    (row,) = rows(results(bench, logs, "fields @message | sort bytes desc | limit 1", lines))
    record = logs.get_log_record(logRecordPointer=row["@ptr"])["logRecord"]
    assert json.loads(record["@message"]) == json.loads(row["@message"]) == {"tenant": "t0", "bytes": 99}


def test_results_come_in_pages(bench, logs, lines):
    started = logs.start_query(logGroupName=GROUP, queryString="fields bytes", limit=5, **span(lines))["queryId"]
    bench.wait_for(lambda: logs.get_query_results(queryId=started)["status"] == "Complete")
    first = logs.get_query_results(queryId=started, maxItems=3)
    second = logs.get_query_results(queryId=started, maxItems=3, nextToken=first["nextToken"])
    assert [len(page["results"]) for page in (first, second)] == [3, 2]
    assert "nextToken" not in second


@pytest.mark.parametrize(
    "query", ["fields @message | pattern @message", "stats total(bytes)", "fields @message | limit 10001", "filter a ="]
)
def test_a_query_that_is_not_evaluated_is_refused_as_malformed(logs, lines, query):
    with pytest.raises(logs.exceptions.MalformedQueryException) as refused:
        logs.start_query(logGroupName=GROUP, queryString=query, **span(lines))
    error = refused.value.response["queryCompileError"]
    assert error["message"]
    assert 0 <= error["location"]["startCharOffset"] <= error["location"]["endCharOffset"] <= len(query)


@pytest.mark.parametrize(
    ("members", "code", "text"),
    [
        ({"logGroupName": "/nowhere"}, "ResourceNotFoundException", "does not exist"),
        ({"logGroupName": None}, "InvalidParameterException", "Exactly one of"),
        ({"logGroupNames": [GROUP]}, "InvalidParameterException", "Exactly one of"),
        ({"logGroupName": None, "logGroupNames": [f"g{number}" for number in range(51)]}, "InvalidParameterException", "at most 50"),
        ({"startTime": 2, "endTime": 1}, "InvalidParameterException", "must not be after"),
        ({"startTime": 0, "endTime": 1_800_000_000_000}, "InvalidParameterException", "looks like milliseconds"),
        ({"limit": 10_001}, "InvalidParameterException", "at most 10000"),
        ({"queryLanguage": "SQL"}, "InvalidParameterException", "use CWLI"),
    ],
)
def test_a_request_that_is_not_valid_is_refused(logs, lines, members, code, text):
    asked = {"logGroupName": GROUP, "queryString": "fields @message", **span(lines), **members}
    with pytest.raises(ClientError, match=text) as refused:
        logs.start_query(**{name: value for name, value in asked.items() if value is not None})
    assert refused.value.response["Error"]["Code"] == code


def test_queries_are_described_and_unknown_or_ended_ones_are_not_stopped(bench, logs, lines):
    results(bench, logs, "stats count(*)", lines)
    (described,) = logs.describe_queries(logGroupName=GROUP, status="Complete")["queries"]
    assert (described["queryString"], described["logGroupName"]) == ("stats count(*)", GROUP)
    assert logs.describe_queries(logGroupName="/other")["queries"] == logs.describe_queries(status="Running")["queries"] == []
    with pytest.raises(logs.exceptions.InvalidParameterException, match="only one that runs"):
        logs.stop_query(queryId=described["queryId"])
    for call in (logs.stop_query, logs.get_query_results):
        with pytest.raises(logs.exceptions.ResourceNotFoundException):
            call(queryId="nobody")


def test_queries_are_authorized(bench, logs, lines):
    arn = "arn:aws:logs:us-east-1:000000000000:log-group:/another:*"
    client = bench.client("logs", bench.user(allow("logs:StartQuery", arn)))
    with pytest.raises(ClientError, match="not authorized"):
        client.start_query(logGroupName=GROUP, queryString="fields @message", **span(lines))
    with pytest.raises(ClientError, match="not authorized"):
        client.describe_queries()


ARN = "arn:aws:logs:us-east-1:000000000000:log-group:/ours/requests"


@pytest.mark.parametrize("asked", [{"logGroupName": GROUP}, {"logGroupNames": [GROUP]}, {"logGroupIdentifiers": [ARN]}])
def test_a_policy_on_one_log_group_lets_query_that_one_however_it_is_named(bench, logs, lines, asked):
    client = bench.client("logs", bench.user(allow("logs:StartQuery", f"{ARN}:*")))
    assert client.start_query(queryString="fields @message", **asked, **span(lines))["queryId"]


@pytest.mark.parametrize(
    ("resource", "asked"),
    [
        (ARN, {"logGroupNames": [GROUP]}),
        ("arn:aws:logs:us-east-1:000000000000:log-group:/ours:*", {"logGroupNames": [GROUP]}),
        (f"{ARN}:*", {"logGroupNames": ["/ours/requests-of-others"]}),
        (f"{ARN}:*", {"logGroupNames": [GROUP, "/ours/requests-of-others"]}),
        (f"{ARN}:*", {"logGroupIdentifiers": [f"{ARN}-of-others"]}),
    ],
)
def test_a_policy_on_one_log_group_lets_query_no_other(bench, logs, lines, resource, asked):
    client = bench.client("logs", bench.user(allow("logs:StartQuery", resource)))
    with pytest.raises(ClientError, match="not authorized"):
        client.start_query(queryString="fields @message", **asked, **span(lines))


def test_what_a_function_prints_becomes_metrics_and_rows(bench):
    code = """
        import json, time
        def handler(event, context):
            directive = {"Namespace": "Platform", "Dimensions": [["endpoint"]], "Metrics": [{"Name": "cold", "Unit": "Count"}]}
            line = {"_aws": {"Timestamp": int(time.time() * 1000), "CloudWatchMetrics": [directive]}, "endpoint": "ours"}
            for number, tenant in enumerate(("acme", "beta", "acme")):
                print(json.dumps({**line, "tenant": tenant, "cold": number % 2}))
            print(json.dumps({**line, "endpoint": 1, "cold": 5}))
    """
    name = bench.function(code).rpartition(":")[2]
    bench.client("lambda").invoke(FunctionName=name)
    logs, cloudwatch = bench.client("logs"), bench.client("cloudwatch")
    (metric,) = bench.wait_for(lambda: cloudwatch.list_metrics(Namespace="Platform")["Metrics"])
    assert metric["Dimensions"] == [{"Name": "endpoint", "Value": "ours"}]
    now = time.time()
    (point,) = cloudwatch.get_metric_statistics(
        Namespace="Platform",
        MetricName="cold",
        Dimensions=metric["Dimensions"],
        StartTime=now - 600,
        EndTime=now + 600,
        Period=1200,
        Statistics=["Sum", "SampleCount"],
    )["Datapoints"]
    assert (point["Sum"], point["SampleCount"], point["Unit"]) == (1.0, 3.0, "Count")
    (errors,) = cloudwatch.list_metrics(Namespace="AWS/Logs")["Metrics"]
    assert errors["MetricName"] == "EMFValidationErrors"
    query = "filter ispresent(tenant) | stats count(*) as n, sum(cold) as cold by tenant | sort tenant asc"
    answer = results(bench, logs, query, logGroupName=f"/aws/lambda/{name}")
    assert rows(answer) == [{"tenant": "acme", "n": "2", "cold": "0"}, {"tenant": "beta", "n": "1", "cold": "1"}]
    (report,) = rows(
        results(bench, logs, "filter @type = 'REPORT' | stats count(*) as n, max(@duration) as most", logGroupName=f"/aws/lambda/{name}")
    )
    assert (report["n"], float(report["most"]) >= 0) == ("1", True)


def test_put_log_events_become_metrics(bench, logs):
    now = int(time.time() * 1000)
    directive = {"Namespace": "Platform", "Dimensions": [[]], "Metrics": [{"Name": "loads"}]}
    message = {"_aws": {"Timestamp": now, "CloudWatchMetrics": [directive]}, "loads": [1, 2]}
    logs.put_log_events(
        logGroupName=GROUP,
        logStreamName="s",
        logEvents=[{"timestamp": now, "message": json.dumps(message)}, {"timestamp": now, "message": "loads 5"}],
    )
    assert bench.client("cloudwatch").list_metrics()["Metrics"] == [{"Namespace": "Platform", "MetricName": "loads", "Dimensions": []}]
