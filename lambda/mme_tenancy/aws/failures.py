"""A service that does not answer, as an error of the tree."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from mme_tenancy.errors import UnavailableError

__all__ = ["or_unavailable"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def or_unavailable(call: Callable[_P, _T]) -> Callable[_P, _T]:
    """``call``, whose botocore errors become `UnavailableError` (503) with the cause behind it for the log."""

    @wraps(call)
    def called(*arguments: _P.args, **named: _P.kwargs) -> _T:
        try:
            return call(*arguments, **named)
        except (BotoCoreError, ClientError) as error:
            raise UnavailableError("the service cannot answer at the moment: try again", retry_after_seconds=2) from error

    return called
