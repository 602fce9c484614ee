"""JSON Schemas without room for members that they do not name: what an answer shows must be in the document."""

from __future__ import annotations

from typing import Any

__all__ = ["closed"]

_VALUES = ("const", "default", "enum", "example", "examples", "value")


def closed(schema: Any) -> Any:
    """The schema, or any part of a document, with ``additionalProperties: false`` wherever members are listed and nothing else is said."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: value if key in _VALUES else closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)
    return schema
