"""CloudWatch's three wire protocols: Smithy RPC v2 CBOR (boto3 of today), AWS JSON 1.0, and the query protocol (older clients).

The shapes come from botocore's model, its CBOR codec too. Errors carry both of their names: the shape's, and the code that the query
protocol had first (``x-amzn-query-error``), as AWS's do for clients that know either.
"""

from __future__ import annotations

import gzip
import json
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl
from xml.etree import ElementTree

from mme_local.emulator import Request
from mme_local.wire import AwsError, Reply, ValidationError

if TYPE_CHECKING:
    from botocore.model import ServiceModel, Shape

__all__ = ["TARGET", "Call", "Protocol", "answer", "protocol_of", "read_call", "refusal"]

Protocol = Literal["cbor", "json", "query"]

TARGET = "GraniteServiceVersion20100801"
"""The service's name in targets and paths."""

_NAMESPACE = "http://monitoring.amazonaws.com/doc/2010-08-01/"
_PATH = f"/service/{TARGET}/operation/"
_QUERY_MEMBERS = ("Action", "Version")
_BODY_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the API.

    Attributes:
        operation: such as ``PutMetricData``.
        parameters: its document; timestamps are epoch seconds.
    """

    operation: str
    parameters: dict[str, Any]


def protocol_of(request: Request) -> Protocol:
    """Which protocol a request speaks."""
    if request.path.startswith("/service/") or request.headers.get("smithy-protocol") == "rpc-v2-cbor":
        return "cbor"
    return "json" if "x-amz-target" in request.headers else "query"


def read_call(request: Request) -> Call:
    """What a request asks for.

    Raises:
        AwsError: the operation is not CloudWatch's, or the body is not what the protocol says.
    """
    body = _unpacked(request)
    match protocol_of(request):
        case "cbor":
            operation = _known(request.path.removeprefix(_PATH))
            return Call(operation, _from_cbor(body))
        case "json":
            target, _, name = request.headers["x-amz-target"].partition(".")
            operation = _known(name if target == TARGET else request.headers["x-amz-target"])
            try:
                document = json.loads(body or b"{}")
            except ValueError as error:
                raise AwsError("SerializationException", f"The body is not JSON: {error}") from None
            return Call(operation, _document(_with_special_numbers(document, _model().operation_model(operation).input_shape)))
    pairs = [(name, values[0]) for name, values in request.query.items()]
    pairs += parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
    given = dict(pairs)
    operation = _known(given.get("Action", ""))
    members = {name: value for name, value in given.items() if name not in _QUERY_MEMBERS and not name.startswith("X-Amz-")}
    shape = _model().operation_model(operation).input_shape
    return Call(operation, _from_query(shape, members) if shape is not None else {})


def answer(protocol: Protocol, operation: str, document: Mapping[str, Any]) -> Reply:
    """A successful answer; moments in ``document`` are datetimes or epoch seconds."""
    shape = _model().operation_model(operation).output_shape
    match protocol:
        case "cbor":
            return 200, _cbor_headers(), _to_cbor(document, shape)
        case "json":
            return 200, {"Content-Type": "application/x-amz-json-1.0"}, json.dumps(document, default=_epoch).encode()
    root = ElementTree.Element(f"{operation}Response", xmlns=_NAMESPACE)
    if shape is not None:
        _to_xml(ElementTree.SubElement(root, f"{operation}Result"), document, shape)
    ElementTree.SubElement(ElementTree.SubElement(root, "ResponseMetadata"), "RequestId").text = str(uuid.uuid4())
    return 200, {"Content-Type": "text/xml"}, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def refusal(protocol: Protocol, error: AwsError) -> Reply:
    """An error answer that clients parse into the modelled exception or a ClientError."""
    shape, code = _error_names(error.code)
    fault = "Sender" if error.status < 500 else "Receiver"
    if protocol == "query":
        root = ElementTree.Element("ErrorResponse", xmlns=_NAMESPACE)
        inner = ElementTree.SubElement(root, "Error")
        for name, text in (("Type", fault), ("Code", code), ("Message", error.message)):
            ElementTree.SubElement(inner, name).text = text
        ElementTree.SubElement(root, "RequestId").text = str(uuid.uuid4())
        return error.status, {"Content-Type": "text/xml"}, ElementTree.tostring(root, encoding="utf-8")
    names = {"x-amzn-query-error": f"{code};{fault}", "x-amzn-ErrorType": shape}
    document = {"__type": f"com.amazonaws.cloudwatch.v2010_08_01#{shape}", "message": error.message}
    if protocol == "json":
        return error.status, {"Content-Type": "application/x-amz-json-1.0", **names}, json.dumps(document).encode()
    return error.status, {**_cbor_headers(), **names}, _to_cbor(document, None)


@cache
def _model() -> ServiceModel:
    import botocore.session

    return botocore.session.Session().get_service_model("cloudwatch")


@cache
def _errors() -> dict[str, tuple[str, str]]:
    """Both names of an error by either of them: the shape's and the query protocol's code."""
    found: dict[str, tuple[str, str]] = {}
    for shape in _model().error_shapes:
        code = shape.metadata.get("error", {}).get("code", shape.name)
        found[shape.name] = (shape.name, code)
        if code not in found or shape.name == code:
            found[code] = (shape.name, code)
    return found


def _error_names(code: str) -> tuple[str, str]:
    return _errors().get(code, (code, code))


def _known(operation: str) -> str:
    if operation not in _model().operation_names:
        raise AwsError("InvalidAction", f"The action {operation} is not valid for this web service.")
    return operation


def _unpacked(request: Request) -> bytes:
    encoding = request.headers.get("content-encoding", "")
    if not encoding:
        return request.body
    if encoding != "gzip":
        raise AwsError("SerializationException", f"Content-Encoding {encoding} is not supported: use gzip.")
    try:
        body = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(request.body, _BODY_BYTES + 1)
    except (gzip.BadGzipFile, zlib.error) as error:
        raise AwsError("SerializationException", f"The body is not gzip: {error}") from None
    if len(body) > _BODY_BYTES:
        raise AwsError("RequestEntityTooLarge", f"The body has more than {_BODY_BYTES} bytes.", 413)
    return body


def _document(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise AwsError("SerializationException", "The body is not a structure.")
    return value


def _with_special_numbers(value: Any, shape: Any) -> Any:
    """JSON has no numbers for NaN and the infinities: they come as texts."""
    if isinstance(value, dict) and shape is not None and shape.type_name == "structure":
        return {name: _with_special_numbers(item, shape.members.get(name)) for name, item in value.items()}
    if isinstance(value, list) and shape is not None and shape.type_name == "list":
        return [_with_special_numbers(item, shape.member) for item in value]
    if value in ("NaN", "Infinity", "-Infinity") and shape is not None and shape.type_name in ("double", "float"):
        return float(value)
    return value


def _from_cbor(body: bytes) -> dict[str, Any]:
    from botocore.parsers import ResponseParserError, RpcV2CBORParser

    if not body:
        return {}
    parser = RpcV2CBORParser()
    try:
        value = parser.parse_data_item(parser.get_peekable_stream_from_bytes(body))
    except (ResponseParserError, ValueError, TypeError, RecursionError) as error:
        raise AwsError("SerializationException", f"The body is not CBOR: {error}") from None
    return _document(_without_datetimes(value))


def _without_datetimes(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, dict):
        return {name: _without_datetimes(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_datetimes(item) for item in value]
    return value


def _to_cbor(document: Mapping[str, Any], shape: Shape | None) -> bytes:
    from botocore.model import DenormalizedStructureBuilder
    from botocore.serialize import RpcV2CBORSerializer

    # A private method, without type hints: botocore is pinned with the emulator.
    serializer: Any = RpcV2CBORSerializer()
    if shape is None:
        shape = DenormalizedStructureBuilder().with_members({name: {"type": "string"} for name in document}).build_model()
    body = bytearray()
    serializer._serialize_data_item(body, dict(document), shape)  # noqa: SLF001
    return bytes(body)


def _cbor_headers() -> dict[str, str]:
    return {"Content-Type": "application/cbor", "smithy-protocol": "rpc-v2-cbor"}


def _epoch(value: object) -> float:
    if isinstance(value, datetime):
        return value.timestamp()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _from_query(shape: Shape, members: Mapping[str, str]) -> dict[str, Any]:
    """The document of ``Name.member.1.Part=value`` pairs; raises `ValidationError` for names that the shape does not have."""
    left = dict(members)
    document = _take(shape, "", left)
    if left:
        raise ValidationError(f"The parameter {next(iter(left))} is not known.")
    return document if isinstance(document, dict) else {}


def _take(shape: Any, prefix: str, left: dict[str, str]) -> Any:
    if shape.type_name == "structure":
        found = {name: _take(member, f"{prefix}{'.' if prefix else ''}{name}", left) for name, member in shape.members.items()}
        return {name: value for name, value in found.items() if value is not None} or None
    if shape.type_name == "list":
        if left.get(prefix) == "":
            del left[prefix]
            return []
        items: list[Any] = []
        while (item := _take(shape.member, f"{prefix}.member.{len(items) + 1}", left)) is not None:
            items.append(item)
        return items or None
    if shape.type_name == "map":
        pairs: dict[str, Any] = {}
        while (key := left.pop(f"{prefix}.entry.{len(pairs) + 1}.key", None)) is not None:
            pairs[key] = _take(shape.value, f"{prefix}.entry.{len(pairs) + 1}.value", left)
        return pairs or None
    if prefix not in left:
        return None
    return _scalar(shape.type_name, prefix, left.pop(prefix))


def _scalar(kind: str, name: str, text: str) -> object:
    try:
        match kind:
            case "integer" | "long":
                return int(text)
            case "double" | "float":
                return float(text)
            case "boolean":
                return {"true": True, "false": False}[text.lower()]
            case "timestamp":
                moment = datetime.fromisoformat(text)
                return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (KeyError, ValueError):
        raise AwsError("MalformedInput", f"The value {text} of {name} is not a {kind}.") from None
    return text


def _to_xml(parent: ElementTree.Element, value: Any, shape: Any) -> None:
    if shape.type_name == "structure":
        for name, member in shape.members.items():
            if value.get(name) is not None:
                _to_xml(ElementTree.SubElement(parent, name), value[name], member)
    elif shape.type_name == "list":
        for item in value:
            _to_xml(ElementTree.SubElement(parent, "member"), item, shape.member)
    elif shape.type_name == "map":
        for key, item in value.items():
            entry = ElementTree.SubElement(parent, "entry")
            ElementTree.SubElement(entry, "key").text = key
            _to_xml(ElementTree.SubElement(entry, "value"), item, shape.value)
    elif shape.type_name == "timestamp":
        moment = value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
        parent.text = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    elif isinstance(value, bool):
        parent.text = str(value).lower()
    else:
        parent.text = str(value)
