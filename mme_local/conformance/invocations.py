"""Rules of invocations."""

from __future__ import annotations

import asyncio

import httpx

from mme_facts.limits import INVOKE_BODY_BYTES
from mme_local.conformance.probe import BrokenRuleError, Probe, seen
from mme_local.conformance.rules import rule
from mme_local.conformance.sources import CONTAINER_APIS, GOOD_SERVER, PLATFORM, RUNTIME_API

__all__ = ["after_nonsense", "big", "concurrent", "headers", "invoke", "target_model", "unknown", "while_loading"]

_AT_ONCE = 4


@rule("invoke.unknown", "An invocation of a model that is not loaded answers 404.", CONTAINER_APIS)
async def unknown(probe: Probe) -> None:
    """A name that nothing has."""
    probe.expect(await probe.invoke(probe.name(), b"x"), 404)


@rule(
    "invoke.ok",
    "POST /models/NAME/invoke answers a valid payload with success.",
    CONTAINER_APIS,
    needs=("models", "payload"),
    after=("load.ok",),
)
async def invoke(probe: Probe) -> None:
    """Three times: the first answer is no exception."""
    name = await probe.loaded()
    for _ in range(3):
        probe.succeeded(await probe.invoke(name))


@rule(
    "invoke.headers",
    "An invocation with X-Amzn-SageMaker-Custom-Attributes is answered like one without.",
    CONTAINER_APIS,
    needs=("models", "payload"),
    after=("invoke.ok",),
)
async def headers(probe: Probe) -> None:
    """Printable characters of all kinds."""
    attributes = {"X-Amzn-SageMaker-Custom-Attributes": 'trace=1; "quoted", \\slashed/ {x}'}
    probe.succeeded(await probe.invoke(await probe.loaded(), headers=attributes))


@rule(
    "invoke.target-model",
    "The name in the path decides: X-Amzn-SageMaker-Target-Model, the caller's TargetModel, is information.",
    CONTAINER_APIS,
    needs=("models", "payload"),
    after=("invoke.ok",),
)
async def target_model(probe: Probe) -> None:
    """Other values of the header for one model."""
    name = await probe.loaded()
    for value in ("acme/iris/v1.tar.gz", "another.tar.gz"):
        probe.succeeded(await probe.invoke(name, headers={"X-Amzn-SageMaker-Target-Model": value}))


@rule(
    "invoke.concurrent",
    "Invocations of several models at the same time are answered.",
    PLATFORM,
    needs=("models", "payload"),
    after=("invoke.ok",),
)
async def concurrent(probe: Probe) -> None:
    """Two of each of two models."""
    names = [await probe.loaded(), await probe.loaded()] * (_AT_ONCE // 2)
    for response in await asyncio.gather(*(probe.invoke(name) for name in names)):
        probe.succeeded(response)


@rule(
    "invoke.while-loading",
    "A loaded model answers while another one is being loaded.",
    PLATFORM,
    needs=("models", "payload"),
    after=("invoke.ok", "load.concurrent"),
)
async def while_loading(probe: Probe) -> None:
    """Invocations until a load is done."""
    name = await probe.loaded()
    loading = asyncio.create_task(probe.load(probe.name()))
    try:
        while True:
            probe.succeeded(await probe.invoke(name))
            if (await asyncio.wait([loading], timeout=0.01))[0]:
                return
    finally:
        await asyncio.wait([loading])


@rule(
    "invoke.after-nonsense",
    "A model still answers after a body that is empty, and after one that makes no sense, whatever their answers were.",
    GOOD_SERVER,
    required=False,
    needs=("models", "payload"),
    after=("invoke.ok",),
)
async def after_nonsense(probe: Probe) -> None:
    """Both, each followed by the payload."""
    name = await probe.loaded()
    for body in (b"", b"\xff\x00\xfe{[(," * 100):
        await probe.invoke(name, body)
        probe.succeeded(await probe.invoke(name))


@rule(
    "invoke.big",
    f"A body of {INVOKE_BODY_BYTES} bytes, the most that InvokeEndpoint takes, reaches the model: the answer is not 413.",
    RUNTIME_API,
    needs=("models",),
    after=("load.ok",),
)
async def big(probe: Probe) -> None:
    """Digits and commas; a model may well refuse them."""
    response = await probe.invoke(await probe.loaded(), b"1," * (INVOKE_BODY_BYTES // 2))
    if response.status_code in (httpx.codes.REQUEST_ENTITY_TOO_LARGE, httpx.codes.NOT_FOUND):
        raise BrokenRuleError(f"{seen(response)} to a body of {INVOKE_BODY_BYTES} bytes: an answer of the model is expected")
