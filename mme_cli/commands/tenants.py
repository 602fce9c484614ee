"""``mme tenants show``, ``set``, ``key`` and ``delete``: quotas, tier, formats and the key at the gateway."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from mme_cli.commands.options import ApiUrl, Json, Profile, Region, Stack, Yes, confirm, connection_of
from mme_cli.console import print_json, stdout
from mme_cli.errors import UsageError

__all__ = ["delete", "key", "set_", "show"]

_QUOTAS = ("models", "stored_bytes", "requests_per_second", "in_flight", "cold_loads")


def show(
    tenants: Annotated[list[str], typer.Argument(help="Tenant ids.")],
    stack: Stack = None,
    api_url: ApiUrl = None,
    region: Region = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Tenants with their tier, formats, quotas and what they use of them."""
    client = connection_of(stack, api_url, region, profile).as_admin()
    documents = [client.tenant(tenant) for tenant in tenants]
    if as_json:
        print_json({"tenants": documents})
    else:
        stdout.print(_table(documents))


def set_(
    tenant: Annotated[str, typer.Argument(help="Tenant id; created if it is not there.")],
    tier: Annotated[str | None, typer.Option(help="standard, or trusted: its artifacts may carry code.")] = None,
    models: Annotated[int | None, typer.Option(min=0, help="Models at the same time.")] = None,
    stored_bytes: Annotated[int | None, typer.Option(min=0, help="Compressed bytes of all its artifacts.")] = None,
    requests_per_second: Annotated[int | None, typer.Option(min=1, help="Invocations a second, in each container of the function.")] = None,
    in_flight: Annotated[int | None, typer.Option(min=1, help="Invocations under way, in each container of the function.")] = None,
    cold_loads: Annotated[int | None, typer.Option(min=1, help="Models being loaded, in each container of the function.")] = None,
    formats: Annotated[
        str | None, typer.Option(help="Frameworks whose artifacts it may bring, with commas between; 'all' for all.")
    ] = None,
    stack: Stack = None,
    api_url: ApiUrl = None,
    region: Region = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Create a tenant, or change what is named; what is not named stays."""
    settings: dict[str, Any] = {} if tier is None else {"tier": tier}
    values = (models, stored_bytes, requests_per_second, in_flight, cold_loads)
    asked = dict(zip(_QUOTAS, values, strict=True))
    if quotas := {name: value for name, value in asked.items() if value is not None}:
        settings["quotas"] = quotas
    if formats is not None:
        settings["formats"] = None if formats == "all" else _formats(formats)
    document = connection_of(stack, api_url, region, profile).as_admin().put_tenant(tenant, settings)
    if as_json:
        print_json(document)
    else:
        stdout.print(_table([document]))


def key(
    tenant: Annotated[str, typer.Argument(help="Tenant id.")],
    rotate: Annotated[bool, typer.Option("--rotate", help="Take the key back first; the one before is refused from then on.")] = False,
    yes: Yes = False,
    stack: Stack = None,
    api_url: ApiUrl = None,
    region: Region = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """A tenant's API key, made if there is none: what invocations send as X-Api-Key where the platform has usage plans. It is a secret."""
    client = connection_of(stack, api_url, region, profile).as_admin()
    if rotate:
        confirm(f"take the API key of tenant {tenant} back?", yes=yes)
        client.revoke_api_key(tenant)
    document = client.api_key(tenant)
    if as_json:
        print_json(document)
    else:
        stdout.print(str(document["value"]), markup=False, soft_wrap=True)


def delete(
    tenant: Annotated[str, typer.Argument(help="Tenant id.")],
    yes: Yes = False,
    stack: Stack = None,
    api_url: ApiUrl = None,
    region: Region = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Delete a tenant: all its models lose their routes and are retired; artifacts are deleted after a grace time."""
    client = connection_of(stack, api_url, region, profile).as_admin()
    confirm(f"delete tenant {tenant} and retire all its models?", yes=yes)
    document = client.delete_tenant(tenant)
    if as_json:
        print_json(document)
        return
    stdout.print(f"deleted: {tenant}", markup=False)
    if document.get("cached_copies"):
        stdout.print(str(document["cached_copies"]), markup=False, soft_wrap=True)


def _formats(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("--formats names no framework: use names with commas between, or 'all'")
    return names


def _table(documents: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("tenant", "tier", "formats"):
        table.add_column(column, overflow="fold")
    for column in ("models", "stored bytes", "requests/s", "in flight", "cold loads"):
        table.add_column(column, justify="right")
    for document in documents:
        quotas, usage = document.get("quotas") or {}, document.get("usage") or {}
        cells = []
        for name in _QUOTAS:
            limit = quotas.get(name)
            used = f"{usage[name]:,} of " if name in usage else ""
            cells.append("-" if limit is None else f"{used}{limit:,}")
        formats = document.get("formats")
        tier = "deleted" if document.get("deleted_at") else document.get("tier", "-")
        table.add_row(document["tenant"], tier, "all" if formats is None else ", ".join(formats), *cells)
    return table
