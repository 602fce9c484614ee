"""What requests may hold, declared once: `check` is the handlers' validator, `schema` the same rule as JSON Schema for OpenAPI.

A new field of a body is a `Member` of an `Obj`; nothing else has to know its rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mme_tenancy.errors import InvalidRequestError, PayloadTooLargeError

__all__ = ["Absent", "Choice", "Flag", "Member", "Obj", "Many", "Number", "Required", "Shape", "Text", "Whole", "nullable", "parse_json"]

_SHOWN_NAME_CHARACTERS = 100
"""So much of an unknown member's name is shown: the caller chooses it."""

Schema = dict[str, object]


class Shape(Protocol):
    """One kind of JSON value."""

    def check(self, name: str, value: object) -> object:
        """``value`` if it is right, whole numbers as ``int``.

        Raises:
            InvalidRequestError: it is wrong; the error names the field ``name``, the value and what is allowed.
            PayloadTooLargeError: it is right but too large.
        """
        ...

    def schema(self) -> Schema:
        """The rule as JSON Schema (2020-12)."""
        ...


@dataclass(frozen=True, slots=True)
class Text:
    """Text.

    Attributes:
        allowed: the rule in words, for errors.
        pattern: regular expression that the whole text matches, in the part of the language that Python and ECMAScript share.
        least_characters: least length.
        greatest_characters: greatest length in Unicode characters.
        too_large: whether a longer text is a payload that is too large (413) instead of a wrong field (400).
    """

    allowed: str
    pattern: str | None = None
    least_characters: int = 0
    greatest_characters: int | None = None
    too_large: bool = False

    def check(self, name: str, value: object) -> str:
        """The text; raises `InvalidRequestError`, or `PayloadTooLargeError` if that is what longer texts mean."""
        if isinstance(value, str) and self.too_large and self.greatest_characters is not None and len(value) > self.greatest_characters:
            raise PayloadTooLargeError.of_limit(name, len(value.encode()), self.greatest_characters)
        if (
            not isinstance(value, str)
            or len(value) < self.least_characters
            or (self.greatest_characters is not None and len(value) > self.greatest_characters)
            or (self.pattern is not None and not re.fullmatch(self.pattern, value))
        ):
            raise InvalidRequestError.of_field(name, value, self.allowed)
        return value

    def schema(self) -> Schema:
        """The rule as JSON Schema."""
        schema: Schema = {"type": "string"}
        if self.pattern is not None:
            schema["pattern"] = f"^(?:{self.pattern})$"
        if self.least_characters:
            schema["minLength"] = self.least_characters
        if self.greatest_characters is not None:
            schema["maxLength"] = self.greatest_characters
        return schema


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number; ``3.0`` is one, as in JSON Schema.

    Attributes:
        least: least value.
        greatest: greatest value.
        what: what is counted, for errors, such as ``the artifact's size in bytes``. Default: a whole number.
        too_large: whether a greater value is a payload that is too large (413) instead of a wrong field (400).
    """

    least: int
    greatest: int
    what: str = "a whole number"
    too_large: bool = False

    def check(self, name: str, value: object) -> int:
        """The number; raises `InvalidRequestError`, or `PayloadTooLargeError` if that is what greater numbers mean."""
        number = int(value) if isinstance(value, float) and value.is_integer() else value
        if (
            not isinstance(number, int)
            or isinstance(number, bool)
            or number < self.least
            or (number > self.greatest and not self.too_large)
        ):
            raise InvalidRequestError.of_field(name, value, f"{self.what} from {self.least} to {self.greatest}")
        if number > self.greatest:
            raise PayloadTooLargeError.of_limit(name, number, self.greatest)
        return number

    def schema(self) -> Schema:
        """The rule as JSON Schema."""
        return {"type": "integer", "minimum": self.least, "maximum": self.greatest}


@dataclass(frozen=True, slots=True)
class Number:
    """A number, whole or not.

    Attributes:
        least: least value.
        greatest: greatest value.
        what: what it is, for errors.
    """

    least: float
    greatest: float
    what: str = "a number"

    def check(self, name: str, value: object) -> float:
        """The number; raises `InvalidRequestError`."""
        if not isinstance(value, int | float) or isinstance(value, bool) or not self.least <= value <= self.greatest:
            raise InvalidRequestError.of_field(name, value, f"{self.what} from {self.least:g} to {self.greatest:g}")
        return value

    def schema(self) -> Schema:
        """The rule as JSON Schema."""
        return {"type": "number", "minimum": self.least, "maximum": self.greatest}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words.

    Attributes:
        values: the words.
    """

    values: Sequence[str]

    def check(self, name: str, value: object) -> str:
        """The word; raises `InvalidRequestError`."""
        if not isinstance(value, str) or value not in self.values:
            raise InvalidRequestError.of_field(name, value, list(self.values))
        return value

    def schema(self) -> Schema:
        """The rule as JSON Schema."""
        return {"type": "string", "enum": list(self.values)}


@dataclass(frozen=True, slots=True)
class Flag:
    """``true`` or ``false``."""

    def check(self, name: str, value: object) -> bool:
        """The flag; raises `InvalidRequestError`."""
        if not isinstance(value, bool):
            raise InvalidRequestError.of_field(name, value, "true or false")
        return value

    def schema(self) -> Schema:
        """The rule as JSON Schema."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Many:
    """A list without repetitions.

    Attributes:
        of: what it holds.
        least: least length.
        greatest: greatest length.
    """

    of: Shape
    least: int
    greatest: int

    def check(self, name: str, value: object) -> list[object]:
        """The list; raises `InvalidRequestError`."""
        if not isinstance(value, list) or not self.least <= len(value) <= self.greatest:
            raise InvalidRequestError.of_field(name, value, f"a list of {self.least} to {self.greatest}")
        items = [self.of.check(f"{name}[{index}]", item) for index, item in enumerate(value)]
        if any(item in items[:index] for index, item in enumerate(items)):
            raise InvalidRequestError.of_field(name, value, "a list without repetitions")
        return items

    def schema(self) -> Schema:
        """The rule as JSON Schema."""
        return {"type": "array", "items": self.of.schema(), "minItems": self.least, "maxItems": self.greatest, "uniqueItems": True}


@dataclass(frozen=True, slots=True)
class _Nullable:
    shape: Shape

    def check(self, name: str, value: object) -> object:
        return None if value is None else self.shape.check(name, value)

    def schema(self) -> Schema:
        schema = self.shape.schema()
        if "enum" in schema:
            return {"anyOf": [schema, {"type": "null"}]}
        return {**schema, "type": [schema["type"], "null"]}


def nullable(shape: Shape) -> Shape:
    """``shape``, or ``null``."""
    return _Nullable(shape)


class Required:
    """What `Member.default` is for a member that must be there."""


class Absent:
    """What `Member.default` is for a member that may be left out and then is not in the checked object either."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an object.

    Attributes:
        shape: what it holds.
        says: what it means, for the document.
        default: its value if it is left out. Default: it must be there.
        example: a value for the document. Default: none.
    """

    shape: Shape
    says: str
    default: object = Required
    example: object = None


@dataclass(frozen=True, slots=True)
class Obj:
    """An object with no other members than these.

    Attributes:
        members: name -> member.
        extra: rules between members, as JSON Schema keywords (``if``, ``then`` ...); whoever uses the object checks them.
    """

    members: Mapping[str, Member]
    extra: Mapping[str, object] = field(default_factory=dict)

    def check(self, name: str, value: object) -> dict[str, object]:
        """The object with all its members, defaults filled in; raises for the first member that is wrong."""
        if not isinstance(value, dict):
            names = ", ".join(self.members)
            raise InvalidRequestError.of_field(name, value, f"a JSON object with {names}" if names else "an empty JSON object")
        for got in value:
            if got not in self.members:
                shown = self._path(name, got[:_SHOWN_NAME_CHARACTERS])
                raise InvalidRequestError.of_field(shown, value[got], list(self.members) or "no members")
        return dict(self._checked(name, value))

    def _checked(self, name: str, value: Mapping[str, object]) -> Iterator[tuple[str, object]]:
        for member, rule in self.members.items():
            if member in value:
                yield member, rule.shape.check(self._path(name, member), value[member])
            elif rule.default is Required:
                rule.shape.check(self._path(name, member), None)
                raise InvalidRequestError.of_field(self._path(name, member), None, "a value: it must be there")
            elif rule.default is not Absent:
                yield member, rule.default

    @staticmethod
    def _path(name: str, member: str) -> str:
        return member if name == "body" else f"{name}.{member}"

    def schema(self) -> Schema:
        """The rule as JSON Schema."""
        properties: dict[str, object] = {}
        for name, member in self.members.items():
            told: Schema = {**member.shape.schema(), "description": member.says}
            if member.default not in (Required, Absent, None):
                told["default"] = member.default
            if member.example is not None:
                told["examples"] = [member.example]
            properties[name] = told
        required = [name for name, member in self.members.items() if member.default is Required]
        schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False, **self.extra}
        if required:
            schema["required"] = required
        if example := self.example():
            schema["examples"] = [example]
        return schema

    def example(self) -> dict[str, object]:
        """An object of the members' examples."""
        shown = {name: member.shape.example() if isinstance(member.shape, Obj) else member.example for name, member in self.members.items()}
        return {name: value for name, value in shown.items() if value not in (None, {})}


def parse_json(body: bytes) -> object:
    """Parse a body; raises `InvalidRequestError` if it is not JSON in UTF-8."""
    try:
        document: object = json.loads(body.decode(), parse_constant=_refuse)
        json.dumps(document, ensure_ascii=False).encode()  # a lone surrogate cannot be stored
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError("the body is not JSON in UTF-8", field="body", allowed="a JSON object") from error
    return document


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")
