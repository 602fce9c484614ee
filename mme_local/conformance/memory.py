"""Rules of containers that run out of memory, and of their state when everything else was checked."""

from __future__ import annotations

import httpx

from mme_local.conformance.probe import BrokenRuleError, Probe, seen
from mme_local.conformance.rules import rule
from mme_local.conformance.sources import CONTAINER_APIS, PLATFORM

__all__ = ["alive", "full", "full_recovers", "too_large", "too_large_leaves_nothing"]


@rule("load.too-large", "A load that does not fit into memory answers 507.", CONTAINER_APIS, needs=("too_large",))
async def too_large(probe: Probe) -> None:
    """Once."""
    probe.expect(await probe.load(probe.name(), probe.subject.too_large), 507)


@rule(
    "load.too-large-leaves-nothing",
    "After a 507 the model is unknown, and may be loaded again.",
    PLATFORM,
    needs=("too_large",),
    after=("load.too-large", "describe.unknown"),
)
async def too_large_leaves_nothing(probe: Probe) -> None:
    """It is not described, not listed, and the second load does not meet the first."""
    name = probe.name()
    await probe.load(name, probe.subject.too_large)
    await probe.absent(name)
    probe.expect(await probe.load(name, probe.subject.too_large), 507)


async def _fill(probe: Probe) -> tuple[list[str], str]:
    """Load until a load answers 507: the loaded ones and that one."""
    names: list[str] = []
    while len(names) < probe.subject.fill:
        name = probe.name()
        response = await probe.load(name)
        if response.status_code == httpx.codes.INSUFFICIENT_STORAGE:
            return names, name
        if response.status_code != httpx.codes.OK:
            raise BrokenRuleError(f"{seen(response)} with {len(names)} models loaded: 200, or 507 when the memory is full, is expected")
        names.append(name)
    raise BrokenRuleError(f"{len(names)} loads answered 200: 507 is expected before that, or name a greater number")


@rule("load.full", "When the memory is full a load answers 507.", CONTAINER_APIS, needs=("models", "fill"), after=("load.ok",))
async def full(probe: Probe) -> None:
    """Loads until one does."""
    await _fill(probe)


@rule(
    "load.full-recovers",
    "When a model was unloaded its memory is free: the load that answered 507 succeeds.",
    PLATFORM,
    needs=("models", "fill"),
    after=("load.full", "unload.ok"),
)
async def full_recovers(probe: Probe) -> None:
    """The platform's way: one goes, what may be left of the refused one too, and the load comes again."""
    names, refused = await _fill(probe)
    if not names:
        raise BrokenRuleError("the first load answered 507: there is nothing to unload")
    await probe.unloaded(names[0])
    await probe.unload(refused)
    await probe.loaded(refused)
    await probe.answers(refused)


@rule(
    "ping.after-all",
    "After all of these the container is healthy, and has no model but those that it had before.",
    PLATFORM,
    after=("ping.ok",),
)
async def alive(probe: Probe) -> None:
    """A ping, and a look at what is left."""
    await probe.ping()
    left = [name for name in await probe.listed_names() if probe.made(name)]
    if left:
        raise BrokenRuleError(f"GET /models lists {', '.join(left)}, which were unloaded")
