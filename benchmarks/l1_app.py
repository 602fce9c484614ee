"""The baseline of the synthesis benchmark: an app of typed L1 constructs that yields the same resources as given templates.

Written by a program instead of by hand, so that it stays the same app; each resource becomes the call that a person would write:
``aws_s3.CfnBucket(stack, "Id", bucket_encryption=aws_s3.CfnBucket.BucketEncryptionProperty(...))``.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import json
import re
import typing
from collections.abc import Mapping
from pathlib import Path

__all__ = ["write"]


def write(templates: Mapping[str, Mapping[str, typing.Any]], asset: Path, target: Path) -> None:
    """Write the program.

    Args:
        templates: stack name -> template.
        asset: folder or zip of the functions' code, staged as an asset of the last stack.
        target: the program's file.
    """
    modules: set[str] = set()
    body = ["app = cdk.App()"]
    for name, template in templates.items():
        body.append(f"stack = cdk.Stack(app, {name!r})")
        for logical_id, resource in template["Resources"].items():
            service, kind = resource["Type"].split("::")[1:]
            module = f"aws_{service.lower()}"
            modules.add(module)
            cls = getattr(importlib.import_module(f"aws_cdk.{module}"), f"Cfn{kind}")
            arguments = _arguments(cls, f"{module}.Cfn{kind}", resource.get("Properties", {}))
            body.append(f"resource = {module}.Cfn{kind}(stack, {logical_id!r}{''.join(f', {item}' for item in arguments)})")
            body.append(f"resource.override_logical_id({logical_id!r})")
    body += [f"aws_s3_assets.Asset(stack, 'Code', path={str(asset)!r})", "app.synth()"]
    imports = ["import aws_cdk as cdk", *(f"from aws_cdk import {module}" for module in sorted({*modules, "aws_s3_assets"}))]
    target.write_text("\n".join([*imports, "", *body]) + "\n", "utf-8")


def _arguments(cls: type, path: str, properties: Mapping[str, typing.Any]) -> list[str]:
    """Keyword arguments of an L1 construct or of one of its property classes."""
    module = vars(importlib.import_module(cls.__module__))
    parameters = {name.replace("_", ""): (name, parameter) for name, parameter in inspect.signature(cls.__init__).parameters.items()}
    arguments = []
    for key, value in properties.items():
        name, parameter = parameters[key.lower()]
        arguments.append(f"{name}={_expression(value, parameter.annotation, path, module)}")
    return arguments


def _expression(value: typing.Any, annotation: typing.Any, path: str, module: Mapping[str, typing.Any]) -> str:
    kinds = list(_flatten(annotation, module))
    if isinstance(value, dict) and len(value) == 1 and (next(iter(value)) == "Ref" or next(iter(value)).startswith("Fn::")):
        return f"cdk.Token.as_string({value!r})" if str in kinds else repr(value)
    struct = next((kind for kind in kinds if inspect.isclass(kind) and kind.__name__.endswith(("Property", "CfnTag"))), None)
    if struct is not None and isinstance(value, dict):
        owner = "cdk.CfnTag" if struct.__name__ == "CfnTag" else f"{path.partition('.')[0]}.{struct.__qualname__}"
        return f"{owner}({', '.join(_arguments(struct, path, value))})"
    if struct is not None and isinstance(value, list):
        return f"[{', '.join(_expression(item, struct, path, module) for item in value)}]"
    if isinstance(value, list) and str in kinds:
        return f"[{', '.join(_expression(item, str, path, module) for item in value)}]"
    if isinstance(value, dict) and str in kinds:
        return "{" + ", ".join(f"{key!r}: {_expression(item, str, path, module)}" for key, item in value.items()) + "}"
    return repr(value)


def _flatten(annotation: typing.Any, module: Mapping[str, typing.Any]) -> typing.Iterator[typing.Any]:
    """The types that an annotation allows, also as items of lists."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        annotation = eval(annotation, {}, _Names(module))  # noqa: S307 - annotations of aws_cdk itself
    arguments = typing.get_args(annotation)
    if not arguments:
        yield annotation
    elif typing.get_origin(annotation) is not dict:
        for argument in arguments:
            yield from _flatten(argument, module)


class _Foreign:
    """A name of another module: whatever is asked of it is one, too."""

    def __getattr__(self, name: str) -> _Foreign:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Foreign()

    def __call__(self) -> None:
        """Be callable, which is all that ``typing`` asks of a type."""


class _Names(dict[str, typing.Any]):
    """Names of a module of ``aws_cdk``; what it imports under another name (interfaces of other modules) plays no part here."""

    def __init__(self, module: Mapping[str, typing.Any]) -> None:
        super().__init__({"typing": typing, "builtins": builtins, **module})

    def __missing__(self, name: str) -> object:
        return _Foreign()


def main(folder: Path, asset: Path, target: Path) -> None:
    """Write the program for the templates of a cloud assembly."""
    templates = {
        re.sub(r"\.template\.json$", "", path.name): json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.template.json"))
    }
    write(templates, asset, target)
