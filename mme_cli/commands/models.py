"""``mme models``, ``mme activate``, ``mme retire``: a tenant's models, their versions, and where their requests go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table

from mme_cli.commands.options import ApiUrl, Json, Profile, Region, Stack, Yes, confirm, connection_of
from mme_cli.console import print_json, stdout
from mme_cli.errors import UsageError
from mme_cli.onboarding.outcome import finding_lines

__all__ = ["activate", "models", "retire"]

Tenant = Annotated[str, typer.Argument(help="Tenant id.")]
Model = Annotated[str, typer.Argument(help="Model id.")]

_TONES = {"active": "green", "rejected": "red", "expired": "red", "retired": "dim", "purged": "dim"}
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def models(
    tenant: Tenant,
    model: Annotated[str | None, typer.Argument(help="Model id; left out, all models of the tenant.")] = None,
    version: Annotated[str | None, typer.Argument(help="Version id; left out, all versions of the model.")] = None,
    stack: Stack = None,
    api_url: ApiUrl = None,
    region: Region = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """A tenant's models, a model's versions, or a version with its findings and timings."""
    client = connection_of(stack, api_url, region, profile).as_tenant(tenant)
    if model is None:
        listed = list(client.models(tenant))
        if as_json:
            print_json({"tenant": tenant, "models": listed})
        elif listed:
            stdout.print(_models_table(listed))
        else:
            stdout.print(f"{tenant} has no models: bring one with 'mme onboard {tenant} MODEL ARTIFACT --sample FILE'", markup=False)
        return
    if version is not None:
        document = client.version(tenant, model, version)
        if as_json:
            print_json(document)
        else:
            _print_version(document)
        return
    found, versions = client.model(tenant, model), list(client.versions(tenant, model))
    if as_json:
        print_json({**found, "versions": versions})
        return
    stdout.print(f"{tenant}/{model}: {_route_text(found)}", markup=False, soft_wrap=True)
    stdout.print(_versions_table(versions))


def activate(
    tenant: Tenant,
    model: Model,
    version: Annotated[str, typer.Argument(help="Version id, such as v3-0123456789ab; 'mme models TENANT MODEL' lists them.")],
    canary: Annotated[
        float | None,
        typer.Option(
            min=0, max=100, help="Percentage of requests that it gets beside the active version; 0 ends the canary, 100 gives it all."
        ),
    ] = None,
    warm: Annotated[
        bool, typer.Option("--warm/--no-warm", help="Load the version first, by its sample payload; without, its next request may wait.")
    ] = True,
    stack: Stack = None,
    api_url: ApiUrl = None,
    region: Region = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Send a model's requests to a version, forward or back, or a part of them."""
    client = connection_of(stack, api_url, region, profile).as_tenant(tenant)
    document = client.activate(tenant, model, version, canary, warm=warm)
    if as_json:
        print_json(document)
    else:
        stdout.print(f"{tenant}/{model}: {_route_text(document)}", markup=False, soft_wrap=True)


def retire(
    tenant: Tenant,
    model: Model,
    version: Annotated[str | None, typer.Argument(help="Version id; left out, the whole model with all its versions.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Also the active version: the model has no route then.")] = False,
    yes: Yes = False,
    stack: Stack = None,
    api_url: ApiUrl = None,
    region: Region = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Retire a version, or a model: its route goes first, its artifact after a grace time. A retired version does not come back."""
    if version is None and force:
        raise UsageError("--force belongs to a VERSION: a whole model loses its route anyway")
    client = connection_of(stack, api_url, region, profile).as_tenant(tenant)
    what = f"model {tenant}/{model} with all its versions" if version is None else f"version {version} of {tenant}/{model}"
    confirm(f"retire {what}?", yes=yes)
    document = client.delete_model(tenant, model) if version is None else client.delete_version(tenant, model, version, force=force)
    if as_json:
        print_json(document)
        return
    purged = f"; its artifact is deleted after {document['purge_after']}" if document.get("purge_after") else ""
    stdout.print(f"retired: {what}{purged}", markup=False, soft_wrap=True)
    if document.get("cached_copies"):
        stdout.print(str(document["cached_copies"]), markup=False, soft_wrap=True)


def _route_text(model: Mapping[str, Any]) -> str:
    if model.get("active_version") is None:
        return "no active version"
    canary = model.get("canary")
    beside = f", {canary['percent']:g} % of the requests to {canary['version']}" if canary else ""
    return f"{model['active_version']} is active{beside}"


def _table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold", no_wrap=column in right)
    return table


def _models_table(listed: list[dict[str, Any]]) -> Table:
    table = _table("model", "active version", "canary", "versions", "changed (UTC)", right=("versions",))
    for model in listed:
        canary = model.get("canary")
        table.add_row(
            model["model"],
            model.get("active_version") or "-",
            f"{canary['version']} {canary['percent']:g} %" if canary else "-",
            str(model["last_version"]),
            _time(model["updated_at"]),
        )
    return table


def _versions_table(versions: list[dict[str, Any]]) -> Table:
    table = _table("version", "state", "framework", "size", "first load", "registered (UTC)", right=("size", "first load"))
    for version in versions:
        load = version["timings"].get("first_invocation_seconds")
        table.add_row(
            version["version"],
            version["state"],
            version["framework"],
            _bytes(version["size_bytes"]),
            "-" if load is None else f"{load:.2f} s",
            _time(version["created_at"]),
            style=_TONES.get(version["state"]),
        )
    return table


def _print_version(version: Mapping[str, Any]) -> None:
    name = f"{version['tenant']}/{version['model']} {version['version']}"
    stdout.print(f"{name}: {version['state']}, {version['framework']}, {_bytes(version['size_bytes'])}", markup=False, soft_wrap=True)
    stdout.print(f"  registered {version['created_at']}, changed {version['updated_at']}, SHA-256 {version['sha256']}", soft_wrap=True)
    for label, member in (("notes", "notes"), ("artifact deleted after", "purge_after")):
        if version.get(member):
            stdout.print(f"  {label}: {version[member]}", markup=False, soft_wrap=True)
    if version.get("memory_bytes"):
        stdout.print(f"  memory in the container: {_bytes(version['memory_bytes'])}", soft_wrap=True)
    for line in finding_lines(version):
        stdout.print(f"  {line}", markup=False, soft_wrap=True)


def _time(timestamp: str) -> str:
    """A timestamp of the API to the second, without its zone."""
    return timestamp[:19].replace("T", " ")


def _bytes(value: float) -> str:
    for unit, size in _UNITS:
        if value >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} B"
