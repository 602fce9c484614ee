"""The query language of Logs Insights: a table of queries with answers known beforehand."""

import json
from dataclasses import replace
from functools import partial

import pytest

from mme_local.logs.evaluation import evaluate
from mme_local.logs.language import QuerySyntaxError, parse_query
from mme_local.logs.values import Event

BASE = 1_800_000_000_000  # 2027-01-15 08:00:00 UTC, on a full hour
GROUP = "/aws/lambda/invoke"

MESSAGES = [
    (0, {"tenant": "acme", "model": "m1", "bytes": 100, "cold": True, "latency_ms": 12.5, "http": {"status": 200}, "tags": ["a", "b"]}),
    (60, {"tenant": "acme", "model": "m2", "bytes": 200, "cold": False, "latency_ms": 7, "http": {"status": 200}}),
    (
        120,
        {"tenant": "beta", "model": "m1", "bytes": 300, "cold": False, "latency_ms": 30, "http": {"status": 500}, "error": "Timeout: 60 s"},
    ),
    (360, {"tenant": "acme", "model": "m1", "bytes": 400, "cold": False, "latency_ms": 9, "http": {"status": 200}, "note": None}),
    (420, "plain text of tenant=gamma bytes=77 end"),
    (480, "REPORT RequestId: r-1\tDuration: 12.25 ms\tBilled Duration: 13 ms\tMemory Size: 512 MB\tMax Memory Used: 90 MB"),
]
EVENTS = [
    Event(
        partial(str, f"p{number}"),
        BASE + 1000 * second,
        BASE + 1000 * second + 5,
        text if isinstance(text, str) else json.dumps(text),
        GROUP,
        "s",
        "000000000000",
    )
    for number, (second, text) in enumerate(MESSAGES)
]


def ask(query):
    return [dict(row) for row in evaluate(parse_query(query), EVENTS).rows]


def shown(query):
    """The rows without ``@ptr``."""
    return [{name: value for name, value in row.items() if name != "@ptr"} for row in ask(query)]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        # fields, aliases, discovery
        ("fields tenant | filter bytes = 100", [{"tenant": "acme"}]),
        ("fields tenant as t, bytes * 2 as double | filter bytes = 100", [{"t": "acme", "double": "200"}]),
        ("fields bytes + 1 | filter bytes = 100", [{"bytes + 1": "101"}]),
        ("fields http.status, tags.0, tags.1 | filter bytes = 100", [{"http.status": "200", "tags.0": "a", "tags.1": "b"}]),
        ("fields cold, latency_ms | filter bytes = 100", [{"cold": "1", "latency_ms": "12.5"}]),
        ("fields missing, tenant | filter bytes = 100", [{"tenant": "acme"}]),
        ("fields tenant | fields model | filter bytes = 300", [{"tenant": "beta", "model": "m1"}]),
        ("fields `http.status` | filter bytes = 300", [{"http.status": "500"}]),
        ("fields @logStream, @log | filter bytes = 100", [{"@logStream": "s", "@log": "000000000000:/aws/lambda/invoke"}]),
        (
            "fields @timestamp, @ingestionTime | filter bytes = 100",
            [{"@timestamp": "2027-01-15 08:00:00.000", "@ingestionTime": "2027-01-15 08:00:00.005"}],
        ),
        (
            "fields @requestId, @duration, @billedDuration, @memorySize, @maxMemoryUsed | filter @type = 'REPORT'",
            [
                {
                    "@requestId": "r-1",
                    "@duration": "12.25",
                    "@billedDuration": "13",
                    "@memorySize": "512000000",
                    "@maxMemoryUsed": "90000000",
                }
            ],
        ),
        (
            "fields tenant | display model, bytes | filter bytes < 250 | sort bytes asc",
            [{"model": "m1", "bytes": "100"}, {"model": "m2", "bytes": "200"}],
        ),
        ("FIELDS tenant | FILTER bytes = 100 | LIMIT 1", [{"tenant": "acme"}]),
        ("fields tenant # a comment | with a bar\n| filter bytes = 100", [{"tenant": "acme"}]),
        # filter: comparisons
        ("filter bytes > 200 | fields bytes | sort bytes asc", [{"bytes": "300"}, {"bytes": "400"}]),
        ("filter bytes >= 200 and bytes <= 300 | fields bytes | sort bytes desc", [{"bytes": "300"}, {"bytes": "200"}]),
        ("filter bytes = '100' | fields bytes", [{"bytes": "100"}]),
        ("filter tenant != 'acme' | fields tenant", [{"tenant": "beta"}]),
        ("filter not tenant = 'acme' and ispresent(tenant) | fields tenant", [{"tenant": "beta"}]),
        ("filter tenant > 'b' | fields tenant", [{"tenant": "beta"}]),
        ("filter cold = true | fields bytes", [{"bytes": "100"}]),
        ("filter cold and bytes > 0 | fields bytes", [{"bytes": "100"}]),
        ("filter missing = 1 or bytes = 100 | fields bytes", [{"bytes": "100"}]),
        ("filter bytes = 100 or bytes = 200 and tenant = 'beta' | fields bytes", [{"bytes": "100"}]),
        ("filter (bytes = 100 or bytes = 300) and tenant = 'beta' | fields bytes", [{"bytes": "300"}]),
        ("filter bytes - 50 = 50 | fields bytes", [{"bytes": "100"}]),
        ("filter -bytes = -100 | fields bytes", [{"bytes": "100"}]),
        ("filter tenant in ['beta', 'gamma'] | fields bytes", [{"bytes": "300"}]),
        ("filter bytes not in [100, 200, 300] and ispresent(bytes) | fields bytes", [{"bytes": "400"}]),
        ("filter http.status = 500 | fields error", [{"error": "Timeout: 60 s"}]),
        ("filter ispresent(note) | fields bytes", []),
        ("filter @timestamp >= 1800000360000 and ispresent(bytes) | fields bytes", [{"bytes": "400"}]),
        # filter: like
        ("filter error like 'Timeout' | fields bytes", [{"bytes": "300"}]),
        ("filter error like 'timeout' | fields bytes", []),
        ("filter error like /^Time\\w+: \\d+/ | fields bytes", [{"bytes": "300"}]),
        ("filter error like /(?i)timeout/ | fields bytes", [{"bytes": "300"}]),
        ("filter error =~ /60 s$/ | fields bytes", [{"bytes": "300"}]),
        ("filter @message not like /acme|beta|REPORT/ | fields @message", [{"@message": "plain text of tenant=gamma bytes=77 end"}]),
        ("filter error like /a\\/b/ | fields bytes", []),
        # parse
        (
            'parse "tenant=* bytes=* end" as who, size | filter ispresent(who) | fields who, size + 1 as more',
            [{"who": "gamma", "more": "78"}],
        ),
        ("parse @message 'plain * of' as word | filter ispresent(word) | fields word", [{"word": "text"}]),
        ("parse error '*: *' as kind, rest | filter ispresent(kind) | fields kind, rest", [{"kind": "Timeout", "rest": "60 s"}]),
        (
            r"parse @message /tenant=(?<who>\w+) bytes=(?<size>\d+)/ | filter ispresent(who) | fields who, size",
            [{"who": "gamma", "size": "77"}],
        ),
        # stats
        ("stats count(*)", [{"count(*)": "6"}]),
        ("stats count(*) as n, count(bytes) as of_bytes, count() as all", [{"n": "6", "of_bytes": "4", "all": "6"}]),
        (
            "stats sum(bytes) as s, avg(bytes) as a, min(bytes) as low, max(bytes) as high",
            [{"s": "1000", "a": "250", "low": "100", "high": "400"}],
        ),
        (
            "stats pct(bytes, 50) as half, pct(bytes, 100) as most, pct(bytes, 95) as p95, median(bytes) as m",
            [{"half": "250", "most": "400", "p95": "385", "m": "250"}],
        ),
        ("stats stddev(bytes) as d", [{"d": "111.80339887498948"}]),
        ("stats count_distinct(tenant) as t, count_distinct(model) as m", [{"t": "2", "m": "2"}]),
        ("stats earliest(bytes) as first, latest(bytes) as last", [{"first": "100", "last": "400"}]),
        ("stats sum(bytes) / count(*) as mean, sum(bytes) - 1 as less", [{"mean": "166.66666666666666", "less": "999"}]),
        ("stats floor(sum(bytes) / 300) as whole", [{"whole": "3"}]),
        ("stats sum(missing) as s, avg(missing) as a, max(missing) as m, count(missing) as c", [{"c": "0"}]),
        (
            "filter ispresent(tenant) | stats count(*) as n by tenant | sort n desc",
            [{"tenant": "acme", "n": "3"}, {"tenant": "beta", "n": "1"}],
        ),
        (
            "filter ispresent(tenant) | stats sum(bytes) as b, sum(cold) as c by tenant, model | sort b asc",
            [
                {"tenant": "acme", "model": "m2", "b": "200", "c": "0"},
                {"tenant": "beta", "model": "m1", "b": "300", "c": "0"},
                {"tenant": "acme", "model": "m1", "b": "500", "c": "1"},
            ],
        ),
        (
            "stats count(*) as n by bin(5m) | sort `bin(5m)` asc",
            [{"bin(5m)": "2027-01-15 08:00:00.000", "n": "3"}, {"bin(5m)": "2027-01-15 08:05:00.000", "n": "3"}],
        ),
        ("stats count(*) as n by bin(1h) as hour", [{"hour": "2027-01-15 08:00:00.000", "n": "6"}]),
        ("stats count(*) by bin(30s) as t | sort t asc | limit 1", [{"t": "2027-01-15 08:00:00.000", "count(*)": "1"}]),
        ("stats max(@timestamp) as last", [{"last": "2027-01-15 08:08:00.000"}]),
        ("filter ispresent(tenant) | stats count(*) as n by tenant | filter n > 1", [{"tenant": "acme", "n": "3"}]),
        ("filter ispresent(tenant) | stats sum(bytes) as b by tenant | stats max(b) as most", [{"most": "700"}]),
        ("filter bytes = 1 | stats count(*) as n", [{"n": "0"}]),
        ("filter bytes = 1 | stats count(*) as n by tenant", []),
        ("stats count(*) as n by tenant | filter not ispresent(tenant)", [{"n": "2"}]),
        # sort, limit, dedup
        (
            "filter ispresent(bytes) | fields bytes | sort tenant asc, bytes desc",
            [{"bytes": "400"}, {"bytes": "200"}, {"bytes": "100"}, {"bytes": "300"}],
        ),
        ("filter ispresent(bytes) | fields bytes | sort bytes desc | limit 2", [{"bytes": "400"}, {"bytes": "300"}]),
        ("filter ispresent(bytes) | fields bytes", [{"bytes": "400"}, {"bytes": "300"}, {"bytes": "200"}, {"bytes": "100"}]),
        ("filter ispresent(bytes) | fields bytes | sort @timestamp asc | limit 1", [{"bytes": "100"}]),
        (
            "filter ispresent(tenant) | fields tenant, bytes | dedup tenant",
            [{"tenant": "acme", "bytes": "400"}, {"tenant": "beta", "bytes": "300"}],
        ),
        ("filter ispresent(tenant) | fields bytes | sort bytes asc | dedup tenant, model | limit 2", [{"bytes": "100"}, {"bytes": "200"}]),
        ("fields note | filter bytes > 0 | dedup note", [{}, {}, {}, {}]),
        # functions
        (
            "filter bytes = 100 | fields strlen(tenant) as n, toupper(tenant) as u, concat(tenant, '/', model) as k",
            [{"n": "4", "u": "ACME", "k": "acme/m1"}],
        ),
        (
            "filter bytes = 100 | fields substr(tenant, 1) as a, substr(tenant, 1, 2) as b, replace(tenant, 'c', 'k') as r",
            [{"a": "cme", "b": "cm", "r": "akme"}],
        ),
        (
            "filter bytes = 100 | fields trim('  x ') as t, strcontains(tenant, 'cm') as c, isempty(missing) as e, isblank(' ') as b",
            [{"t": "x", "c": "1", "e": "1", "b": "1"}],
        ),
        (
            "filter bytes = 100 | fields abs(-2) as a, ceil(1.2) as c, floor(1.8) as f,sqrt(9) as s, greatest(1, 3) as g, least(1, 3) as l",
            [{"a": "2", "c": "2", "f": "1", "s": "3", "g": "3", "l": "1"}],
        ),
        ("filter bytes = 100 | fields 7 % 4 as m, 2 ^ 3 as p, 1 / 0 as nothing, 10 / 4 as q", [{"m": "3", "p": "8", "q": "2.5"}]),
        ("filter bytes = 100 | fields coalesce(missing, tenant) as c, log(1) as l", [{"c": "acme", "l": "0"}]),
        (
            "filter bytes = 100 | fields tomillis(@timestamp) as ms, frommillis(0) as began",
            [{"ms": "1800000000000", "began": "1970-01-01 00:00:00.000"}],
        ),
    ],
)
def test_a_query_has_the_known_answer(query, rows):
    assert shown(query) == rows


def test_without_fields_time_and_message_are_shown_newest_first():
    rows = ask("filter bytes > 0")
    assert [list(row) for row in rows] == [["@timestamp", "@message", "@ptr"]] * 4
    assert [row["@ptr"] for row in rows] == ["p3", "p2", "p1", "p0"]


def test_rows_of_stats_have_no_pointer():
    assert all("@ptr" not in row for row in ask("stats count(*) by tenant"))
    assert all("@ptr" in row for row in ask("fields tenant"))


@pytest.mark.parametrize(
    ("query", "made"),
    [("filter bytes > 0 | limit 3", 2), ("stats count(*) by tenant", 0), ("fields tenant | sort bytes desc | limit 1", 1)],
)
def test_pointers_are_made_for_the_rows_that_are_shown(query, made):
    pointed = []
    events = [replace(event, pointer=lambda event=event: pointed.append(event) or "p") for event in EVENTS]
    evaluate(parse_query(query), events, limit=2)
    assert len(pointed) == made


def test_the_smaller_limit_counts_and_the_matches_are_told():
    answer = evaluate(parse_query("filter bytes > 0 | limit 3"), EVENTS, limit=2)
    assert (len(answer.rows), answer.matched, answer.scanned) == (2, 4, 6)
    assert answer.scanned_bytes == sum(len(event.message) for event in EVENTS)


def test_texts_sort_by_runs_of_digits_and_before_numbers():
    names = ["m10", "m9", "b", "10", "9", "m9a"]
    events = [Event(partial(str, f"p{name}"), BASE, BASE, json.dumps({"name": name}), GROUP, "s", "0") for name in names]
    rows = evaluate(parse_query("fields name | sort name asc"), events).rows
    assert [row[0][1] for row in rows] == ["b", "m9", "m9a", "m10", "9", "10"]


@pytest.mark.parametrize(
    ("query", "text", "place"),
    [
        ("", "ends where one of fields", (0, 0)),
        ("select tenant", "unexpected 'select'", (0, 6)),
        ("fields tenant | pattern @message", "unexpected 'pattern'", (16, 23)),
        ("fields tenant | diff", "unexpected 'diff'", None),
        ("fields tenant | unmask @message", "unexpected 'unmask'", None),
        ("SOURCE logGroups() | fields tenant", "unexpected 'SOURCE'", None),
        ("fields", "ends where", (6, 6)),
        ("fields tenant |", "ends where one of", None),
        ("fields tenant model", "'|' or the end", (14, 19)),
        ("fields sum(bytes)", "in stats only", (7, 10)),
        ("filter count(*) > 1", "in stats only", None),
        ("fields nonsense(bytes)", "is not known", (7, 15)),
        ("fields strlen()", "takes 1 arguments", None),
        ("fields strlen(a, b)", "takes 1 arguments", None),
        ("stats bytes by tenant", "is no aggregate", (6, 11)),
        ("stats sum(bytes) + latency_ms", "is no aggregate", None),
        ("stats 1 + 1", "is no aggregate", None),
        ("stats sum(sum(bytes))", "in stats only", None),
        ("stats pct(bytes)", "pct takes 2", None),
        ("stats pct(bytes, 101)", "between 0 and 100", None),
        ("stats pct(bytes, tenant)", "between 0 and 100", None),
        ("stats percentile(bytes, 5)", "is not known", None),
        ("stats count(*) by", "ends where", None),
        ("stats count(*) by bin(5)", "a span such as", None),
        ("stats count(*) by bin(5y)", "is not supported", None),
        ("stats count(*) by bin(0m)", "is not supported", None),
        ("sort bytes sideways", "'|' or the end", None),
        ("sort by bytes", "unexpected 'by'", None),
        ("limit 0", "not between 1 and 10000", None),
        ("limit 10001", "not between 1 and 10000", (6, 11)),
        ("limit 1.5", "a number of rows", None),
        ("limit ten", "a number of rows", None),
        ("filter tenant like acme", "a text or a regular expression", None),
        ("filter tenant like /a(/", "not valid", None),
        ("filter tenant like /a", "does not end with '/'", None),
        ("filter tenant in 'acme'", "'[' is expected", None),
        ("filter tenant in ['acme'", "']' is expected", None),
        ("filter tenant not 'acme'", "like or in", None),
        ("filter (bytes = 1", "')' is expected", None),
        ("filter bytes == 1", "a field, a value", None),
        ("filter bytes = ", "ends where", None),
        ("filter bytes ~ 1", "unexpected '~'", None),
        ("filter 'open", "unexpected", None),
        ("parse @message 'a * b' as x, y", "1 asterisks have 2 names", None),
        ("parse @message 'a * b'", "'as' is expected", None),
        (r"parse @message /(\d+)/", "no named group", None),
        ("parse @message", "a text with asterisks", None),
        ("dedup tenant | fields bytes", "the only command that may follow dedup", None),
        ("fields tenant as", "ends where a name", None),
        ("fields tenant as by", "a name is expected", None),
        ("fields " + "(" * 60 + "1" + ")" * 60, "less nesting", None),
        ("filter " + "not " * 60 + "a", "less nesting", None),
    ],
)
def test_what_is_not_evaluated_is_refused_with_its_place(query, text, place):
    with pytest.raises(QuerySyntaxError) as refused:
        parse_query(query)
    assert text in str(refused.value)
    assert 0 <= refused.value.start <= refused.value.end <= len(query)
    if place is not None:
        assert (refused.value.start, refused.value.end) == place
