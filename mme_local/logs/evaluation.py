"""Logs Insights queries over log events: the commands one after another, as rows in and rows out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mme_local.logs.language import (
    AGGREGATES,
    MOST_ROWS,
    Binary,
    Call,
    Column,
    Command,
    Dedup,
    Display,
    Field,
    Fields,
    Filter,
    Limit,
    Literal,
    Negation,
    Node,
    Parse,
    Sort,
    Stats,
)
from mme_local.logs.values import Event, Moment, Row, Value, binary, call, holds, number_of, sort_key, text_of, value_of

__all__ = ["Answer", "evaluate"]

_DEFAULT_FIELDS = ("@timestamp", "@message")
ResultRow = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query found.

    Attributes:
        rows: pairs of field and value; fields without a value are left out, rows of events end with ``@ptr``.
        matched: events that the filters let through.
        scanned: events that were looked at.
        scanned_bytes: their size.
    """

    rows: list[ResultRow]
    matched: int
    scanned: int
    scanned_bytes: int


def evaluate(commands: Sequence[Command], events: Sequence[Event], *, limit: int = MOST_ROWS) -> Answer:
    """Run a query.

    Args:
        commands: the parsed query.
        events: the events of its log groups and time range.
        limit: at most so many rows; a smaller limit of the query counts.
    """
    run = _Run([Row(event) for event in sorted(events, key=lambda event: event.timestamp, reverse=True)])
    for command in commands:
        run.apply(command)
    return Answer(run.shown(limit), run.matched, len(events), sum(len(event.message.encode()) for event in events))


class _Run:
    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.matched = len(rows)
        self._columns: list[str] = []
        self._displayed: list[str] | None = None
        self._aggregated = False

    def apply(self, command: Command) -> None:
        match command:
            case Fields(columns):
                self._columns += [name for name in self._make(columns) if name not in self._columns]
            case Display(columns):
                self._displayed = self._make(columns)
            case Filter(condition):
                self.rows = [row for row in self.rows if holds(condition, row)]
                if not self._aggregated:
                    self.matched = len(self.rows)
            case Parse():
                self._parse(command)
            case Stats(aggregates, groups):
                self._stats(aggregates, groups)
            case Sort(keys):
                for node, descending in reversed(keys):
                    self.rows.sort(key=lambda row, node=node: sort_key(value_of(node, row)), reverse=descending)  # type: ignore[misc]
            case Limit(rows):
                self.rows = self.rows[:rows]
            case Dedup(fields):
                self._dedup(fields)

    def shown(self, limit: int) -> list[ResultRow]:
        names = self._displayed if self._displayed is not None else self._columns
        if not names and not self._aggregated:
            names = list(_DEFAULT_FIELDS)
        if not self._aggregated:
            names = [*names, *(["@ptr"] if "@ptr" not in names else [])]
        return [[(name, text) for name in names if (text := text_of(row.get(name))) is not None] for row in self.rows[:limit]]

    def _make(self, columns: Sequence[Column]) -> list[str]:
        made = [column for column in columns if column.node != Field(column.name)]
        for row in self.rows:
            row.made |= {column.name: value_of(column.node, row) for column in made}
        return [column.name for column in columns]

    def _parse(self, command: Parse) -> None:
        for row in self.rows:
            text = text_of(value_of(command.operand, row))
            match = command.pattern.search(text) if text is not None else None
            if match is not None:
                row.made |= {name: match[number] for number, name in command.groups}

    def _stats(self, aggregates: Sequence[Column], groups: Sequence[Column]) -> None:
        members: dict[tuple[Value, ...], list[Row]] = {} if groups else {(): []}
        for row in self.rows:
            members.setdefault(tuple(value_of(group.node, row) for group in groups), []).append(row)
        names = [group.name for group in groups]
        self.rows = [
            Row(None, {**dict(zip(names, key, strict=True)), **{column.name: _aggregate(column.node, rows) for column in aggregates}})
            for key, rows in members.items()
        ]
        self._columns, self._displayed, self._aggregated = [*names, *(column.name for column in aggregates)], None, True

    def _dedup(self, fields: Sequence[Field]) -> None:
        kept, seen = [], set()
        for row in self.rows:
            values = tuple(row.get(field.name) for field in fields)
            # What has no value is nobody's duplicate.
            if None in values or values not in seen:
                kept.append(row)
            seen.add(values)
        self.rows = kept


def _aggregate(node: Node, rows: Sequence[Row]) -> Value:
    match node:
        case Literal():
            return node.value
        case Negation(_, operand):
            number = number_of(_aggregate(operand, rows))
            return None if number is None else -number
        case Binary(operator, left, right):
            return binary(operator, _aggregate(left, rows), _aggregate(right, rows))
        case Call(function, arguments) if function not in AGGREGATES:
            return call(function, [_aggregate(argument, rows) for argument in arguments])
        case Call("count", ()):
            return len(rows)
        case Call("pct", (operand, Literal(share))):
            return _percentile(_numbers(operand, rows), float(share))
        case Call(function, (operand,)) if function in _OF_VALUES:
            return _OF_VALUES[function]([value for row in rows if (value := value_of(operand, row)) is not None])
        case Call(function, (operand,)):
            numbers = _numbers(operand, rows)
            return _OF_NUMBERS[function](numbers) if numbers else None
    raise AssertionError(f"{node} is no aggregate")


def _numbers(operand: Node, rows: Sequence[Row]) -> list[float]:
    return [number for row in rows if (number := number_of(value_of(operand, row))) is not None]


def _extreme(choose: Callable[..., Value]) -> Callable[[Sequence[Value]], Value]:
    def of(values: Sequence[Value]) -> Value:
        comparable = [value for value in values if number_of(value) is not None]
        if not comparable:
            return None
        found = choose(comparable, key=number_of)
        return found if isinstance(found, Moment) else number_of(found)

    return of


def _percentile(numbers: Sequence[float], share: float) -> float | None:
    """Linear interpolation between the two nearest ranks."""
    if not numbers:
        return None
    ordered = sorted(numbers)
    rank = share / 100 * (len(ordered) - 1)
    lower = math.floor(rank)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (rank - lower)


# Rows come with the newest event first.
_OF_VALUES: Mapping[str, Callable[[Sequence[Value]], Value]] = {
    "count": len,
    "count_distinct": lambda values: len({text_of(value) for value in values}),
    "earliest": lambda values: values[-1] if values else None,
    "latest": lambda values: values[0] if values else None,
    "max": _extreme(max),
    "min": _extreme(min),
}
_OF_NUMBERS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "avg": lambda numbers: math.fsum(numbers) / len(numbers),
    "median": statistics.median,
    "stddev": statistics.pstdev,
    "sum": math.fsum,
}
