from __future__ import annotations

import json

import pytest

from mme_tenancy.errors import InvalidRequestError, PayloadTooLargeError
from mme_tenancy.shapes import Absent, Choice, Flag, Many, Member, Obj, Text, Whole, nullable, parse_json

PERSON = Obj(
    {
        "name": Member(Text("a lower-case word", pattern="[a-z]+"), "the name"),
        "age": Member(nullable(Whole(0, 150)), "years", default=None),
        "tags": Member(Many(Choice(("a", "b")), 0, 2), "marks", default=()),
        "tall": Member(Flag(), "whether tall", default=False),
    }
)


def field_of(shape, value):
    with pytest.raises(InvalidRequestError) as caught:
        shape.check("body", value)
    return caught.value.field


def test_a_right_object_comes_back_with_its_defaults():
    assert PERSON.check("body", {"name": "ann"}) == {"name": "ann", "age": None, "tags": (), "tall": False}
    assert PERSON.check("body", {"name": "ann", "age": 7.0, "tags": ["b"], "tall": True}) == {
        "name": "ann",
        "age": 7,
        "tags": ["b"],
        "tall": True,
    }


def test_a_member_that_may_be_absent_is_checked_if_it_is_there_and_has_no_default():
    shape = Obj({"size": Member(Whole(1, 9), "the size", Absent)})
    assert shape.check("body", {}) == {}
    assert shape.check("body", {"size": 3}) == {"size": 3}
    assert field_of(shape, {"size": None}) == "size"
    schema = shape.schema()
    assert "required" not in schema
    assert "default" not in schema["properties"]["size"]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([], "body"),
        ({}, "name"),
        ({"name": "Ann"}, "name"),
        ({"name": "ann\n"}, "name"),
        ({"name": "ann", "age": True}, "age"),
        ({"name": "ann", "age": 1.5}, "age"),
        ({"name": "ann", "age": 1e400}, "age"),
        ({"name": "ann", "age": 151}, "age"),
        ({"name": "ann", "tags": ["a", "c"]}, "tags[1]"),
        ({"name": "ann", "tags": ["a", "a"]}, "tags"),
        ({"name": "ann", "tags": ["a"] * 3}, "tags"),
        ({"name": "ann", "tags": "a"}, "tags"),
        ({"name": "ann", "tall": 1}, "tall"),
        ({"name": "ann", "x" * 200: 1}, "x" * 100),
    ],
)
def test_the_first_wrong_member_is_named(value, field):
    assert field_of(PERSON, value) == field


def test_a_member_that_must_be_there_is_missed_even_if_it_may_be_null():
    shape = Obj({"note": Member(nullable(Text("text")), "a note")})
    assert shape.check("body", {"note": None}) == {"note": None}
    assert field_of(shape, {}) == "note"


@pytest.mark.parametrize("shape", [Whole(1, 5, too_large=True), Text("text", greatest_characters=5, too_large=True)])
def test_what_is_above_the_limit_may_be_a_payload_that_is_too_large(shape):
    with pytest.raises(PayloadTooLargeError, match="at most 5 bytes"):
        shape.check("size", 6 if isinstance(shape, Whole) else "123456")


def test_members_of_members_are_named_by_their_path():
    assert field_of(Obj({"who": Member(PERSON, "a person")}), {"who": {"name": 1}}) == "who.name"
    assert field_of(Obj({"who": Member(PERSON, "a person")}), {"who": {"name": "ann", "shoe": 1}}) == "who.shoe"


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b'{"a": Infinity}', b'"\\ud800"', b"\xff", b"[" * 100_000, "{}".encode("utf-16")])
def test_what_is_not_json_in_utf_8_is_refused(body):
    with pytest.raises(InvalidRequestError) as caught:
        parse_json(body)
    assert caught.value.field == "body"


def test_the_schema_says_the_same():
    assert PERSON.schema() == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^(?:[a-z]+)$", "description": "the name"},
            "age": {"type": ["integer", "null"], "minimum": 0, "maximum": 150, "description": "years"},
            "tags": {
                "type": "array",
                "items": {"type": "string", "enum": ["a", "b"]},
                "minItems": 0,
                "maxItems": 2,
                "uniqueItems": True,
                "description": "marks",
                "default": (),
            },
            "tall": {"type": "boolean", "description": "whether tall", "default": False},
        },
        "additionalProperties": False,
        "required": ["name"],
    }
    assert json.loads(json.dumps(nullable(Choice(("a",))).schema())) == {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}


def test_an_object_shows_the_examples_of_its_members():
    inner = Obj({"name": Member(Text("text"), "the name", example="ann"), "age": Member(Whole(0, 9), "years", default=0)})
    shape = Obj(
        {
            "who": Member(inner, "a person"),
            "note": Member(Text("text"), "a note", default=""),
            "count": Member(Whole(0, 9), "how many", example=3),
        }
    )
    assert shape.example() == {"who": {"name": "ann"}, "count": 3}
    assert shape.schema()["examples"] == [shape.example()]
    assert "examples" not in PERSON.schema()
