"""The rules of composite alarms: ``ALARM("a") AND NOT (OK(b) OR TRUE)`` (API reference of PutCompositeAlarm)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Rule", "RuleError", "parse_rule"]

_TOKEN = re.compile(
    r"\s*(?:(?P<state>ALARM|OK|INSUFFICIENT_DATA)\s*\(\s*(?:\"(?P<quoted>(?:[^\"\\]|\\.)*)\"|(?P<plain>[^\s()\"]+))\s*\)"
    r"|(?P<word>AND|OR|NOT|TRUE|FALSE)(?![A-Za-z0-9_])|(?P<bracket>[()]))"
)
_DEEPEST = 100

StateOf = Callable[[str], str]


class RuleError(ValueError):
    """The text is no rule; the message says where."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A parsed rule.

    Attributes:
        text: as given.
        alarms: names of the alarms in it, in order, each once.
    """

    text: str
    alarms: tuple[str, ...]
    _holds: Callable[[StateOf], bool]

    def holds(self, state_of: StateOf) -> bool:
        """Whether the rule is true; ``state_of`` gives the state of an alarm by its name."""
        return self._holds(state_of)


def parse_rule(text: str) -> Rule:
    """Parse a rule; NOT binds closest, then AND, then OR.

    Alarms are named by name or ARN, in double quotes when the name has spaces, brackets or quotes.

    Raises:
        RuleError: it does not follow the grammar.
    """
    parser = _Parser(text)
    holds = parser.either(0)
    if parser.token is not None:
        raise RuleError(f"{parser.rest!r} is not expected there")
    return Rule(text, tuple(dict.fromkeys(parser.alarms)), holds)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.alarms = text, list[str]()
        self._tokens = self._split()
        self.position = 0
        self.token = next(self._tokens, None)

    @property
    def rest(self) -> str:
        return self.text[self.position :].strip()[:40]

    def _split(self) -> Iterator[re.Match[str]]:
        at = 0
        while self.text[at:].strip():
            match = _TOKEN.match(self.text, at)
            if match is None:
                raise RuleError(
                    f"{self.text[at:].strip()[:40]!r} is neither a state of an alarm nor AND, OR, NOT, TRUE, FALSE or a bracket"
                )
            self.position = at
            at = match.end()
            yield match

    def _next(self) -> re.Match[str]:
        if self.token is None:
            raise RuleError("it ends too early")
        taken, self.token = self.token, next(self._tokens, None)
        return taken

    def _takes(self, kind: str, value: str) -> bool:
        if self.token is not None and self.token[kind] == value:
            self._next()
            return True
        return False

    def either(self, depth: int) -> Callable[[StateOf], bool]:
        parts = [self._all(depth)]
        while self._takes("word", "OR"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else lambda state_of: any(part(state_of) for part in parts)

    def _all(self, depth: int) -> Callable[[StateOf], bool]:
        parts = [self._one(depth)]
        while self._takes("word", "AND"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else lambda state_of: all(part(state_of) for part in parts)

    def _one(self, depth: int) -> Callable[[StateOf], bool]:
        if depth > _DEEPEST:
            raise RuleError(f"it nests deeper than {_DEEPEST}")
        if self._takes("word", "NOT"):
            inner = self._one(depth + 1)
            return lambda state_of: not inner(state_of)
        if self._takes("bracket", "("):
            inner = self.either(depth + 1)
            if not self._takes("bracket", ")"):
                raise RuleError("a closing bracket is missing")
            return inner
        token = self._next()
        if token["word"] in ("TRUE", "FALSE"):
            value = token["word"] == "TRUE"
            return lambda _: value
        if token["state"] is None:
            raise RuleError(f"{token[0].strip()!r} is not expected there")
        wanted = token["state"]
        reference = token["plain"] if token["quoted"] is None else re.sub(r"\\(.)", r"\1", token["quoted"])
        name = reference.partition(":alarm:")[2] if reference.startswith("arn:") else reference
        if not name:
            raise RuleError(f"{reference!r} names no alarm")
        self.alarms.append(name)
        return lambda state_of: state_of(name) == wanted
