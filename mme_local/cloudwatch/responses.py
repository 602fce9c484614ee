"""CloudWatch's API: one method per operation, request in, answer out."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mme_local.cloudwatch.alarms import Alarm, Alarms, HistoryItem
from mme_local.cloudwatch.dashboards import DASHBOARD_OPERATIONS, dashboard_call
from mme_local.cloudwatch.definitions import CompositeDefinition, MetricDefinition
from mme_local.cloudwatch.labels import label_of
from mme_local.cloudwatch.math_values import Series
from mme_local.cloudwatch.protocols import Call, answer, protocol_of, read_call, refusal
from mme_local.cloudwatch.publishing import check_data, put_data
from mme_local.cloudwatch.queries import metric_of, parse_queries
from mme_local.cloudwatch.statistics import parse_statistic
from mme_local.cloudwatch.store import Metric, MetricStore
from mme_local.emulator import AccessDeniedError, Request, authorize
from mme_local.wire import AwsError, Reply, ValidationError, service_model

__all__ = ["OPERATIONS", "MonitoringApi"]

_SERVED = (
    "DeleteAlarms",
    "DescribeAlarmHistory",
    "DescribeAlarms",
    "DescribeAlarmsForMetric",
    "DisableAlarmActions",
    "EnableAlarmActions",
    "GetMetricData",
    "GetMetricStatistics",
    "ListMetrics",
    "ListTagsForResource",
    "PutCompositeAlarm",
    "PutMetricAlarm",
    "PutMetricData",
    "SetAlarmState",
    "TagResource",
    "UntagResource",
)
OPERATIONS = tuple(sorted([*_SERVED, *DASHBOARD_OPERATIONS]))
"""The operations that are served."""

_PAGE, _METRICS_PAGE = 100, 500
_MOST_QUERIES, _MOST_DATAPOINTS, _MOST_STATISTICS = 500, 100_800, 1440
_RECENTLY_SECONDS = 3 * 3600
_MOST_TAGS = 50
_CHILD_MEMBERS = ("AlarmName", "AlarmArn", "StateValue", "StateUpdatedTimestamp")
Document = dict[str, Any]
Given = Mapping[str, Any]


class MonitoringApi:
    """Serves the operations of `OPERATIONS`.

    Args:
        alarms: the alarms.
        store: the metrics.
        now: the cloud's time in scaled epoch seconds.
        region: the only region that is served.
        account: account of the alarms' ARNs.
    """

    def __init__(self, alarms: Alarms, store: MetricStore, now: Callable[[], float], *, region: str, account: str) -> None:
        self._alarms, self._store, self._now, self._region, self._account = alarms, store, now, region, account
        self._handlers: Mapping[str, Callable[[Given], Document]] = {
            "DeleteAlarms": self._delete_alarms,
            "DescribeAlarmHistory": self._describe_history,
            "DescribeAlarms": self._describe_alarms,
            "DescribeAlarmsForMetric": self._describe_alarms_for_metric,
            "DisableAlarmActions": lambda given: self._enable(given, enabled=False),
            "EnableAlarmActions": lambda given: self._enable(given, enabled=True),
            "GetMetricData": self._get_metric_data,
            "GetMetricStatistics": self._get_metric_statistics,
            "ListMetrics": self._list_metrics,
            "ListTagsForResource": self._list_tags,
            "PutCompositeAlarm": self._put_composite_alarm,
            "PutMetricAlarm": self._put_metric_alarm,
            "PutMetricData": self._put_metric_data,
            "SetAlarmState": self._set_alarm_state,
            "TagResource": self._tag,
            "UntagResource": self._untag,
        }

    def reply(self, request: Request) -> Reply:
        """Read, authorize and perform one call, and answer in its protocol; never raises `AwsError` or `AccessDeniedError`."""
        protocol = protocol_of(request)
        try:
            call = read_call(request)
            return answer(protocol, call.operation, self.serve(request, call))
        except AwsError as error:
            return refusal(protocol, error)
        except AccessDeniedError as error:
            code = "AccessDenied" if error.code == "AccessDeniedException" else error.code
            return refusal(protocol, AwsError(code, error.message, 403))

    def serve(self, request: Request, call: Call) -> Document:
        """Authorize, validate and perform one call.

        Raises:
            AwsError: the operation refuses.
            AccessDeniedError: the caller may not.
        """
        operation, given = call.operation, call.parameters
        namespace = {"cloudwatch:namespace": str(given["Namespace"])} if operation == "PutMetricData" and "Namespace" in given else {}
        for resource in self._resources(operation, given):
            authorize(request, f"cloudwatch:{operation}", resource, namespace)
        if request.region != self._region:
            raise ValidationError(f"The local cloud serves CloudWatch in {self._region} only, not in {request.region}.")
        if operation in DASHBOARD_OPERATIONS:
            return dashboard_call(operation, _closed(operation, given))
        if operation not in self._handlers:
            raise AwsError("InvalidAction", f"The local cloud does not serve {operation} of CloudWatch.")
        return self._handlers[operation](_closed(operation, given))

    def _resources(self, operation: str, given: Given) -> Sequence[str]:
        """The ARNs that IAM checks (service authorization reference of CloudWatch)."""
        if "ResourceARN" in given:
            return [str(given["ResourceARN"])]
        if "Dashboard" in operation:
            names = given.get("DashboardNames") or [given.get("DashboardName", "*")]
            return [f"arn:aws:cloudwatch::{self._account}:dashboard/{name}" for name in names if isinstance(name, str)] or ["*"]
        if "Alarm" not in operation or operation == "DescribeAlarmsForMetric":
            return ["*"]
        named = given.get("AlarmNames") or [given.get("AlarmName", "*")]
        return [self._alarms.arn(str(name)) for name in named] if isinstance(named, list) else ["*"]

    def _put_metric_data(self, given: Given) -> Document:
        put_data(self._store, check_data(given, self._now()))
        return {}

    def _get_metric_statistics(self, given: Given) -> Document:
        start, end, period = _moment(given["StartTime"]), _moment(given["EndTime"]), given["Period"]
        if start >= end:
            raise AwsError("InvalidParameterValue", "The parameter StartTime must be less than the parameter EndTime.")
        if period not in (1, 5, 10, 20, 30) and period % 60:
            raise AwsError("InvalidParameterValue", f"Period {period} must be 1, 5, 10, 20, 30 or a multiple of 60 seconds.")
        if ("Statistics" in given) == ("ExtendedStatistics" in given):
            raise AwsError(
                "InvalidParameterCombination", "Exactly one of the parameters Statistics and ExtendedStatistics must be specified."
            )
        for name in given.get("ExtendedStatistics", []):
            try:
                parse_statistic(name)
            except ValueError as error:
                raise AwsError(
                    "InvalidParameterValue", f"The value {name} for parameter ExtendedStatistics is not supported: {error}"
                ) from None
        start = _rounded(start, period)
        if (count := math.ceil((end - start) / period)) > _MOST_STATISTICS:
            raise AwsError(
                "InvalidParameterCombination",
                f"You have requested up to {count} datapoints, which exceeds the limit of {_MOST_STATISTICS}. You may reduce the "
                "datapoints requested by increasing Period, or decreasing the time range.",
            )
        metric = metric_of(given)
        points = self._store.statistics(
            metric.namespace,
            metric.name,
            dict(metric.dimensions),
            start=start,
            end=end,
            period=period,
            statistics=[*given.get("Statistics", []), *given.get("ExtendedStatistics", [])],
            unit=given.get("Unit"),
        )
        extended = "ExtendedStatistics" in given
        return {
            "Label": metric.name,
            "Datapoints": [
                {
                    "Timestamp": _datetime(point.timestamp),
                    "Unit": point.unit,
                    **({"ExtendedStatistics": dict(point.values)} if extended else point.values),
                }
                for point in points
                if point.values
            ],
        }

    def _get_metric_data(self, given: Given) -> Document:
        documents, most = given["MetricDataQueries"], given.get("MaxDatapoints", _MOST_DATAPOINTS)
        start, end = _moment(given["StartTime"]), _moment(given["EndTime"])
        if not 1 <= len(documents) <= _MOST_QUERIES:
            raise ValidationError(f"{len(documents)} queries were given: between 1 and {_MOST_QUERIES} are allowed.")
        if not 1 <= most <= _MOST_DATAPOINTS:
            raise ValidationError(f"MaxDatapoints {most} must be between 1 and {_MOST_DATAPOINTS}.")
        if start >= end:
            raise ValidationError("The parameter StartTime must be less than the parameter EndTime.")
        if given.get("LabelOptions", {}).get("Timezone", "+0000") not in ("+0000", "-0000"):
            raise ValidationError("LabelOptions: the local cloud's labels have the time zone +0000 only.")
        queries = parse_queries(documents)
        start = _rounded(start, min(queries.periods(), default=60))
        found = queries.evaluate(self._store, start, end)
        newest_first = given.get("ScanBy", "TimestampDescending") == "TimestampDescending"
        flat = [
            (name, label_of(queries.by_id[name], series, self._region, self._account), _in_order(series, newest_first=newest_first))
            for name, all_series in found.items()
            for series in all_series
        ]
        return _data_page(flat, most, given.get("NextToken"))

    def _list_metrics(self, given: Given) -> Document:
        if given.get("IncludeLinkedAccounts") or "OwningAccount" in given:
            raise AwsError(
                "InvalidParameterValue", "The local cloud has one account only: leave out IncludeLinkedAccounts and OwningAccount."
            )
        filters = [(each["Name"], each.get("Value")) for each in given.get("Dimensions", [])]
        since = self._now() - _RECENTLY_SECONDS if "RecentlyActive" in given else None
        wanted = [
            metric
            for metric in self._store.metrics(since=since)
            if given.get("Namespace", metric.namespace) == metric.namespace
            and given.get("MetricName", metric.name) == metric.name
            and all(_has(metric, name, value) for name, value in filters)
        ]
        page, more = _page(wanted, given.get("NextToken"), _METRICS_PAGE)
        return {"Metrics": [_metric_document(metric) for metric in page], **more}

    def _put_metric_alarm(self, given: Given) -> Document:
        _check_tags(given.get("Tags", []))
        self._alarms.put(given)
        return {}

    def _put_composite_alarm(self, given: Given) -> Document:
        _check_tags(given.get("Tags", []))
        self._alarms.put_composite(given)
        return {}

    def _delete_alarms(self, given: Given) -> Document:
        self._alarms.delete(given["AlarmNames"])
        return {}

    def _enable(self, given: Given, *, enabled: bool) -> Document:
        self._alarms.enable_actions(given["AlarmNames"], enabled=enabled)
        return {}

    def _set_alarm_state(self, given: Given) -> Document:
        data = None
        if "StateReasonData" in given:
            try:
                data = json.loads(given["StateReasonData"])
            except ValueError:
                raise AwsError("InvalidFormat", "StateReasonData is not JSON.") from None
            if not isinstance(data, dict):
                raise AwsError("InvalidFormat", "StateReasonData is not a JSON object.")
        self._alarms.set_state(given["AlarmName"], given["StateValue"], given["StateReason"], data)
        return {}

    def _describe_alarms(self, given: Given) -> Document:
        relative = [member for member in ("ChildrenOfAlarmName", "ParentsOfAlarmName") if member in given]
        others = given.keys() - {"MaxRecords", "NextToken", *relative[:1]}
        if relative and others:
            raise ValidationError(f"{relative[0]} cannot be given together with {', '.join(sorted(others))}.")
        if "AlarmNames" in given and "AlarmNamePrefix" in given:
            raise ValidationError("AlarmNames and AlarmNamePrefix cannot be given together.")
        if relative:
            documents = [{member: document[member] for member in _CHILD_MEMBERS} for document in self._relatives(relative[0], given)]
        else:
            documents = self._alarms.describe(
                given.get("AlarmNames"),
                prefix=given.get("AlarmNamePrefix", ""),
                kinds=given.get("AlarmTypes", ("MetricAlarm",)),
                state=given.get("StateValue"),
                action_prefix=given.get("ActionPrefix", ""),
            )
        page, more = _page(documents, given.get("NextToken"), given.get("MaxRecords", _PAGE))
        kinds = {document["AlarmName"]: self._alarms.by_name[document["AlarmName"]].kind for document in page}
        return {
            "MetricAlarms": [document for document in page if kinds[document["AlarmName"]] == "MetricAlarm"],
            "CompositeAlarms": [document for document in page if kinds[document["AlarmName"]] == "CompositeAlarm"],
            "LogAlarms": [],
            **more,
        }

    def _relatives(self, member: str, given: Given) -> list[Document]:
        name = given[member]
        if member == "ChildrenOfAlarmName":
            alarm = self._alarms.by_name.get(name)
            names: Iterable[str] = (
                alarm.definition.rule.alarms if alarm is not None and isinstance(alarm.definition, CompositeDefinition) else ()
            )
        else:
            names = [
                other.name
                for other in self._alarms.by_name.values()
                if isinstance(other.definition, CompositeDefinition) and name in other.definition.rule.alarms
            ]
        return self._alarms.describe(names, kinds=("MetricAlarm", "CompositeAlarm"))

    def _describe_alarms_for_metric(self, given: Given) -> Document:
        metric = metric_of(given)

        def fits(alarm: Alarm) -> bool:
            definition = alarm.definition
            return (
                isinstance(definition, MetricDefinition)
                and definition.metric == metric
                and all(
                    given[member] == definition.request.get(member)
                    for member in ("Statistic", "ExtendedStatistic", "Period", "Unit")
                    if member in given
                )
            )

        return {"MetricAlarms": [alarm.document() for _, alarm in sorted(self._alarms.by_name.items()) if fits(alarm)]}

    def _describe_history(self, given: Given) -> Document:
        if "AlarmContributorId" in given:
            raise ValidationError("The local cloud's alarms have no contributors.")
        kinds = given.get("AlarmTypes", ("MetricAlarm",))
        start = _moment(given["StartDate"]) if "StartDate" in given else -math.inf
        end = _moment(given["EndDate"]) if "EndDate" in given else math.inf
        items = [
            item
            for item in self._alarms.history
            if item.alarm == given.get("AlarmName", item.alarm)
            and item.alarm_type in kinds
            and item.kind == given.get("HistoryItemType", item.kind)
            and start <= item.at <= end
        ]
        if given.get("ScanBy", "TimestampDescending") == "TimestampDescending":
            items.reverse()
        page, more = _page(items, given.get("NextToken"), given.get("MaxRecords", _PAGE))
        return {"AlarmHistoryItems": [_history_document(item) for item in page], **more}

    def _tagged(self, arn: str) -> Alarm:
        for alarm in self._alarms.by_name.values():
            if alarm.arn == arn:
                return alarm
        raise AwsError("ResourceNotFoundException", f"The resource {arn} does not exist.", 404)

    def _list_tags(self, given: Given) -> Document:
        return {"Tags": [{"Key": key, "Value": value} for key, value in self._tagged(given["ResourceARN"]).tags.items()]}

    def _tag(self, given: Given) -> Document:
        alarm = self._tagged(given["ResourceARN"])
        _check_tags(given["Tags"], alarm.tags)
        alarm.tags.update({tag["Key"]: tag["Value"] for tag in given["Tags"]})
        return {}

    def _untag(self, given: Given) -> Document:
        tags = self._tagged(given["ResourceARN"]).tags
        for key in given["TagKeys"]:
            tags.pop(key, None)
        return {}


def _closed(operation: str, given: Given) -> Document:
    """The validated request; members that the model does not know are refused, too."""
    validated = service_model("cloudwatch", OPERATIONS).validated(operation, given)
    if unknown := _unknown(given, validated, ""):
        raise ValidationError(f"The parameter {unknown} of {operation} is not known.")
    return validated


def _unknown(given: object, kept: object, path: str) -> str | None:
    if isinstance(given, Mapping) and isinstance(kept, Mapping):
        for name, value in given.items():
            inner = f"{path}.{name}" if path else str(name)
            if value is not None and name not in kept:
                return inner
            if value is not None and (found := _unknown(value, kept[name], inner)):
                return found
    elif isinstance(given, list) and isinstance(kept, list):
        for number, (item, kept_item) in enumerate(zip(given, kept, strict=True), 1):
            if found := _unknown(item, kept_item, f"{path}.{number}"):
                return found
    return None


def _moment(value: float | str) -> float:
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise AwsError("InvalidParameterValue", f"{value} is not a timestamp.") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return float(value)


def _datetime(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


def _rounded(start: float, period: float) -> float:
    """Start times are rounded down to the whole minute, or to the period when it is shorter."""
    step = min(period, 60)
    return math.floor(start / step) * step


def _in_order(series: Series, *, newest_first: bool) -> list[tuple[float, float]]:
    points = series.ordered()
    return points[::-1] if newest_first else points


def _data_page(flat: Sequence[tuple[str, str, list[tuple[float, float]]]], most: int, token: str | None) -> Document:
    """One page of GetMetricData: the results from the token's place on, with at most ``most`` datapoints."""
    first, offset = _place(token, 2) if token is not None else (0, 0)
    if first > len(flat):
        raise AwsError("InvalidNextToken", "The specified next token is not valid.")
    results: list[Document] = []
    for number in range(first, len(flat)):
        name, label, points = flat[number]
        begin = offset if number == first else 0
        page = points[begin : begin + most]
        most -= len(page)
        complete = begin + len(page) == len(points)
        results.append(
            {
                "Id": name,
                "Label": label,
                "Timestamps": [_datetime(moment) for moment, _ in page],
                "Values": [value for _, value in page],
                "StatusCode": "Complete" if complete else "PartialData",
            }
        )
        if not complete:
            return {"MetricDataResults": results, "Messages": [], "NextToken": _token(number, begin + len(page))}
        if most == 0 and number + 1 < len(flat):
            return {"MetricDataResults": results, "Messages": [], "NextToken": _token(number + 1, 0)}
    return {"MetricDataResults": results, "Messages": []}


def _page(items: Sequence[Any], token: str | None, most: int) -> tuple[Sequence[Any], dict[str, str]]:
    (start,) = _place(token, 1) if token is not None else (0,)
    end = start + most
    return items[start:end], {"NextToken": _token(end)} if end < len(items) else {}


def _token(*place: int) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _place(token: str, numbers: int) -> tuple[int, ...]:
    try:
        place = json.loads(base64.urlsafe_b64decode(token.encode()))
        if len(place) == numbers and all(isinstance(number, int) and number >= 0 for number in place):
            return tuple(place)
    except (ValueError, TypeError):
        pass
    raise AwsError("InvalidNextToken", "The specified next token is not valid.")


def _has(metric: Metric, name: str, value: str | None) -> bool:
    return any(its_name == name and value in (None, its_value) for its_name, its_value in metric.dimensions)


def _metric_document(metric: Metric) -> Document:
    return {
        "Namespace": metric.namespace,
        "MetricName": metric.name,
        "Dimensions": [{"Name": name, "Value": value} for name, value in metric.dimensions],
    }


def _history_document(item: HistoryItem) -> Document:
    return {
        "AlarmName": item.alarm,
        "AlarmType": item.alarm_type,
        "Timestamp": _datetime(item.at),
        "HistoryItemType": item.kind,
        "HistorySummary": item.summary,
        "HistoryData": json.dumps(item.data),
    }


def _check_tags(tags: Sequence[Mapping[str, str]], existing: Iterable[str] = ()) -> None:
    keys = [tag["Key"] for tag in tags]
    if len(set(keys)) != len(keys):
        raise AwsError("InvalidParameterValue", "A tag's key may be given once only.")
    if reserved := [key for key in keys if key.lower().startswith("aws:")]:
        raise AwsError("InvalidParameterValue", f"The tag key {reserved[0]} is reserved: keys must not begin with aws:.")
    if len({*keys, *existing}) > _MOST_TAGS:
        raise AwsError("InvalidParameterValue", f"A resource may have at most {_MOST_TAGS} tags.")
