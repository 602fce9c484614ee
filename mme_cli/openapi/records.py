"""Answers as JSON Schema: members from a record's ``document()``, types from its annotations, meanings from its docstring."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, Protocol, Union, get_args, get_origin, get_type_hints

from mme_facts.grammar import ID_PATTERN, SHA256_PATTERN, VERSION_PATTERN

__all__ = ["Record", "Schema", "Schemas", "meanings"]

Schema = dict[str, Any]

_ID: Schema = {"type": "string", "pattern": f"^{ID_PATTERN}$"}
_VERSION: Schema = {"type": "string", "pattern": f"^{VERSION_PATTERN}$"}
_TIMESTAMP: Schema = {"type": "string", "format": "date-time"}
_BY_NAME: Mapping[str, Schema] = {
    "tenant": _ID,
    "model": _ID,
    "version": _VERSION,
    "active_version": _VERSION,
    "sha256": {"type": "string", "pattern": f"^{SHA256_PATTERN}$"},
    "purge_after": _TIMESTAMP,
    "url": {"type": "string", "format": "uri"},
}
"""What text of these names is, wherever it appears; names that end in ``_at`` are timestamps."""


class Record(Protocol):
    """A dataclass with the API's view of it."""

    def document(self) -> dict[str, object]:
        """What the API shows."""
        ...


class Schemas:
    """Component schemas, collected while examples are read.

    Args:
        told: members that are not fields of their record: ``Class.member`` -> schema with description.

    Attributes:
        components: name of the record's class -> its schema.
    """

    def __init__(self, told: Mapping[str, Schema]) -> None:
        self._told = told
        self.components: dict[str, Schema] = {}

    def of(self, example: Record) -> Schema:
        """A reference to the schema of a record like ``example``, which becomes the schema's example."""
        cls = type(example)
        if cls.__name__ not in self.components:
            self.components[cls.__name__] = {}
            document = example.document()
            self.components[cls.__name__] = {
                "type": "object",
                "description": _first_line(cls),
                "properties": {member: self._member(example, member) for member in document},
                "required": list(document),
                "examples": [document],
            }
        return {"$ref": f"#/components/schemas/{cls.__name__}"}

    def _member(self, example: Record, member: str) -> Schema:
        cls = type(example)
        if (told := self._told.get(f"{cls.__name__}.{member}")) is not None:
            return told
        hints, meaning = get_type_hints(cls), meanings(cls)
        if member not in hints or member not in meaning:
            raise LookupError(
                f"{cls.__name__}.document() shows {member!r}, which is no documented field of it: "
                f"document the field in the class's Attributes, or tell its schema in mme_cli.openapi.document"
            )
        return {**self._type(hints[member], member, getattr(example, member)), "description": meaning[member]}

    def _type(self, hint: Any, name: str, value: object) -> Schema:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            (inner,) = (argument for argument in arguments if argument is not types.NoneType)
            return _nullable(self._type(inner, name, value))
        if origin is tuple:
            items = value if isinstance(value, tuple) else ()
            return {"type": "array", "items": self._type(arguments[0], name.removesuffix("s"), items[0] if items else None)}
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self._type(arguments[1], name, None)}
        if isinstance(hint, type) and issubclass(hint, StrEnum):
            return {"type": "string", "enum": [item.value for item in hint]}
        if is_dataclass(hint):
            if value is None:
                raise LookupError(f"the example has no {name}: give it one, so that its schema is known")
            return self.of(typing.cast("Record", value))
        if hint is str:
            return dict(_TIMESTAMP if name.endswith("_at") else _BY_NAME.get(name, {"type": "string"}))
        simple: Mapping[type, Schema] = {bool: {"type": "boolean"}, int: {"type": "integer", "minimum": 0}, float: {"type": "number"}}
        if hint not in simple:
            raise LookupError(f"{name} has the type {hint}, which is not known here: teach it to mme_cli.openapi.records")
        return dict(simple[hint])


def meanings(cls: type) -> dict[str, str]:
    """What each field of a dataclass means, from the ``Attributes`` (or ``Args``) of its docstring."""
    text = inspect.getdoc(cls) or ""
    section = re.search(r"^(?:Attributes|Args):\n((?:[ ]{4}.*\n?|\n)+)", text, re.MULTILINE)
    found: dict[str, str] = {}
    if section is None:
        return found
    for entry in re.split(r"\n(?=[ ]{4}\w+:)", "\n" + section[1].rstrip()):
        name, _, meaning = entry.strip().partition(":")
        found[name] = " ".join(meaning.replace("``", "`").split())
    return {field.name: found[field.name] for field in fields(cls) if field.name in found} if is_dataclass(cls) else found


def _nullable(schema: Schema) -> Schema:
    if "$ref" in schema or "enum" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}


def _first_line(cls: type) -> str:
    return (inspect.getdoc(cls) or "").partition("\n")[0].replace("``", "`")
