"""Options that several commands share: where the API or the app is, how the result is printed, whether to ask first."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mme_cli.console import stderr
from mme_cli.errors import UsageError

if TYPE_CHECKING:
    from mme_cli.connections import Connection

__all__ = ["ApiUrl", "Json", "Profile", "Project", "Region", "Stack", "Yes", "confirm", "connection_of"]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Project = Annotated[Path, typer.Option(help="Folder of the CDK app (app.py, cdk.json).", file_okay=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]
Stack = Annotated[
    str | None,
    typer.Option(
        help="Stack on AWS whose outputs name the API and its roles, such as MmePlatform; left out, the local cloud that runs here."
    ),
]
ApiUrl = Annotated[
    str | None,
    typer.Option(
        help="Address of the API's stage, called with the token in MME_API_TOKEN, or with the environment's AWS credentials as they are."
    ),
]
Region = Annotated[str | None, typer.Option(help="AWS region; left out, the environment's.")]
Profile = Annotated[str | None, typer.Option(help="AWS profile; left out, the environment's.")]


def connection_of(stack: str | None, api_url: str | None, region: str | None, profile: str | None) -> Connection:
    """The API that the options name; raises `CommandError`."""
    if stack is not None and api_url is not None:
        raise UsageError("use either --stack or --api-url")
    if stack is None and api_url is None and (region is not None or profile is not None):
        raise UsageError("--region and --profile belong to --stack or --api-url")
    from mme_cli.connections import connect

    return connect(stack=stack, api_url=api_url, region=region, profile=profile)


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal, and go on without one; raises `typer.Abort` if the answer is no."""
    if yes or not sys.stdin.isatty():
        return
    stderr.print(f"{question} [y/N] ", end="", markup=False)
    if input().strip().lower() not in {"y", "yes"}:
        raise typer.Abort
