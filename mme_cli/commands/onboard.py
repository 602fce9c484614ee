"""``mme onboard``: one model, or a manifest of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mme_cli.commands.options import ApiUrl, Json, Profile, Region, Stack, connection_of
from mme_cli.console import print_json, stderr, stdout
from mme_cli.errors import CommandError, UsageError

if TYPE_CHECKING:
    from mme_cli.connections import Connection
    from mme_cli.onboarding.bulk import Result
    from mme_cli.onboarding.outcome import Outcome

__all__ = ["onboard"]

_SHOWN_FAILURES = 20


def onboard(
    tenant: Annotated[str | None, typer.Argument(help="Tenant id.")] = None,
    model: Annotated[str | None, typer.Argument(help="Model id.")] = None,
    artifact: Annotated[Path | None, typer.Argument(help="The .tar.gz; 'mme package' makes one from a model.", dir_okay=False)] = None,
    sample: Annotated[
        Path | None, typer.Option(help="File with a payload that the model must be able to answer before it gets traffic.", dir_okay=False)
    ] = None,
    content_type: Annotated[str | None, typer.Option(help="Media type of the payload; left out, told by the file's name.")] = None,
    accept: Annotated[str | None, typer.Option(help="Media type of the answer to the payload; left out, the container chooses.")] = None,
    framework: Annotated[
        str | None, typer.Option(help="xgboost, sklearn, onnx, pytorch, tensorflow or triton; left out, told by the archive's members.")
    ] = None,
    notes: Annotated[str | None, typer.Option(help="Your own words, kept with the version.")] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            help="CSV file with the columns tenant, model, artifact, sample, and if wanted content_type, framework, accept, notes. "
            "Interrupted with Ctrl-C, the same command goes on where it was.",
            dir_okay=False,
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Models of the manifest that are registered and uploaded at once.")] = 8,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that the admission of a version may take after its upload.")] = 1800.0,
    stack: Stack = None,
    api_url: ApiUrl = None,
    region: Region = None,
    profile: Profile = None,
    as_json: Json = False,
) -> None:
    """Bring a model to a tenant: register, upload, and wait until it is active or rejected with every finding; or all of a manifest."""
    if manifest is not None:
        given = {
            "TENANT": tenant,
            "--sample": sample,
            "--content-type": content_type,
            "--accept": accept,
            "--framework": framework,
            "--notes": notes,
        }
        if named := [name for name, value in given.items() if value is not None]:
            raise UsageError(f"{named[0]} and --manifest do not go together: the manifest says it for each model")
        _onboard_all(manifest, lambda: connection_of(stack, api_url, region, profile), concurrency, timeout, as_json=as_json)
        return
    if tenant is None or model is None or artifact is None or sample is None:
        raise UsageError("name TENANT MODEL ARTIFACT and --sample, or a --manifest; 'mme onboard --help' has examples")
    from mme_cli.onboarding.artifact import ModelFiles

    files = ModelFiles.check(tenant, model, artifact, sample, content_type=content_type, framework=framework, accept=accept, notes=notes)
    from mme_cli.onboarding.progress import upload_progress
    from mme_cli.onboarding.single import onboard_one

    client = connection_of(stack, api_url, region, profile).as_tenant(tenant)
    with upload_progress(stderr, artifact.stat().st_size) as sent, _interruptible():
        outcome = onboard_one(
            client,
            files,
            timeout_seconds=timeout,
            sent=sent,
            tell=lambda text: stderr.print(f"{tenant}/{model}: {text}", markup=False, soft_wrap=True),
        )
    if as_json:
        print_json({"tenant": tenant, "model": model, **outcome.document()})
    else:
        _print_outcome(f"{tenant}/{model}", outcome)
    if not outcome.admitted:
        raise CommandError(f"{tenant}/{model} {outcome.version} is {outcome.state}")


@contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        stderr.print("interrupted: the same command goes on with what is uploaded")
        raise


def _print_outcome(name: str, outcome: Outcome) -> None:
    from mme_cli.onboarding.outcome import finding_lines

    stdout.print(f"{name} {outcome.version}: {outcome.state}", markup=False, soft_wrap=True)
    for line in finding_lines(outcome.document()):
        stdout.print(f"  {line}", markup=False, soft_wrap=True)
    if outcome.state == "ready":
        stdout.print("  the route stays with another version: 'mme activate' sends requests to this one", markup=False, soft_wrap=True)


def _onboard_all(manifest: Path, connected: Callable[[], Connection], concurrency: int, timeout: float, *, as_json: bool) -> None:
    from mme_cli.onboarding.bulk import Bulk
    from mme_cli.onboarding.journal import Journal, journal_of, only_run
    from mme_cli.onboarding.manifest import read_manifest, write_manifest
    from mme_cli.onboarding.progress import bulk_progress

    rows = read_manifest(manifest)
    connection = connected()
    with only_run(manifest):
        journal, stop = Journal(journal_of(manifest)), Event()
        client = connection.as_admin(stop, connections=concurrency + 1)
        run = Bulk(rows, lambda _tenant: client, journal, concurrency=concurrency, stop=stop, timeout_seconds=timeout)
        try:
            with bulk_progress(stderr, len(rows)) as show:
                result = run.run(show)
        except KeyboardInterrupt:
            stderr.print(
                f"interrupted: what was done is in {str(journal_of(manifest))!r}; the same command goes on from there",
                markup=False,
                soft_wrap=True,
            )
            raise
        failed_file = manifest.with_name(f"{manifest.stem}.failed.csv")
        if result.failures:
            write_manifest(failed_file, [(row, outcome.text) for row, outcome in result.failures])
        else:
            failed_file.unlink(missing_ok=True)
        journal.remove()
    if as_json:
        print_json(_report(result, failed_file if result.failures else None))
    else:
        _print_result(result)
    if result.failures:
        raise CommandError(f"{len(result.failures)} of {len(rows)} models failed: {str(failed_file)!r} lists them and is a manifest itself")


def _report(result: Result, failed_file: Path | None) -> dict[str, Any]:
    models = [
        {"line": row.line, "tenant": row.files.tenant, "model": row.files.model, **outcome.document()}
        for row, outcome in zip(result.rows, result.outcomes, strict=True)
        if outcome is not None
    ]
    return {
        "models": len(result.rows),
        "admitted": sum(model["admitted"] for model in models),
        "failed": len(result.failures),
        "seconds": round(result.seconds, 1),
        "failed_manifest": None if failed_file is None else str(failed_file),
        "outcomes": models,
    }


def _print_result(result: Result) -> None:
    admitted = len(result.rows) - len(result.failures)
    stdout.print(f"{admitted} of {len(result.rows)} models admitted in {result.seconds:.1f} s", markup=False)
    waiting = [
        row.name for row, outcome in zip(result.rows, result.outcomes, strict=True) if outcome is not None and outcome.state == "ready"
    ]
    if waiting:
        stdout.print(
            f"{len(waiting)} of them are ready beside another active version: {', '.join(waiting[:_SHOWN_FAILURES])}", markup=False
        )
    for row, outcome in result.failures[:_SHOWN_FAILURES]:
        stdout.print(f"line {row.line}: {row.name}: {outcome.state}: {outcome.text}", markup=False, soft_wrap=True)
    if len(result.failures) > _SHOWN_FAILURES:
        stdout.print(f"and {len(result.failures) - _SHOWN_FAILURES} more", markup=False)
