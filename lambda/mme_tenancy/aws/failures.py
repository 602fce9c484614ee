"""A service that does not answer, as an error of the tree."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from mme_tenancy.errors import UnavailableError

__all__ = ["is_passing", "or_unavailable"]

_BUSY = frozenset(
    {
        *("ProvisionedThroughputExceeded", "ProvisionedThroughputExceededException", "RequestLimitExceeded", "SlowDown", "ThrottlingError"),
        *("ThrottlingException", "TooManyRequestsException", "TransactionInProgressException"),
    }
)
_SERVER_ERROR = 500
_P = ParamSpec("_P")
_T = TypeVar("_T")


def is_passing(error: Exception) -> bool:
    """Whether a service was busy, failing or out of reach, which passes by; a denial or a wrong request does not."""
    if isinstance(error, ClientError):
        response: Any = error.response
        codes = {response.get("Error", {}).get("Code"), *(reason.get("Code") for reason in response.get("CancellationReasons", ()))}
        return bool(codes & _BUSY) or response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= _SERVER_ERROR
    return isinstance(error, HTTPClientError | BotoConnectionError)


def or_unavailable(call: Callable[_P, _T]) -> Callable[_P, _T]:
    """``call``, whose botocore errors become `UnavailableError` (503) with the cause behind it for the log."""

    @wraps(call)
    def called(*arguments: _P.args, **named: _P.kwargs) -> _T:
        try:
            return call(*arguments, **named)
        except (BotoCoreError, ClientError) as error:
            raise UnavailableError("the service cannot answer at the moment: try again", retry_after_seconds=2) from error

    return called
