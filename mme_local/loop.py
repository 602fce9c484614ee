"""Calling the gateway's event loop from its worker threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["LoopBridge"]

Result = TypeVar("Result")


class LoopBridge:
    """Runs functions on an event loop for other threads, so that the state they touch needs no locks.

    Args:
        loop: the running loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, function: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a coroutine function on the loop and wait; raises what it raises. Never call it on the loop itself."""
        return asyncio.run_coroutine_threadsafe(function(), self._loop).result()

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function on the loop and wait; raises what it raises."""

        async def _call() -> Result:
            return function()

        return self.run(_call)
