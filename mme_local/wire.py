"""AWS's JSON protocol for our own services: models from botocore, validation, errors, answers."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

__all__ = [
    "AwsError",
    "Reply",
    "ServiceModel",
    "StreamReply",
    "ValidationError",
    "error_reply",
    "json_reply",
    "send_reply",
    "send_stream",
    "service_model",
]

Reply = tuple[int, dict[str, str], bytes]
"""HTTP status, headers, body."""
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class StreamReply:
    """An answer whose body comes in parts, as they come.

    Attributes:
        status: HTTP status.
        headers: HTTP headers.
        parts: the parts.
        close: called in any case, also when the caller goes before the first part: ends what the parts come from.
    """

    status: int
    headers: dict[str, str]
    parts: AsyncGenerator[bytes, None]
    close: Callable[[], Awaitable[None]]


_JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "boolean": (bool,),
    "timestamp": (int, float, str),
    "list": (list,),
    "map": (dict,),
    "structure": (dict,),
    "blob": (str,),
}


_FROM_TEXT: Mapping[str, Callable[[str], object]] = {
    "integer": int,
    "long": int,
    "float": float,
    "double": float,
    "boolean": {"true": True, "false": False}.__getitem__,
}


class AwsError(Exception):
    """An error answer of a service.

    Attributes:
        code: AWS error code, the modelled shape's name where there is one.
        message: AWS-like text.
        status: HTTP status.
        members: further members of the error shape.
    """

    def __init__(self, code: str, message: str, status: int = 400, **members: object) -> None:
        super().__init__(message)
        self.code, self.message, self.status, self.members = code, message, status, members


class ValidationError(AwsError):
    """A request that the service refuses as invalid."""

    def __init__(self, message: str) -> None:
        super().__init__("ValidationException", message)


class ServiceModel:
    """The operations of one service that we serve, from botocore's model.

    Args:
        service: botocore's service name, such as ``sagemaker``.
        operations: names of the operations; the rest of the model is dropped (it is large).
    """

    def __init__(self, service: str, operations: tuple[str, ...]) -> None:
        import botocore.session

        document = botocore.session.Session().get_component("data_loader").load_service_model(service, "service-2")
        self._inputs = {name: document["operations"][name]["input"]["shape"] for name in operations}
        self._shapes: dict[str, Any] = {}
        self._headers = {
            name: {
                member["locationName"].lower(): member_name
                for member_name, member in document["shapes"][shape]["members"].items()
                if member.get("location") == "header"
            }
            for name, shape in self._inputs.items()
        }
        pending = list(self._inputs.values())
        while pending:
            name = pending.pop()
            if name not in self._shapes:
                shape = self._shapes[name] = document["shapes"][name]
                pending += [member["shape"] for member in shape.get("members", {}).values()]
                pending += [shape[part]["shape"] for part in ("member", "key", "value") if part in shape]

    def header_members(self, operation: str) -> Mapping[str, str]:
        """The members of an operation's input that come in headers, by the lower-case names of those."""
        return self._headers[operation]

    def validated(self, operation: str, request: object, *, from_template: bool = False) -> dict[str, Any]:
        """The known members of a request of ``operation``.

        Args:
            operation: its name.
            request: the parsed document.
            from_template: numbers and booleans may come as text, as in CloudFormation templates.

        Raises:
            AwsError: ``ValidationException`` as AWS words it, or ``SerializationException`` for a value of a wrong type.
        """
        problems: list[str] = []
        if from_template:
            request = self._typed(self._inputs[operation], request)
        value = self._check(self._inputs[operation], request, "", problems)
        if problems:
            count = f"{len(problems)} validation error{'s' if len(problems) > 1 else ''} detected: "
            raise ValidationError(count + "; ".join(problems))
        assert isinstance(value, dict)
        return value

    def members(self, operation: str) -> set[str]:
        """Names of the members of an operation's input."""
        return set(self._shapes[self._inputs[operation]]["members"])

    def enumeration(self, shape_name: str) -> tuple[str, ...]:
        """The values of an enumeration."""
        return tuple(self._shapes[shape_name]["enum"])

    def _typed(self, shape_name: str, value: object) -> object:
        shape = self._shapes[shape_name]
        if isinstance(value, dict):
            if shape["type"] == "structure":
                return {
                    name: self._typed(shape["members"][name]["shape"], item) for name, item in value.items() if name in shape["members"]
                }
            if shape["type"] == "map":
                return {name: self._typed(shape["value"]["shape"], item) for name, item in value.items()}
        if isinstance(value, list) and shape["type"] == "list":
            return [self._typed(shape["member"]["shape"], item) for item in value]
        if isinstance(value, str) and shape["type"] in _FROM_TEXT:
            try:
                return _FROM_TEXT[shape["type"]](value)
            except (KeyError, ValueError):
                return value
        if shape["type"] == "string" and isinstance(value, int | float):
            return str(value).lower() if isinstance(value, bool) else str(value)
        return value

    def _check(self, shape_name: str, value: object, path: str, problems: list[str]) -> object:
        shape = self._shapes[shape_name]
        kind = shape["type"]
        if not isinstance(value, _JSON_TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
            raise AwsError("SerializationException", f"{path or 'the request'} is not a {kind}")
        if kind == "structure":
            assert isinstance(value, dict)
            return self._check_structure(shape, value, path, problems)
        if kind == "map":
            assert isinstance(value, dict)
            _check_size(shape, len(value), value, path, problems)
            return {
                self._check(shape["key"]["shape"], key, f"{path}.key", problems): self._check(
                    shape["value"]["shape"], item, f"{path}.{key}.member", problems
                )
                for key, item in value.items()
            }
        if kind == "list":
            assert isinstance(value, list)
            _check_size(shape, len(value), value, path, problems)
            return [
                self._check(shape["member"]["shape"], item, f"{path}.{number}.member", problems) for number, item in enumerate(value, 1)
            ]
        if kind == "string":
            assert isinstance(value, str)
            _check_string(shape, value, path, problems)
        elif kind in ("integer", "long", "float", "double"):
            assert isinstance(value, int | float)
            _check_range(shape, value, path, problems)
        return value

    def _check_structure(self, shape: Mapping[str, Any], value: dict[str, Any], path: str, problems: list[str]) -> dict[str, Any]:
        checked = {}
        for name, member in shape["members"].items():
            inner = f"{path}.{_camel(name)}" if path else _camel(name)
            if value.get(name) is not None:
                checked[name] = self._check(member["shape"], value[name], inner, problems)
            elif name in shape.get("required", ()):
                problems.append(f"Value null at '{inner}' failed to satisfy constraint: Member must not be null")
        return checked


@cache
def service_model(service: str, operations: tuple[str, ...]) -> ServiceModel:
    """The cached `ServiceModel`."""
    return ServiceModel(service, operations)


def _camel(name: str) -> str:
    return name[:1].lower() + name[1:]


def _problem(value: object, path: str, constraint: str) -> str:
    return f"Value '{value}' at '{path}' failed to satisfy constraint: {constraint}"


def _check_string(shape: Mapping[str, Any], value: str, path: str, problems: list[str]) -> None:
    _check_size(shape, len(value), value, path, problems)
    if "enum" in shape and value not in shape["enum"]:
        problems.append(_problem(value, path, f"Member must satisfy enum value set: [{', '.join(shape['enum'])}]"))
    if "pattern" in shape and not _compiled(shape["pattern"]).fullmatch(value):
        problems.append(_problem(value, path, f"Member must satisfy regular expression pattern: {shape['pattern']}"))


def _check_size(shape: Mapping[str, Any], size: int, value: object, path: str, problems: list[str]) -> None:
    if size < shape.get("min", 0):
        problems.append(_problem(value, path, f"Member must have length greater than or equal to {shape['min']}"))
    if size > shape.get("max", size):
        problems.append(_problem(value, path, f"Member must have length less than or equal to {shape['max']}"))


def _check_range(shape: Mapping[str, Any], value: float, path: str, problems: list[str]) -> None:
    if value < shape.get("min", value):
        problems.append(_problem(value, path, f"Member must have value greater than or equal to {shape['min']}"))
    if value > shape.get("max", value):
        problems.append(_problem(value, path, f"Member must have value less than or equal to {shape['max']}"))


_JAVA_TO_PYTHON = (
    (r"\p{L}\p{Z}\p{N}_", r"\w\s"),
    (r"[\p{Print}]", "[ -~]"),
    (r"\p{Print}", "[ -~]"),
    (r"\p{ASCII}", r"[\x00-\x7f]"),
    (r"\p{Alnum}", "A-Za-z0-9"),
    (r"\uD800\uDC00-\uDBFF\uDFFF", "\U00010000-\U0010ffff"),
    (r"\z", r"\Z"),
)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of the service models, which are written for Java, in Python's dialect."""
    for java, python in _JAVA_TO_PYTHON:
        pattern = pattern.replace(java, python)
    return re.compile(pattern)


def _encode(value: object) -> object:
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def json_reply(document: Mapping[str, Any], status: int = 200) -> Reply:
    """A successful answer in ``application/x-amz-json-1.1``; datetimes become epoch seconds."""
    return status, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(document, default=_encode).encode()


def error_reply(error: AwsError) -> Reply:
    """An error answer that botocore parses into the modelled exception or a ClientError."""
    body = {"__type": error.code, "Message": error.message, "message": error.message, **error.members}
    headers = {"Content-Type": "application/x-amz-json-1.1", "x-amzn-ErrorType": error.code}
    return error.status, headers, json.dumps(body).encode()


async def send_stream(receive: Receive, send: Send, reply: StreamReply) -> None:
    """Send an answer in parts over an ASGI connection whose request has been read; it ends when the caller goes."""
    sending = asyncio.create_task(_send_parts(send, reply), name="response stream")
    leaving = asyncio.create_task(_left(receive), name="caller of a response stream")
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone = not sending.done()
        sending.cancel()
        leaving.cancel()
        await asyncio.wait((sending, leaving))
        await reply.parts.aclose()
        await reply.close()
    if not gone:
        await sending


async def send_reply(send: Send, reply: Reply) -> None:
    """Send an answer over an ASGI connection."""
    status, headers, body = reply
    encoded = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
    encoded += [(b"x-amzn-requestid", _request_id()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


async def _send_parts(send: Send, reply: StreamReply) -> None:
    encoded = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in reply.headers.items()]
    await send({"type": "http.response.start", "status": reply.status, "headers": [*encoded, (b"x-amzn-requestid", _request_id())]})
    async for part in reply.parts:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _request_id() -> bytes:
    """A random UUID; a name, no secret."""
    digits = f"{random.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}".encode()
