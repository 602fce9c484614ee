"""Plain values to and from DynamoDB's attribute values; lighter than boto3's serializer, and numbers stay ``int`` or ``float``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

__all__ = ["Item", "from_item", "to_attribute", "to_item"]

Item = dict[str, Any]
"""A plain item: text, numbers, booleans, bytes, lists and maps."""


def to_attribute(value: object) -> AttributeValueTypeDef:
    """One value; raises `TypeError` for what cannot be stored."""
    match value:
        case bool():
            return {"BOOL": value}
        case str():
            return {"S": value}
        case int() | float():
            return {"N": repr(value)}
        case bytes():
            return {"B": value}
        case Mapping():
            return {"M": to_item(value)}
        case Sequence():
            return {"L": [to_attribute(element) for element in value]}
    raise TypeError(f"{type(value).__name__} cannot be stored")


def to_item(values: Mapping[str, object]) -> dict[str, AttributeValueTypeDef]:
    """A map; members that are ``None`` are left out."""
    return {name: to_attribute(value) for name, value in values.items() if value is not None}


def _from_attribute(attribute: AttributeValueTypeDef) -> object:
    ((kind, value),) = attribute.items()
    match kind:
        case "N":
            text = str(value)
            return int(text) if text.lstrip("-").isdigit() else float(text)
        case "M":
            assert isinstance(value, Mapping)
            return from_item(value)
        case "L":
            assert isinstance(value, Sequence)
            return [_from_attribute(element) for element in value]
        case "S" | "BOOL" | "B":
            return value
    raise TypeError(f"attributes of type {kind} are not ours")


def from_item(item: Mapping[str, AttributeValueTypeDef]) -> Item:
    """The plain form of a stored map."""
    return {name: _from_attribute(attribute) for name, attribute in item.items()}
