"""The grammar of metric math expressions (user guide: Using math expressions with CloudWatch metrics)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Binary", "Call", "Items", "MathSyntaxError", "Name", "Negative", "Node", "Number", "Text", "parse_expression"]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z][A-Za-z0-9_]*)"
    r"|(?P<text>\"[^\"]*\"|'[^']*')|(?P<symbol>\|\||&&|[<>=!]=|[-+*/^<>(),\[\]]))"
)
_DEEPEST = 100
_LEVELS: tuple[tuple[str, ...], ...] = (("||", "OR"), ("&&", "AND"), ("==", "!=", "<", "<=", ">", ">="), ("+", "-"), ("*", "/"))
_WORDS = {"OR": "||", "AND": "&&"}


class MathSyntaxError(ValueError):
    """The text is no expression; the message says where."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number."""

    value: float


@dataclass(frozen=True, slots=True)
class Text:
    """A text in quotes."""

    value: str


@dataclass(frozen=True, slots=True)
class Name:
    """The id of a metric or expression, or a word such as ``REPEAT``."""

    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    """A minus sign before something."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator between two operands."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Items:
    """An array in square brackets."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A function's call; the function in upper case."""

    function: str
    arguments: tuple[Node, ...]


Node = Number | Text | Name | Negative | Binary | Items | Call


def parse_expression(text: str) -> Node:
    """Parse an expression.

    From the loosest to the closest: OR, AND, comparisons, ``+ -``, ``* /``, the minus sign, ``^``.

    Raises:
        MathSyntaxError: it does not follow the grammar.
    """
    parser = _Parser(text)
    node = parser.level(0, 0)
    if parser.token is not None:
        raise MathSyntaxError(f"{parser.token[0].strip()!r} is not expected there")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _split(text)
        self.token = next(self._tokens, None)

    def _next(self) -> re.Match[str]:
        if self.token is None:
            raise MathSyntaxError("it ends too early")
        taken, self.token = self.token, next(self._tokens, None)
        return taken

    def _takes(self, symbols: tuple[str, ...]) -> str | None:
        if self.token is None:
            return None
        said = self.token["symbol"] or (self.token["name"] or "").upper()
        if said not in symbols:
            return None
        self._next()
        return _WORDS.get(said, said)

    def level(self, number: int, depth: int) -> Node:
        if depth > _DEEPEST:
            raise MathSyntaxError(f"it nests deeper than {_DEEPEST}")
        if number == len(_LEVELS):
            return self._signed(depth)
        left = self.level(number + 1, depth)
        while (operator := self._takes(_LEVELS[number])) is not None:
            left = Binary(operator, left, self.level(number + 1, depth))
        return left

    def _signed(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise MathSyntaxError(f"it nests deeper than {_DEEPEST}")
        if self._takes(("-",)):
            return Negative(self._signed(depth + 1))
        base = self._one(depth)
        if self._takes(("^",)):
            return Binary("^", base, self._signed(depth + 1))
        return base

    def _one(self, depth: int) -> Node:
        token = self._next()
        if token["number"] is not None:
            return Number(float(token["number"]))
        if token["text"] is not None:
            return Text(token["text"][1:-1])
        if token["name"] is not None:
            if self._takes(("(",)):
                return Call(token["name"].upper(), self._list(")", depth))
            return Name(token["name"])
        if token["symbol"] == "(":
            inner = self.level(0, depth + 1)
            if not self._takes((")",)):
                raise MathSyntaxError("a closing bracket is missing")
            return inner
        if token["symbol"] == "[":
            return Items(self._list("]", depth))
        raise MathSyntaxError(f"{token[0].strip()!r} is not expected there")

    def _list(self, end: str, depth: int) -> tuple[Node, ...]:
        items: list[Node] = []
        if self._takes((end,)):
            return ()
        while True:
            items.append(self.level(0, depth + 1))
            if self._takes((end,)):
                return tuple(items)
            if not self._takes((",",)):
                raise MathSyntaxError(f"{',' if self.token else end!r} is missing after an element of a list")


def _split(text: str) -> Iterator[re.Match[str]]:
    at = 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            raise MathSyntaxError(f"{text[at:].strip()[:20]!r} is nothing that metric math knows")
        at = match.end()
        yield match
