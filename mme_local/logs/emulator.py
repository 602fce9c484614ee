# ruff: noqa: SLF001 - reaching into the pinned emulator is what this module is for
"""Where the emulator's log events and our Logs Insights meet.

The emulator is patched as in `mme_local.patches`, which checks its version.
"""

from __future__ import annotations

import contextvars
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from mme_local.cloudwatch.emf import put_embedded_metrics
from mme_local.cloudwatch.store import MetricStore
from mme_local.logs.queries import QueryRuns
from mme_local.logs.values import Event
from mme_local.wire import AwsError, error_reply, json_reply

__all__ = ["events_of", "extract_metrics", "serve_queries"]


def events_of(log_group: str, start: float, end: float) -> Callable[[], list[Event]] | None:
    """How to read the events of a log group of the request's scope, on any thread; None when there is no such group.

    Args:
        log_group: its name.
        start: epoch milliseconds, inclusive.
        end: epoch milliseconds, inclusive.
    """
    from ministack.services import cloudwatch_logs

    group = cloudwatch_logs._log_groups.get(log_group)
    if group is None:
        return None
    scope = contextvars.copy_context()
    return lambda: scope.run(_read, log_group, group, start, end)


def _read(log_group: str, group: Mapping[str, Any], start: float, end: float) -> list[Event]:
    from ministack.core.responses import get_account_id
    from ministack.services import cloudwatch_logs

    account, scope = get_account_id(), contextvars.copy_context()
    with cloudwatch_logs._log_events_lock:
        found = [
            (name, event)
            for name, stream in list(group["streams"].items())
            for event in stream["events"]
            if start <= event["timestamp"] <= end
        ]
    return [
        Event(
            partial(scope.run, _pointer, log_group, name, event),
            event["timestamp"],
            event.get("ingestionTime", event["timestamp"]),
            event["message"],
            log_group,
            name,
            account,
        )
        for name, event in found
    ]


def _pointer(log_group: str, log_stream: str, event: dict[str, Any]) -> str:
    """What GetLogRecord finds the event by, on any thread. Those of functions have none until a row of theirs is shown."""
    from ministack.services import cloudwatch_logs

    with cloudwatch_logs._log_events_lock:
        pointer = event.setdefault("eventId", str(uuid.uuid4()))
        if pointer not in cloudwatch_logs._log_records:
            cloudwatch_logs._log_records[pointer] = cloudwatch_logs._build_log_record(
                ptr=pointer, timestamp_ms=event["timestamp"], message=event["message"], log_group=log_group, log_stream=log_stream
            )
    return str(pointer)


def serve_queries(runs: QueryRuns) -> None:
    """Let the emulator's CloudWatch Logs answer queries with ours; it still authorizes the calls.

    Reason: its own queries ignore ``stats``, ``parse`` and JSON fields, and answer raw rows instead (trap 12 of the emulator).
    """
    from ministack.services import cloudwatch_logs

    _authorize_queried_groups()

    def handler(operation: str) -> Callable[[Any], Any]:
        def handle(data: Any) -> Any:
            try:
                return json_reply(runs.serve(operation, data))
            except AwsError as error:
                return error_reply(error)

        return handle

    cloudwatch_logs._start_query = handler("StartQuery")
    cloudwatch_logs._get_query_results = handler("GetQueryResults")
    cloudwatch_logs._stop_query = handler("StopQuery")

    handle_request = cloudwatch_logs.handle_request

    async def handle_with_queries(method: str, path: str, headers: Any, body: bytes, query_params: Any) -> Any:
        """The emulator's handler; it has none for DescribeQueries."""
        if headers.get("x-amz-target", "").partition(".")[2] == "DescribeQueries":
            return handler("DescribeQueries")(_document(body))
        return await handle_request(method, path, headers, body, query_params)

    cloudwatch_logs.handle_request = handle_with_queries


def _authorize_queried_groups() -> None:
    """``logs:StartQuery`` is authorized on the log group that is asked, as AWS does: on an ARN that policies match with ``:*`` at its end.

    Reason: the emulator knows the member ``logGroupName`` only and without that end, so that a policy on one log group lets nobody query
    it. Queries of several groups are authorized on ``*`` only: the emulator checks one resource a call.
    """
    from ministack.core import iam_actions

    extract = iam_actions.extract_resource_arn

    def extract_with_queries(
        service: str, method: str, path: str, headers: Any, body: bytes, query_params: Any, region: str, account_id: str
    ) -> str:
        if service != "logs" or headers.get("x-amz-target", "").rpartition(".")[2] != "StartQuery":
            return str(extract(service, method, path, headers, body, query_params, region, account_id))
        asked = _document(body)
        given = asked if isinstance(asked, dict) else {}
        named = [given.get("logGroupName"), *(given.get("logGroupNames") or ()), *(given.get("logGroupIdentifiers") or ())]
        groups = [str(name).removesuffix(":*") for name in named if name]
        if len(groups) != 1:
            return "*"
        arn = groups[0] if groups[0].startswith("arn:") else f"arn:aws:logs:{region}:{account_id}:log-group:{groups[0]}"
        return f"{arn}:log-stream:"

    iam_actions.extract_resource_arn = extract_with_queries


def _document(body: bytes) -> Any:
    try:
        return json.loads(body or b"{}")
    except ValueError:
        return None


def extract_metrics(store: MetricStore, now: Callable[[], float]) -> None:
    """Let log events in the embedded metric format become metrics, whoever writes them.

    Reason: the emulator stores them only. Its writers all tell subscription filters of what they wrote.
    """
    from ministack.services import cloudwatch_logs

    fan_out = cloudwatch_logs._fanout_to_subscription_filters

    def fan_out_and_extract(group_name: str, stream_name: str, events: Sequence[dict[str, Any]]) -> Any:
        put_embedded_metrics(store, group_name, [str(event.get("message", "")) for event in events], now())
        return fan_out(group_name, stream_name, events)

    cloudwatch_logs._fanout_to_subscription_filters = fan_out_and_extract
