"""``mme warm-up``: what is done when a fleet has changed."""

from __future__ import annotations

from typing import Annotated

import typer

from mme_cli.commands.options import Json, Region
from mme_cli.console import print_json, stderr, stdout
from mme_cli.errors import UsageError

__all__ = ["warm_up"]


def warm_up(
    endpoint: Annotated[
        str | None, typer.Argument(help="Endpoint, or its pool such as xgboost; left out, the only one, or with neither option all.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what a warm-up would do now, and why; nothing is called.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Start one although nothing has changed, and watch it to its end.")] = False,
    instances: Annotated[
        int | None, typer.Option(min=1, help="With --dry-run: plan as if the fleet had just become so many instances.")
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="With --dry-run: models to list; --json has them all.")] = 20,
    region: Region = None,
    profile: Annotated[str | None, typer.Option(help="AWS profile; asks AWS.")] = None,
    url: Annotated[
        str | None, typer.Option("--endpoint-url", help="Address to ask instead of AWS; left out, the local cloud that runs here.")
    ] = None,
    aws: Annotated[bool, typer.Option("--aws", help="Ask AWS although a local cloud runs here.")] = False,
    as_json: Json = False,
) -> None:
    """What the last warm-up did; what one would do now; start one. Exit status 1 if one that was started did not reach its end."""
    from mme_cli.sessions import open_session
    from mme_cli.warm_up.targets import chosen, targets

    if dry_run and now:
        raise UsageError("use either --dry-run or --now")
    if instances is not None and not dry_run:
        raise UsageError("--instances belongs to --dry-run: only a real change gives a fleet instances")
    known = targets(open_session(endpoint_url=url, region=region, profile=profile, aws=aws))
    if dry_run:
        from mme_cli.warm_up.dry_run import dry_run as plan
        from mme_cli.warm_up.dry_run import dry_run_view

        planned = plan(chosen(known, endpoint), instances)
        if as_json:
            print_json(planned.document())
        else:
            stdout.print(dry_run_view(planned, rows), soft_wrap=True)
        return
    from mme_cli.warm_up.course import course, course_view, courses_view

    if now:
        from mme_cli.warm_up.start import follow, start

        target = chosen(known, endpoint)
        number = start(target)
        try:
            with stderr.status(f"warming {target.name}", spinner="dots") as shown:
                done = follow(target, number, lambda text: shown.update(f"warming {target.name}: {text}"))
        except KeyboardInterrupt:
            stderr.print(f"the warm-up goes on: 'mme warm-up {target.name}' shows it", markup=False, soft_wrap=True)
            raise
        if as_json:
            print_json(done.document())
        else:
            stdout.print(course_view(done), soft_wrap=True)
        if not done.went_well:
            raise typer.Exit(1)
        return
    found = [course(each) for each in (known if endpoint is None and known else [chosen(known, endpoint)])]
    if as_json:
        print_json([each.document() for each in found] if endpoint is None else found[0].document())
    elif endpoint is None and len(found) > 1:
        stdout.print(courses_view(found), soft_wrap=True)
    else:
        stdout.print(course_view(found[0]), soft_wrap=True)
