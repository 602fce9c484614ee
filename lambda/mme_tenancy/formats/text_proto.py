"""Protocol buffers as text, as far as Triton's ``config.pbtxt`` needs it. The format: protobuf.dev, "Text Format Language"."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mme_tenancy.formats.content import ContentFault

__all__ = ["Node", "all_texts", "children", "parse", "texts"]

Node = list[tuple[str, "str | Node"]]
"""Fields in their order; texts are without quotes."""
_TOKEN = re.compile(
    r"""\s+|\#[^\n]*|(?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')|(?P<word>[A-Za-z_][A-Za-z0-9_.]*|[-+]?[0-9.][A-Za-z0-9_.+-]*)"""
    r"""|(?P<mark>[{}\[\]<>:,;/-])"""
)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_QUOTES = "\"'"
_MAX_DEPTH = 16
_MAX_TOKENS = 50_000


def parse(text: str) -> Node:
    """Parse a whole message; raises `ContentFault`."""
    tokens = list(_tokens(text))
    node, position = _message(tokens, 0, "", 0)
    if position != len(tokens):
        raise ContentFault(f"{tokens[position]!r} stands where the text format does not allow it")
    return node


def texts(node: Node, name: str) -> list[str]:
    """The values of a field that are texts."""
    return [value for key, value in node if key == name and isinstance(value, str)]


def all_texts(node: Node) -> Iterator[str]:
    """Every text in a message, however deep."""
    for _, value in node:
        if isinstance(value, str):
            yield value
        else:
            yield from all_texts(value)


def children(node: Node, name: str) -> list[Node]:
    """The values of a field that are messages."""
    return [value for key, value in node if key == name and not isinstance(value, str)]


def _tokens(text: str) -> Iterator[str]:
    position = count = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ContentFault(f"{text[position]!r} stands where the text format does not allow it")
        position = match.end()
        if match.lastgroup is not None:
            count += 1
            if count > _MAX_TOKENS:
                raise ContentFault(f"it has more than {_MAX_TOKENS} words")
            yield match[0]


def _message(tokens: list[str], position: int, end: str, depth: int) -> tuple[Node, int]:
    if depth > _MAX_DEPTH:
        raise ContentFault(f"it is nested deeper than {_MAX_DEPTH} levels")
    node: Node = []
    while position < len(tokens) and tokens[position] != end:
        name = tokens[position]
        if not (name[0].isalpha() or name[0] == "_"):
            raise ContentFault(f"{name!r} stands where the text format does not allow it")
        position += 1
        colon = _peek(tokens, position) == ":"
        position += colon
        if _peek(tokens, position) == "[":
            position = _list(tokens, position + 1, name, node, depth)
        else:
            value, position = _value(tokens, position, depth, colon=colon)
            node.append((name, value))
        if _peek(tokens, position) in {",", ";"}:
            position += 1
    if end and _peek(tokens, position) != end:
        raise ContentFault("it ends inside a message")
    return node, position


def _list(tokens: list[str], position: int, name: str, node: Node, depth: int) -> int:
    while _peek(tokens, position) != "]":
        value, position = _value(tokens, position, depth, colon=True)
        node.append((name, value))
        if _peek(tokens, position) == ",":
            position += 1
        elif _peek(tokens, position) != "]":
            raise ContentFault("it has a list that does not end")
    return position + 1


def _value(tokens: list[str], position: int, depth: int, *, colon: bool) -> tuple[str | Node, int]:
    first = _peek(tokens, position)
    if first in {"{", "<"}:
        node, position = _message(tokens, position + 1, "}" if first == "{" else ">", depth + 1)
        return node, position + 1
    if not colon or first is None or first in "[]{}<>:,;/-":
        raise ContentFault("it has a field without a value")
    if first[0] not in _QUOTES:
        return first, position + 1
    text = ""
    while (part := _peek(tokens, position)) is not None and part[0] in _QUOTES:  # strings in a row are one
        text += _ESCAPE.sub(_unescaped, part[1:-1])
        position += 1
    return text, position


def _unescaped(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "01234567":
        return chr(int(escape, 8) & 0xFF)
    if escape[0] == "x" and len(escape) > 1:
        return chr(int(escape[1:], 16))
    if escape[0] in "xXuU":
        raise ContentFault(f"a text with the escape \\{escape}")
    return _ESCAPED.get(escape, escape)


def _peek(tokens: list[str], position: int) -> str | None:
    return tokens[position] if position < len(tokens) else None
