"""Commands for whoever operates the platform: the registry's backup and repair, and dead letters."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mme_cli.commands.options import Json, Region
from mme_cli.console import print_json, stderr, stdout
from mme_facts.grammar import MODELS_PREFIX

if TYPE_CHECKING:
    from mme_cli.registry import RegistryTarget, Restored
    from mme_cli.sessions import Asked

__all__ = ["dead_letters_app", "registry_app"]

registry_app = typer.Typer(help="Back up, restore, reconcile and migrate the registry.", no_args_is_help=True)
dead_letters_app = typer.Typer(help="Events of the platform's functions that failed for good.", no_args_is_help=True)

Table = Annotated[str | None, typer.Option(help="The registry's table; left out, that of the local cloud.")]
Bucket = Annotated[str | None, typer.Option(help="The artifacts' bucket; left out, that of the local cloud.")]
Profile = Annotated[str | None, typer.Option(help="AWS profile; asks AWS.")]
Url = Annotated[str | None, typer.Option("--endpoint-url", help="Address to ask instead of AWS; left out, the local cloud that runs here.")]
Aws = Annotated[bool, typer.Option("--aws", help="Ask AWS although a local cloud runs here.")]
Apply = Annotated[bool, typer.Option("--apply", help="Do it; left out, only say what would be done.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="With --apply: replace items that differ, too.")]


def _asked(endpoint_url: str | None, region: str | None, profile: str | None, *, aws: bool) -> Asked:
    from mme_cli.sessions import open_session

    return open_session(endpoint_url=endpoint_url, region=region, profile=profile, aws=aws)


def _registry(
    table: str | None,
    bucket: str | None,
    url: str | None,
    region: str | None,
    profile: str | None,
    *,
    aws: bool,
    prefix: str = MODELS_PREFIX,
) -> RegistryTarget:
    from mme_cli.registry import registry_target

    return registry_target(_asked(url, region, profile, aws=aws), table=table, bucket=bucket, models_prefix=prefix)


@registry_app.command(
    epilog="Examples:  mme registry reconcile  |  mme registry reconcile --table T --bucket B --region eu-central-1 --apply --json"
)
def reconcile(
    table: Table = None,
    bucket: Bucket = None,
    models_prefix: Annotated[str, typer.Option(help="Prefix of the artifacts.")] = MODELS_PREFIX,
    tenant: Annotated[str | None, typer.Option(help="Look at this tenant only.")] = None,
    apply: Apply = False,
    delete_objects: Annotated[
        bool,
        typer.Option("--delete-objects", help="With --apply: delete artifacts that no record points to, too. They cannot be brought back."),
    ] = False,
    region: Region = None,
    profile: Profile = None,
    url: Url = None,
    aws: Aws = False,
    as_json: Json = False,
) -> None:
    """Compare the registry with the bucket and say what is wrong; exit status 1 if something is left."""
    from mme_cli.registry import lines_of
    from mme_cli.registry import reconcile as run

    done = run(
        _registry(table, bucket, url, region, profile, aws=aws, prefix=models_prefix),
        apply=apply,
        delete_objects=delete_objects,
        tenant=tenant,
    )
    if as_json:
        print_json(done.document())
    else:
        for line in lines_of(done.found):
            stdout.print(line, markup=False, soft_wrap=True)
        for text in done.left:
            stderr.print(f"left: {text}", markup=False, soft_wrap=True)
        for key in done.foreign:
            stderr.print(f"not ours, left alone: {key}", markup=False, soft_wrap=True)
        stdout.print(
            f"{done.tenants} tenants, {len(done.found)} differences, {done.repaired} repaired, {done.deleted} artifacts deleted",
            markup=False,
        )
    if not done.clean:
        raise typer.Exit(1)


@registry_app.command("export", epilog="Example:  mme registry export registry.jsonl")
def export_items(
    file: Annotated[Path, typer.Argument(help="File to write, one item a line.", dir_okay=False)],
    table: Table = None,
    region: Region = None,
    profile: Profile = None,
    url: Url = None,
    aws: Aws = False,
    as_json: Json = False,
) -> None:
    """Write every item worth restoring to a file."""
    from mme_cli.registry import export_registry

    count = export_registry(_registry(table, "", url, region, profile, aws=aws), file)
    if as_json:
        print_json({"file": str(file), "items": count})
    else:
        stdout.print(f"{count} items written to {file}", markup=False, soft_wrap=True)


@registry_app.command("import", epilog="Example:  mme registry import registry.jsonl --apply")
def import_items(
    file: Annotated[Path, typer.Argument(help="File that 'mme registry export' wrote.", exists=True, dir_okay=False)],
    table: Table = None,
    apply: Apply = False,
    overwrite: Overwrite = False,
    region: Region = None,
    profile: Profile = None,
    url: Url = None,
    aws: Aws = False,
    as_json: Json = False,
) -> None:
    """Bring the items of an export back; exit status 1 if the registry still lacks something of it."""
    from mme_cli.registry import import_registry

    _report(import_registry(_registry(table, "", url, region, profile, aws=aws), file, apply=apply, overwrite=overwrite), as_json=as_json)


@registry_app.command(
    epilog="Examples:  mme registry restore --latest  |  mme registry restore --to-time 2026-11-29T12:00:00Z --table T --apply  |  "
    "mme registry restore --backup arn:aws:dynamodb:... --apply"
)
def restore(
    to_time: Annotated[datetime | None, typer.Option(help="A point in time of the last 35 days, in UTC.")] = None,
    latest: Annotated[bool, typer.Option("--latest", help="The latest moment that can be restored.")] = False,
    backup: Annotated[str | None, typer.Option(help="ARN of an on-demand backup.")] = None,
    from_table: Annotated[str | None, typer.Option(help="A table that was restored before.")] = None,
    table: Table = None,
    apply: Apply = False,
    overwrite: Overwrite = False,
    region: Region = None,
    profile: Profile = None,
    url: Url = None,
    aws: Aws = False,
    as_json: Json = False,
) -> None:
    """Restore a backup into a table beside the registry's and bring back what is missing; exit status 1 if something is left."""
    from mme_cli.registry import restore as run

    done = run(
        _registry(table, "", url, region, profile, aws=aws),
        moment=None if to_time is None else to_time.replace(tzinfo=to_time.tzinfo or UTC),
        latest=latest,
        backup_arn=backup,
        from_table=from_table,
        apply=apply,
        overwrite=overwrite,
        tell=lambda text: stderr.print(text, markup=False),
    )
    _report(done, as_json=as_json)


@registry_app.command(epilog="Examples:  mme registry migrate  |  mme registry migrate --apply --limit 10000")
def migrate(
    table: Table = None,
    apply: Apply = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many items were looked at; the next run goes on there.")] = None,
    region: Region = None,
    profile: Profile = None,
    url: Url = None,
    aws: Aws = False,
    as_json: Json = False,
) -> None:
    """Bring items of the schema before into today's; exit status 1 if there are any left."""
    from mme_cli.registry import migrate as run

    done = run(_registry(table, "", url, region, profile, aws=aws), apply=apply, limit=limit)
    if as_json:
        print_json(done.document())
    else:
        end = "to the end of the table" if done.finished else "not to the end: run it again"
        stdout.print(f"{done.old} items of an older schema, {done.upgraded} brought over; {end}", markup=False, soft_wrap=True)
    if done.old > done.upgraded or not done.finished:
        raise typer.Exit(1)


def _report(done: Restored, *, as_json: bool) -> None:
    if as_json:
        print_json(done.document())
    else:
        copied = done.copied
        put = "put" if done.applied else "would be put"
        replaced = "replaced" if done.overwritten else "kept as they are"
        stdout.print(
            f"from {done.source}: {copied.equal} items equal, {copied.missing} missing ({put}), {copied.different} different ({replaced}), "
            f"{copied.changed} changed meanwhile",
            markup=False,
            soft_wrap=True,
        )
    if not done.clean:
        raise typer.Exit(1)


@dead_letters_app.command("list", epilog="Examples:  mme dead-letters list  |  mme dead-letters list admission --json")
def list_letters(
    name: Annotated[str | None, typer.Argument(help="Queue, function or handler (such as admission); left out, all queues.")] = None,
    region: Region = None,
    profile: Profile = None,
    url: Url = None,
    aws: Aws = False,
    as_json: Json = False,
) -> None:
    """Which queues hold events that failed for good, or what one of them holds."""
    from mme_cli.dead_letters import letters, waiting

    asked = _asked(url, region, profile, aws=aws)
    if name is None:
        queues = waiting(asked)
        if as_json:
            print_json([each.document() for each in queues])
        for each in () if as_json else queues:
            stdout.print(f"{each.messages:6}  {each.handler}  {each.function}  {each.queue}", markup=False, soft_wrap=True)
        return
    found = letters(asked, name)
    if as_json:
        print_json([letter.document() for letter in found])
    for letter in () if as_json else found:
        stdout.print(f"{letter.message_id}  {letter.error or 'no error told'}  {letter.event}", markup=False, soft_wrap=True)


@dead_letters_app.command(
    "redrive", epilog="Examples:  mme dead-letters redrive admission  |  mme dead-letters redrive admission --apply --json"
)
def redrive_letters(
    name: Annotated[str, typer.Argument(help="Queue, function or handler (such as admission).")],
    apply: Apply = False,
    region: Region = None,
    profile: Profile = None,
    url: Url = None,
    aws: Aws = False,
    as_json: Json = False,
) -> None:
    """Send the events of a queue to its function again; exit status 1 if some are left."""
    from mme_cli.dead_letters import redrive

    done = redrive(_asked(url, region, profile, aws=aws), name, apply=apply)
    if as_json:
        print_json(done.document())
    else:
        verb = "sent again" if apply else "would be sent again"
        count = done.sent if apply else len(done.letters) - len(done.kept)
        stdout.print(f"{len(done.letters)} events, {count} {verb}, {len(done.kept)} hold no event and stay", markup=False)
    if len(done.letters) > done.sent:
        raise typer.Exit(1)
