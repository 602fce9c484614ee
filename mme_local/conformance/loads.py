"""Rules of loading models that fit."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx

from mme_local.conformance.probe import BrokenRuleError, Probe
from mme_local.conformance.rules import rule
from mme_local.conformance.sources import CONTAINER_APIS, PLATFORM

__all__ = [
    "again",
    "again_keeps",
    "broken",
    "broken_leaves_nothing",
    "concurrent",
    "concurrent_same",
    "load",
    "missing",
    "missing_leaves_nothing",
    "names",
    "ping_while_loading",
    "ready",
]

_AT_ONCE = 4
_NAME_CHARACTERS = 128


@rule("load.ok", "POST /models with a name and a folder answers 200.", CONTAINER_APIS, needs=("models",))
async def load(probe: Probe) -> None:
    """One load."""
    await probe.loaded()


@rule("load.again", "Loading a name that is loaded answers 409.", CONTAINER_APIS, needs=("models",), after=("load.ok",))
async def again(probe: Probe) -> None:
    """The same load twice."""
    probe.expect(await probe.load(await probe.loaded()), 409)


@rule("load.again-keeps", "A model stays loaded when its load is repeated.", PLATFORM, needs=("models",), after=("load.ok", "describe.ok"))
async def again_keeps(probe: Probe) -> None:
    """It is known, and answers, after the second load."""
    name = await probe.loaded()
    await probe.load(name)
    await probe.answers(name)


@rule(
    "load.ready",
    "A model answers as soon as its load is answered.",
    CONTAINER_APIS,
    needs=("models", "payload"),
    after=("load.ok",),
)
async def ready(probe: Probe) -> None:
    """An invocation right after the load."""
    probe.succeeded(await probe.invoke(await probe.loaded()))


@rule(
    "load.broken",
    "A model that cannot be loaded is refused with an error, neither 409 (it is loaded) nor 507 (others have to go).",
    PLATFORM,
    needs=("broken",),
)
async def broken(probe: Probe) -> None:
    """Once."""
    probe.refused(await probe.load(probe.name(), probe.subject.broken), 409, 507)


@rule(
    "load.broken-leaves-nothing",
    "After a failed load the model is unknown, and may be loaded again.",
    PLATFORM,
    needs=("broken",),
    after=("load.broken",),
)
async def broken_leaves_nothing(probe: Probe) -> None:
    """It is not described, not listed, and the second load does not meet the first."""
    name = probe.name()
    await probe.load(name, probe.subject.broken)
    await probe.absent(name)
    probe.refused(await probe.load(name, probe.subject.broken), 409, 507)


@rule("load.missing", "A folder that does not exist is refused with an error, neither 409 nor 507.", PLATFORM)
async def missing(probe: Probe) -> None:
    """Once."""
    probe.refused(await probe.load(probe.name(), "/opt/ml/models/no-such-model/model"), 409, 507)


@rule("load.missing-leaves-nothing", "After a load from a missing folder the model is unknown.", PLATFORM, after=("load.missing",))
async def missing_leaves_nothing(probe: Probe) -> None:
    """It is not described and not listed."""
    name = probe.name()
    await probe.load(name, "/opt/ml/models/no-such-model/model")
    await probe.absent(name)


@rule(
    "load.names",
    "Names are opaque: up to 128 letters and digits, which differ by case, starting with any of them.",
    CONTAINER_APIS,
    needs=("models",),
    after=("load.ok", "unload.ok"),
)
async def names(probe: Probe) -> None:
    """Long ones, a number, and two that differ by case only."""
    base = probe.name()
    for odd in (base * 4, f"{int(base, 16)}", f"a{base}", f"A{base}"):
        name = odd[:_NAME_CHARACTERS]
        await probe.loaded(name)
        await probe.answers(name)
    await probe.unloaded(f"A{base}")
    await probe.answers(f"a{base}")


@rule("load.concurrent", "Several models may be loaded at the same time.", PLATFORM, needs=("models",), after=("load.ok",))
async def concurrent(probe: Probe) -> None:
    """Four at once; all are known after that."""
    wanted = [probe.name() for _ in range(_AT_ONCE)]
    for response in await asyncio.gather(*(probe.load(name) for name in wanted)):
        probe.expect(response, 200)
    for name in wanted:
        await probe.answers(name)


@rule(
    "load.concurrent-same",
    "Of several loads of one name at the same time one answers 200 and the others 409.",
    CONTAINER_APIS,
    needs=("models",),
    after=("load.ok", "load.again"),
)
async def concurrent_same(probe: Probe) -> None:
    """Four at once."""
    name = probe.name()
    responses = await asyncio.gather(*(probe.load(name) for _ in range(_AT_ONCE)))
    counts = Counter(response.status_code for response in responses)
    if counts != {httpx.codes.OK: 1, httpx.codes.CONFLICT: _AT_ONCE - 1}:
        answered = ", ".join(str(response.status_code) for response in responses)
        raise BrokenRuleError(f"{_AT_ONCE} loads of one name answered {answered}: one 200 and {_AT_ONCE - 1} times 409 are expected")
    await probe.answers(name)


@rule(
    "ping.while-loading",
    "GET /ping answers 200 within 2 seconds while models are being loaded.",
    PLATFORM,
    needs=("models",),
    after=("ping.ok", "load.concurrent"),
)
async def ping_while_loading(probe: Probe) -> None:
    """Pings until four loads are done."""
    loading = [asyncio.create_task(probe.load(probe.name())) for _ in range(_AT_ONCE)]
    try:
        while True:
            await probe.ping()
            if not (await asyncio.wait(loading, timeout=0.01))[1]:
                return
    finally:
        await asyncio.gather(*loading, return_exceptions=True)
