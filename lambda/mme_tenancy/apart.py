"""Work on a thread of its own: for what is rare and may hang, so that whoever waits for it can give up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

__all__ = ["run_apart"]

_T = TypeVar("_T")


def run_apart(call: Callable[[], _T], *, name: str) -> Future[_T]:
    """Begin ``call`` on a daemon thread, which holds up neither others nor the end of the process.

    Args:
        call: what is done; what it raises is the future's exception, as is the `RuntimeError` of a thread that cannot be begun.
        name: of the thread.
    """
    answer: Future[_T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        answer.set_exception(error)
    return answer
