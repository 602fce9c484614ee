"""The values of Logs Insights queries: how fields are found in events, compared, computed and shown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mme_local.logs.language import Bin, Binary, Call, Field, In, Like, Literal, Negation, Node

__all__ = ["Event", "Moment", "Row", "Value", "number_of", "sort_key", "text_of", "value_of"]

_MOST_FIELDS = 200
_DEEPEST = 20
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_REPORT = re.compile(
    r"REPORT RequestId: (?P<id>\S+)\s+Duration: (?P<duration>[\d.]+) ms\s+Billed Duration: (?P<billed>[\d.]+) ms\s+"
    r"Memory Size: (?P<size>\d+) MB\s+Max Memory Used: (?P<used>\d+) MB"
)
_START_OR_END = re.compile(r"(?P<type>START|END) RequestId: (?P<id>\S+)")
_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """A moment in epoch milliseconds, shown as a time."""

    milliseconds: float


Value = float | int | str | Moment | None
"""A value; None where there is none."""


@dataclass(frozen=True, slots=True)
class Event:
    """A log event.

    Attributes:
        pointer: makes the value of ``@ptr``, by which the event can be read again; asked only when a query shows or uses it.
        timestamp: epoch milliseconds.
        ingested: epoch milliseconds.
        message: its text.
        log_group: name of its group.
        log_stream: name of its stream.
        account: the group's account.
    """

    pointer: Callable[[], str]
    timestamp: float
    ingested: float
    message: str
    log_group: str
    log_stream: str
    account: str

    def fields(self) -> dict[str, Value]:
        """Its own fields but ``@ptr``, and those that are found in its message: of JSON, and of the lines that Lambda writes."""
        found = _discovered(self.message)
        if self.log_group.startswith("/aws/lambda/"):
            found |= _of_lambda(self.message)
        return {
            **found,
            "@timestamp": Moment(self.timestamp),
            "@ingestionTime": Moment(self.ingested),
            "@message": self.message,
            "@logStream": self.log_stream,
            "@log": f"{self.account}:{self.log_group}",
        }


@dataclass(slots=True)
class Row:
    """A row of a query.

    Attributes:
        event: where it comes from; None for a row of ``stats``.
        made: fields that commands made.
    """

    event: Event | None
    made: dict[str, Value] = field(default_factory=dict)
    _found: Mapping[str, Value] | None = None

    def get(self, name: str) -> Value:
        """A field's value."""
        if name in self.made:
            return self.made[name]
        if self.event is None:
            return None
        if name == "@ptr":
            return self.event.pointer()
        if self._found is None:
            self._found = self.event.fields()
        return self._found.get(name)


def _discovered(message: str) -> dict[str, Value]:
    """Fields of a JSON object, nested ones with dots between the names; booleans are 1 and 0, nulls are not there."""
    if not message.lstrip().startswith("{"):
        return {}
    try:
        document = json.loads(message)
    except (ValueError, RecursionError):
        return {}
    found: dict[str, Value] = {}
    _flatten(document, "", found, 0)
    return found


def _flatten(value: Any, name: str, found: dict[str, Value], depth: int) -> None:
    if len(found) >= _MOST_FIELDS or depth > _DEEPEST:
        return
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            _flatten(item, f"{name}.{key}" if name else str(key), found, depth + 1)
    elif isinstance(value, bool):
        found[name] = int(value)
    elif value is not None and not (isinstance(value, float) and not math.isfinite(value)):
        found[name] = value


def _of_lambda(message: str) -> dict[str, Value]:
    if match := _REPORT.match(message):
        return {
            "@type": "REPORT",
            "@requestId": match["id"],
            "@duration": float(match["duration"]),
            "@billedDuration": float(match["billed"]),
            "@memorySize": int(match["size"]) * _MEGABYTE,
            "@maxMemoryUsed": int(match["used"]) * _MEGABYTE,
        }
    if match := _START_OR_END.match(message):
        return {"@type": match["type"], "@requestId": match["id"]}
    return {}


def number_of(value: Value) -> float | int | None:
    """The number that a value is or reads as, or None."""
    if isinstance(value, Moment):
        return value.milliseconds
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value.strip()) else None
    return value


def text_of(value: Value) -> str | None:
    """How a value is shown, or None where there is none."""
    if isinstance(value, Moment):
        moment = datetime.fromtimestamp(value.milliseconds / 1000, UTC)
        return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return None if value is None else str(value)


def sort_key(value: Value) -> tuple[Any, ...]:
    """Order of ``sort``: nothing, then texts (runs of digits by length and number), then numbers."""
    if value is None:
        return (0,)
    number = number_of(value)
    if number is not None:
        return (2, number)
    chunks = re.findall(r"\d+|\D+", str(value))
    return (1, tuple((0, len(chunk), int(chunk)) if chunk.isdecimal() else (1, chunk) for chunk in chunks))


def value_of(node: Node, row: Row) -> Value:
    """What an expression without aggregates is for a row; conditions are 1 or 0."""
    match node:
        case Literal():
            return node.value
        case Field(name):
            return row.get(name)
        case Bin(milliseconds):
            moment = row.get("@timestamp")
            return Moment(moment.milliseconds // milliseconds * milliseconds) if isinstance(moment, Moment) else None
        case Negation("not", operand):
            return int(not _holds(value_of(operand, row)))
        case Negation(_, operand):
            number = number_of(value_of(operand, row))
            return None if number is None else -number
        case Binary("and", left, right):
            return int(_holds(value_of(left, row)) and _holds(value_of(right, row)))
        case Binary("or", left, right):
            return int(_holds(value_of(left, row)) or _holds(value_of(right, row)))
        case Binary(operator, left, right):
            return binary(operator, value_of(left, row), value_of(right, row))
        case In(operand, items):
            value = value_of(operand, row)
            return int(any(bool(binary("=", value, value_of(item, row))) for item in items))
        case Like(operand, pattern):
            text = text_of(value_of(operand, row))
            if text is None:
                return 0
            return int(pattern in text if isinstance(pattern, str) else pattern.search(text) is not None)
        case Call(function, arguments):
            return call(function, [value_of(argument, row) for argument in arguments])


def holds(node: Node, row: Row) -> bool:
    """Whether a condition holds for a row."""
    return _holds(value_of(node, row))


def _holds(value: Value) -> bool:
    return isinstance(value, int | float) and value != 0


def binary(operator: str, left: Value, right: Value) -> Value:
    """Arithmetic or a comparison; values that read as numbers are compared as such, others as texts. What is not there equals nothing."""
    if operator in _ARITHMETIC:
        first, second = number_of(left), number_of(right)
        if first is None or second is None:
            return None
        try:
            result = _ARITHMETIC[operator](first, second)
        except (ZeroDivisionError, OverflowError, ValueError):
            return None
        return result if math.isfinite(result) else None
    if left is None or right is None:
        return 0
    return int(_COMPARISONS[operator](_order(left, right)))


def _order(left: Value, right: Value) -> int:
    """-1, 0 or 1."""
    numbers = number_of(left), number_of(right)
    if numbers[0] is not None and numbers[1] is not None:
        return (numbers[0] > numbers[1]) - (numbers[0] < numbers[1])
    texts = str(text_of(left)), str(text_of(right))
    return (texts[0] > texts[1]) - (texts[0] < texts[1])


_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "%": math.fmod,
    "^": math.pow,
}
_COMPARISONS: Mapping[str, Callable[[int], bool]] = {
    "=": lambda order: order == 0,
    "!=": lambda order: order != 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
}


def call(function: str, values: Sequence[Value]) -> Value:
    """A function of values; without a value to work on there is none as the result."""
    match function:
        case "ispresent":
            return int(values[0] is not None)
        case "isempty":
            return int(values[0] is None or values[0] == "")
        case "isblank":
            return int(values[0] is None or not str(text_of(values[0])).strip())
        case "coalesce":
            return next((value for value in values if value is not None), None)
    if function in _OF_NUMBERS:
        numbers = [number for value in values if (number := number_of(value)) is not None]
        if len(numbers) < len(values):
            return None
        try:
            return _OF_NUMBERS[function](numbers)
        except (ValueError, OverflowError):
            return None
    texts = [text for value in values if (text := text_of(value)) is not None]
    return _OF_TEXTS[function](texts) if len(texts) == len(values) else None


_OF_NUMBERS: Mapping[str, Callable[[Sequence[float]], Value]] = {
    "abs": lambda numbers: abs(numbers[0]),
    "ceil": lambda numbers: math.ceil(numbers[0]),
    "floor": lambda numbers: math.floor(numbers[0]),
    "frommillis": lambda numbers: Moment(numbers[0]),
    "greatest": max,
    "least": min,
    "log": lambda numbers: math.log(numbers[0]),
    "sqrt": lambda numbers: math.sqrt(numbers[0]),
    "tomillis": lambda numbers: numbers[0],
}


def _substring(texts: Sequence[str]) -> str | None:
    numbers = [number_of(text) for text in texts[1:]]
    start = numbers[0]
    if start is None or start < 0:
        return None
    rest = texts[0][int(start) :]
    if len(numbers) == 1:
        return rest
    return None if numbers[1] is None or numbers[1] < 0 else rest[: int(numbers[1])]


_OF_TEXTS: Mapping[str, Callable[[Sequence[str]], Value]] = {
    "concat": "".join,
    "ltrim": lambda texts: texts[0].lstrip(),
    "replace": lambda texts: texts[0].replace(texts[1], texts[2]),
    "rtrim": lambda texts: texts[0].rstrip(),
    "strcontains": lambda texts: int(texts[1] in texts[0]),
    "strlen": lambda texts: len(texts[0]),
    "substr": _substring,
    "tolower": lambda texts: texts[0].lower(),
    "toupper": lambda texts: texts[0].upper(),
    "trim": lambda texts: texts[0].strip(),
}
