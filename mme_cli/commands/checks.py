"""The commands that check and make: an endpoint's metrics, a container, an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mme_cli.commands.options import Json
from mme_cli.console import print_json, stderr, stdout
from mme_cli.errors import CommandError

__all__ = ["conformance", "doctor", "package"]


def doctor(
    endpoint: Annotated[str, typer.Argument(help="Name of a multi-model endpoint, of this library or any other.")],
    variant: Annotated[str | None, typer.Option(help="Production variant; left out, the first.")] = None,
    hours: Annotated[int, typer.Option(min=1, max=360, help="How far to look back; some rules look at a whole day.")] = 3,
    instance_type: Annotated[str | None, typer.Option(help="Instance type, if the endpoint's configuration may not be read.")] = None,
    region: Annotated[str | None, typer.Option(help="AWS region; left out, the environment's.")] = None,
    profile: Annotated[str | None, typer.Option(help="AWS profile; asks AWS.")] = None,
    endpoint_url: Annotated[
        str | None, typer.Option(help="Address to ask instead of AWS; left out, the local cloud that runs here.")
    ] = None,
    aws: Annotated[bool, typer.Option("--aws", help="Ask AWS although a local cloud runs here.")] = False,
    as_json: Json = False,
) -> None:
    """Read an endpoint's metrics and say what they mean and what to do; exit status 1 if something is the matter or cannot be judged."""
    from mme_cli.doctor import blind_text, examine, print_report, target

    asked = target(endpoint_url=endpoint_url, region=region, profile=profile, aws=aws)
    report = examine(asked, endpoint, variant=variant, instance_type=instance_type, hours=hours)
    if as_json:
        print_json(report.document())
    else:
        print_report(report, stdout)
    if report.diagnosis.blind:
        raise CommandError(blind_text(report))
    if report.diagnosis.findings:
        raise typer.Exit(1)


def package(
    model: Annotated[Path, typer.Argument(help="The model's file, or its folder (TensorFlow, Triton, ONNX with external data).")],
    output: Annotated[
        Path | None, typer.Option(help="File to write; left out, the model's name with .tar.gz in the current folder.", dir_okay=False)
    ] = None,
    framework: Annotated[
        str | None, typer.Option(help="xgboost, sklearn, onnx, pytorch, tensorflow or triton; left out, told by the model's files.")
    ] = None,
    allow_code: Annotated[bool, typer.Option("--allow-code", help="Take formats that run code when they are loaded.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    as_json: Json = False,
) -> None:
    """Make a right artifact from a model: the same model gives the same bytes, inspected by the rules of admission."""
    from mme_cli.package import package as run_package

    made = run_package(model, output, framework=framework, allow_code=allow_code, overwrite=overwrite)
    if as_json:
        print_json(made.document())
        return
    stdout.print(f"{made.artifact}: {made.framework}, {made.size_bytes} bytes, SHA-256 {made.sha256}", markup=False, soft_wrap=True)
    for path in made.left_out:
        stderr.print(f"left out: {path}", markup=False, soft_wrap=True)
    for warning in made.warnings:
        stderr.print(f"{warning.member}: {warning.detail}; {warning.fix}", markup=False, soft_wrap=True)


def conformance(
    url: Annotated[str, typer.Argument(help="Address of a running multi-model container, such as http://127.0.0.1:8080.")],
    model: Annotated[
        list[str] | None, typer.Option(help="Folder of a valid model, as the container sees it; up to four of them are used.")
    ] = None,
    broken: Annotated[str | None, typer.Option(help="Folder of a model that cannot be loaded.")] = None,
    too_large: Annotated[str | None, typer.Option(help="Folder of a model whose load ends out of memory (507).")] = None,
    fill: Annotated[int, typer.Option(min=0, help="Load at most so many models until the memory is full (507); 0: do not.")] = 0,
    payload: Annotated[
        Path | None, typer.Option(help="File with the body of an invocation that the models answer.", dir_okay=False)
    ] = None,
    content_type: Annotated[str, typer.Option(help="Content-Type of the payload.")] = "application/octet-stream",
    accept: Annotated[str | None, typer.Option(help="Accept of invocations; left out, there is none.")] = None,
    server: Annotated[str | None, typer.Option(help="Allow the known differences of a server: mms or triton.")] = None,
    rule: Annotated[
        list[str] | None, typer.Option(help="Check only this rule and those that it builds on; may be given several times.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that an answer may take.")] = 60.0,
    as_json: Json = False,
) -> None:
    """Check a container against the multi-model contract and name the rules that it breaks; exit status 1 if the platform relies on one."""
    from mme_cli.conformance import broken_text, examine_container, print_report, subject_of

    try:
        subject = subject_of(
            url,
            models=model or (),
            broken=broken,
            too_large=too_large,
            fill=fill,
            payload=payload,
            content_type=content_type,
            accept=accept,
            timeout=timeout,
        )
        report = examine_container(subject, server, rule or ())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        print_json(report.document())
    else:
        print_report(report, stdout)
    if not report.conforms:
        raise CommandError(broken_text(report))
