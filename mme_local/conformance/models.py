"""Rules of listing, describing and unloading models."""

from __future__ import annotations

from collections import Counter

from mme_local.conformance.probe import BrokenRuleError, Probe, seen
from mme_local.conformance.rules import rule
from mme_local.conformance.sources import CONTAINER_APIS, GOOD_SERVER, PLATFORM

__all__ = [
    "describe",
    "describe_unknown",
    "json_type",
    "list_entries",
    "list_models",
    "list_pages",
    "list_unloaded",
    "reload",
    "unload",
    "unload_gone",
    "unload_others",
    "unload_unknown",
]


@rule("list.ok", 'GET /models answers 200 with a JSON object whose "models" is a list.', CONTAINER_APIS)
async def list_models(probe: Probe) -> None:
    """The first page."""
    response = await probe.request("GET", "/models")
    probe.expect(response, 200)
    if not isinstance(probe.document(response).get("models"), list):
        raise BrokenRuleError(f'{seen(response)}: a list "models" is expected')


@rule(
    "list.entries",
    'A loaded model is listed with its "modelName" and, as "modelUrl", the folder that it was loaded from.',
    CONTAINER_APIS,
    needs=("models",),
    after=("load.ok", "list.ok"),
)
async def list_entries(probe: Probe) -> None:
    """Two models."""
    for name in (await probe.loaded(), await probe.loaded()):
        entries = [entry for entry in await probe.listed() if entry.get("modelName") == name]
        if not entries or entries[0].get("modelUrl") != probe.folder(name):
            raise BrokenRuleError(f"GET /models lists {entries} for {name}: its modelUrl {probe.folder(name)} is expected")


@rule(
    "list.pages",
    'Following "nextPageToken" as ?next_page_token= gives every model once, and ends.',
    CONTAINER_APIS,
    needs=("models",),
    after=("load.ok", "list.ok"),
)
async def list_pages(probe: Probe) -> None:
    """Three models in pages of two, where the container has an option ``limit`` for that; in its own pages everywhere."""
    wanted = [await probe.loaded() for _ in range(3)]
    counts = Counter(await probe.listed_names(limit=2))
    for name in wanted:
        if counts[name] != 1:
            raise BrokenRuleError(f"the pages of GET /models list {name} {counts[name]} times: once is expected")


@rule(
    "list.unloaded",
    "A model that was unloaded is not listed.",
    CONTAINER_APIS,
    needs=("models",),
    after=("load.ok", "list.ok", "unload.ok"),
)
async def list_unloaded(probe: Probe) -> None:
    """Loaded, unloaded, looked for."""
    name = await probe.loaded()
    await probe.unload(name)
    if name in await probe.listed_names():
        raise BrokenRuleError(f"GET /models lists {name} after DELETE /models/{name}")


@rule("list.json-type", "GET /models is answered with Content-Type application/json.", GOOD_SERVER, required=False, after=("list.ok",))
async def json_type(probe: Probe) -> None:
    """The header."""
    response = await probe.request("GET", "/models")
    content_type = response.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise BrokenRuleError(f"GET /models is answered with Content-Type {content_type!r}: application/json is expected")


@rule(
    "describe.ok",
    'GET /models/NAME answers 200 with a JSON object that has the "modelName" and the "modelUrl".',
    CONTAINER_APIS,
    needs=("models",),
    after=("load.ok",),
)
async def describe(probe: Probe) -> None:
    """One loaded model."""
    name = await probe.loaded()
    response = await probe.describe(name)
    probe.expect(response, 200)
    document = probe.document(response)
    if (document.get("modelName"), document.get("modelUrl")) != (name, probe.folder(name)):
        raise BrokenRuleError(f"{seen(response)}: modelName {name} and modelUrl {probe.folder(name)} are expected")


@rule("describe.unknown", "GET /models/NAME of a model that is not loaded answers 404.", CONTAINER_APIS)
async def describe_unknown(probe: Probe) -> None:
    """A name that nothing has."""
    probe.expect(await probe.describe(probe.name()), 404)


@rule(
    "unload.ok",
    "DELETE /models/NAME answers 200, within the 360 seconds that the platform waits.",
    CONTAINER_APIS,
    needs=("models",),
    after=("load.ok",),
)
async def unload(probe: Probe) -> None:
    """Once."""
    await probe.unloaded(await probe.loaded())


@rule("unload.unknown", "DELETE /models/NAME of a model that is not loaded answers 404.", CONTAINER_APIS)
async def unload_unknown(probe: Probe) -> None:
    """A name that nothing has."""
    probe.expect(await probe.unload(probe.name()), 404)


@rule(
    "unload.gone",
    "When an unload is answered the model is gone: GET, DELETE and invocations of it answer 404.",
    CONTAINER_APIS,
    needs=("models",),
    after=("unload.ok", "describe.unknown", "unload.unknown", "invoke.unknown"),
)
async def unload_gone(probe: Probe) -> None:
    """All three."""
    name = await probe.loaded()
    await probe.unloaded(name)
    probe.expect(await probe.describe(name), 404)
    probe.expect(await probe.invoke(name), 404)
    probe.expect(await probe.unload(name), 404)


@rule("unload.others", "The other models stay loaded.", PLATFORM, needs=("models",), after=("unload.ok", "describe.ok"))
async def unload_others(probe: Probe) -> None:
    """Two models, one of which goes."""
    stays, goes = await probe.loaded(), await probe.loaded()
    await probe.unloaded(goes)
    await probe.answers(stays)


@rule(
    "unload.reload",
    "A model may be loaded again after its unload, under the same name and from the same folder.",
    PLATFORM,
    needs=("models",),
    after=("unload.ok",),
)
async def reload(probe: Probe) -> None:
    """Twice."""
    name = await probe.loaded()
    for _ in range(2):
        await probe.unloaded(name)
        await probe.loaded(name)
        await probe.answers(name)
