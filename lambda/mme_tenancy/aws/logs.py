"""CloudWatch Logs Insights: queries that are started, polled and stopped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from botocore.exceptions import ClientError

from mme_tenancy.log_queries import MOST_ROWS, QueriesBusyError, Query, QueryAnswer, QueryFailedError

__all__ = ["LogsInsights"]

_UNDER_WAY = frozenset({"Scheduled", "Running", "Unknown"})
_BUSY = frozenset({"LimitExceededException", "ServiceUnavailableException", "ThrottlingException"})
_WRONG = frozenset({"MalformedQueryException", "InvalidParameterException", "ResourceNotFoundException"})


class LogsInsights:
    """`mme_tenancy.log_queries.LogQueries` on log groups.

    Args:
        client: CloudWatch Logs' client.
        log_groups: names of the groups, at most 50.
    """

    def __init__(self, client: Any, log_groups: Iterable[str]) -> None:
        self._client = client
        self._log_groups = list(log_groups)

    def start(self, query: Query) -> str:
        """Start a query; raises `QueriesBusyError` at the account's limit of concurrent queries, `QueryFailedError` if it is refused."""
        try:
            answer: Any = self._client.start_query(
                logGroupNames=self._log_groups, startTime=query.start, endTime=query.end, queryString=query.text, limit=MOST_ROWS
            )
        except ClientError as error:
            raise _translated(error) from error
        return str(answer["queryId"])

    def poll(self, query_id: str) -> QueryAnswer | None:
        """The answer; ``None`` while the query runs. Raises `QueryFailedError`."""
        rows: list[dict[str, str]] = []
        page: dict[str, Any] = {}
        while True:
            try:
                answer: Any = self._client.get_query_results(queryId=query_id, **page)
            except ClientError as error:
                if _code(error) in _BUSY:
                    return None
                raise _translated(error) from error
            status = answer["status"]
            if status in _UNDER_WAY:
                return None
            if status != "Complete":
                raise QueryFailedError(f"the query {query_id} ended as {status}")
            rows += [{column["field"]: column["value"] for column in row} for row in answer["results"]]
            if "nextToken" not in answer:
                return QueryAnswer(tuple(rows), answer.get("statistics", {}).get("bytesScanned", 0.0))
            page = {"nextToken": answer["nextToken"]}

    def stop(self, query_id: str) -> None:
        """Stop a query; one that has ended, or that cannot be stopped now, is left: it ends by itself."""
        try:
            self._client.stop_query(queryId=query_id)
        except ClientError as error:
            if _code(error) not in _BUSY | _WRONG:
                raise


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _translated(error: ClientError) -> Exception:
    code = _code(error)
    if code in _BUSY:
        return QueriesBusyError(str(error))
    return QueryFailedError(str(error)) if code in _WRONG else error
