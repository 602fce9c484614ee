"""The page of the documentation site that lists the calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["PAGE", "page_of"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "api.md"

_HEAD = """# Tenant API

Written from the OpenAPI document by `make openapi`. Every deployment serves its own document, with its frameworks, limits and address, at
`GET /openapi.json` to every signed caller whose policy lets it there; the tenants' role does.

"""


def page_of(document: Mapping[str, Any]) -> str:
    """The page, as Markdown."""
    return "\n".join([_HEAD + document["info"]["description"], "", *_lines(document), ""])


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    yield "| call | does | who |\n|---|---|---|"
    for method, path, told in _operations(document):
        yield f"| [`{method} {path}`](#{told['operationId']}) | {told['summary']} | {', '.join(told['x-mme-roles'])} |"
    yield ""
    for method, path, told in _operations(document):
        yield f"## {method} {path} {{ #{told['operationId']} }}\n\n{told['summary']}\n"
        if told["parameters"]:
            yield "| parameter | in | what |\n|---|---|---|"
            for parameter in told["parameters"]:
                yield f"| `{parameter['name']}` | {parameter['in']} | {parameter['description']} {_rule(parameter['schema'])} |"
            yield ""
        yield from _body(told)
        yield "| status | answer |\n|---|---|"
        for status, response in told["responses"].items():
            yield f"| {status} | {_answer(document, response)} |"
        yield ""
    yield "## Bodies and answers\n"
    for name, schema in document["components"]["schemas"].items():
        if schema.get("properties"):
            yield f"### {name} {{ #{name.lower()} }}\n"
            yield from _properties(schema)
            for example in schema.get("examples", []):
                yield f"```json\n{json.dumps(example, indent=2, ensure_ascii=False)}\n```\n"


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            yield method.upper(), path, told


def _body(told: Mapping[str, Any]) -> Iterator[str]:
    if "requestBody" not in told:
        return
    if "description" in told["requestBody"]:
        yield f"Body: {told['requestBody']['description']}\n"
        return
    for media_type, content in told["requestBody"]["content"].items():
        optional = "" if told["requestBody"]["required"] else ", may be left out"
        yield f"Body (`{media_type}`{optional}): {_link(content['schema'])}\n"


def _answer(document: Mapping[str, Any], response: Mapping[str, Any]) -> str:
    if "$ref" not in response:
        (content,) = response["content"].values()
        return f"{response['description']} {_link(content['schema']) if '$ref' in content['schema'] else ''}".strip()
    named = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
    (content,) = named["content"].values()
    return ", ".join(f"`{slug}`" for slug in content["examples"]) + f": {named['description']}"


def _properties(schema: Mapping[str, Any]) -> Iterator[str]:
    yield "| member | what | rule |\n|---|---|---|"
    for name, told in schema["properties"].items():
        needed = "" if name in schema.get("required", []) else " (may be missing)"
        yield f"| `{name}`{needed} | {told.get('description', '')} | {_rule(told)} |"
    yield ""


def _rule(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _link(schema)
    if "anyOf" in schema:
        return " or ".join(_rule(part) for part in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    kinds = schema.get("type", "any")
    words = [kinds if isinstance(kinds, str) else " or ".join(kinds)]
    if schema.get("type") == "array":
        words.append(f"of {_rule(schema['items'])}")
    if isinstance(schema.get("additionalProperties"), dict):
        words.append(f"with values {_rule(schema['additionalProperties'])}")
    if "properties" in schema:
        words.append("with " + ", ".join(f"`{name}`" for name in schema["properties"]))
    for keyword, word in (("minimum", "at least"), ("maximum", "at most"), ("minLength", "at least"), ("maxLength", "at most")):
        if keyword in schema:
            words.append(f"{word} {schema[keyword]}{' characters' if 'Length' in keyword else ''}")
    if "pattern" in schema:
        words.append(f"`{schema['pattern']}`")
    if "format" in schema:
        words.append(f"({schema['format']})")
    return " ".join(words)


def _link(schema: Mapping[str, Any]) -> str:
    name = schema["$ref"].rpartition("/")[2]
    return f"[{name}](#{name.lower()})"
