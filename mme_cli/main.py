"""The ``mme`` command line."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mme_cli.commands.onboard import onboard
from mme_cli.console import Steps, print_json, stderr, stdout
from mme_cli.errors import CommandError
from mme_cli.local_state import LocalState
from mme_cli.top.command import top

if TYPE_CHECKING:
    from mme_cli.demo.run import DemoReport
    from mme_local import Credentials

app = typer.Typer(
    name="mme",
    help="Serve thousands of tenants' models from SageMaker multi-model endpoints.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

tenants = typer.Typer(help="Tenants: who asks for what.", no_args_is_help=True)
app.add_typer(tenants, name="tenants")
tenants.command(
    "top", epilog="Examples:  mme tenants top --last 6h --by cost  |  mme tenants top --stack MmePlatform --stack MmeStorage --json"
)(top)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Project = Annotated[Path, typer.Option(help="Folder of the CDK app (app.py, cdk.json).", file_okay=False)]

_DEMO_STEPS = 5
_INTERRUPTED = 130
_WATCH_SECONDS = 1.0


@app.command(epilog="Examples:  mme demo  |  mme demo --json > report.json")
def demo(
    project: Project = Path(),
    models: Annotated[
        Path | None, typer.Option(help="Folder with models that 'mme demo-models' prepared; left out, they are trained.")
    ] = None,
    as_json: Json = False,
) -> None:
    """From nothing to checked predictions: local cloud, cdk deploy, three tenants onboarded over HTTP."""
    from mme_cli.demo.run import run_demo

    report = run_demo(project.resolve(), Steps(_DEMO_STEPS), models)
    if as_json:
        print_json(report.document())
    else:
        _print_demo(report)
    if report.wrong:
        named = ", ".join(f"{row.tenant}/{row.model} (by {row.difference:.3g})" for row in report.wrong)
        raise CommandError(f"predictions differ from the model's own by more than 1e-6: {named}")


@app.command("demo-models", epilog="Example:  mme demo-models build/demo && mme demo --models build/demo")
def demo_models(folder: Annotated[Path, typer.Argument(help="Folder to write artifacts and expected predictions to.")]) -> None:
    """Train the demo's models and write their artifacts."""
    from mme_cli.demo.models import prepare

    for model in prepare(folder):
        stdout.print(f"{model.tenant}/{model.model}: {folder / model.artifact}")


@app.command(epilog="Examples:  mme up  |  mme up --port 4566 --models-per-instance 3  |  mme up --clock-scale 60")
def up(
    port: Annotated[int | None, typer.Option(min=1024, max=65535, help="Port of the gateway on 127.0.0.1; left out, a free one.")] = None,
    models_per_instance: Annotated[int | None, typer.Option(min=1, help="Memory of an instance, in small XGBoost models.")] = None,
    clock_scale: Annotated[
        float | None,
        typer.Option(min=0.01, max=3600, help="How much faster metrics, alarms, schedules and cooldowns run; left out, in real time."),
    ] = None,
    faults: Annotated[bool, typer.Option("--faults", help="Serve fault control at /_mme/faults: kill, freeze, slow, throttle.")] = False,
    as_json: Json = False,
) -> None:
    """Run the local cloud in the foreground; Ctrl-C ends it and leaves nothing behind."""
    from mme_cli.cloud import running_cloud

    with running_cloud(port=port, models_per_instance=models_per_instance, clock_scale=clock_scale, faults=faults) as state:
        path = state.write()
        try:
            if as_json:
                print_json({"endpoint_url": state.endpoint_url, "region": state.region, "account": state.account, "state": str(path)})
            else:
                stdout.print(
                    f"local cloud: {state.endpoint_url} (account {state.account}, region {state.region}); written to {path}", soft_wrap=True
                )
                stdout.print(f"console: {state.endpoint_url}/_console", soft_wrap=True)
                stdout.print("next, in another terminal: mme deploy     end it here with Ctrl-C")
            sys.stdout.flush()
            signal.pause()
        except KeyboardInterrupt:
            stderr.print("stopping")
        finally:
            state.remove()


@app.command(epilog="Example:  mme deploy")
def deploy(project: Project = Path(), as_json: Json = False) -> None:
    """Run the real `cdk bootstrap` and `cdk deploy` against the running local cloud."""
    from mme_cli.cdk import deploy as run_deploy

    steps = Steps(1)
    with steps.step("cdk bootstrap and cdk deploy"):
        state = run_deploy(LocalState.read(), project.resolve(), steps.detail)
    state.write()
    _print_outputs(state, as_json=as_json)


@app.command(epilog="Example:  mme destroy")
def destroy(project: Project = Path()) -> None:
    """Run the real `cdk destroy` of every stack against the running local cloud."""
    from mme_cli.cdk import destroy as run_destroy

    steps = Steps(1)
    with steps.step("cdk destroy"):
        state = run_destroy(LocalState.read(), project.resolve(), steps.detail)
    state.write()


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    epilog="Example:  mme cdk diff -c environment=local",
)
def cdk(context: typer.Context, project: Project = Path()) -> None:
    """Run any command of the CDK CLI against the running local cloud."""
    from mme_cli.cdk import run_cdk

    run_cdk(LocalState.read(), project.resolve(), context.args, print)


@app.command(epilog="Examples:  mme status  |  mme status --watch  |  mme status --json")
def status(
    watching: Annotated[bool, typer.Option("--watch", help="Show it again and again; Ctrl-C ends it.")] = False,
    models: Annotated[int, typer.Option(min=0, help="Resident models to list per instance.")] = 8,
    as_json: Json = False,
) -> None:
    """Endpoints, instances, resident models, hit ratio, tenants, scaling and alarms of the running local cloud."""
    from mme_cli.platform import local_status
    from mme_cli.status import status_view, watch

    if watching and as_json:
        raise typer.BadParameter("use either --watch or --json")
    state = LocalState.read()
    if watching:
        watch(lambda: local_status(state), models, stdout, _WATCH_SECONDS)
    elif as_json:
        print_json(local_status(state))
    else:
        stdout.print(status_view(local_status(state), models))


@app.command(epilog="Examples:  mme doctor mme-xgboost  |  mme doctor mme-xgboost --hours 25 --region eu-central-1 --json")
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


@app.command(
    epilog="Examples:  mme package booster.ubj  |  mme package saved_model/ --framework tensorflow --output model.tar.gz  |  "
    "mme package model.joblib --allow-code --json"
)
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


@app.command(
    epilog="Examples:  mme conformance http://127.0.0.1:8080  |  mme conformance http://127.0.0.1:8080 --model /models/a --model /models/b "
    "--broken /models/broken --payload row.csv --content-type text/csv --json"
)
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


@app.command(
    epilog='Examples:  eval "$(mme credentials --tenant acme)"  |  mme credentials --admin --json  |  eval "$(mme credentials --operator)"'
)
def credentials(
    tenant: Annotated[str | None, typer.Option(help="A session that may call the paths of this tenant only.")] = None,
    admin: Annotated[bool, typer.Option("--admin", help="A session of the platform-admin role.")] = False,
    operator: Annotated[bool, typer.Option("--operator", help="The local cloud's administrator, for the AWS CLI and SDKs.")] = False,
    as_json: Json = False,
) -> None:
    """Credentials on the local cloud, as shell exports: for the deployed API, or with --operator for any AWS client."""
    from mme_cli.platform import LocalPlatform

    if [admin, operator, tenant is not None].count(True) != 1:
        raise typer.BadParameter("name one of --tenant TENANT, --admin and --operator")
    state = LocalState.read()
    if operator:
        _print_variables(state.client_variables, as_json=as_json)
        return
    platform = LocalPlatform(state)
    keys = platform.admin_keys if tenant is None else platform.tenant_keys(tenant)
    _print_variables(_api_variables(state, keys), as_json=as_json)


app.command(
    epilog="Examples:  mme onboard acme iris iris.tar.gz --sample row.csv  |  mme onboard --manifest models.csv --concurrency 16  |  "
    "mme onboard acme iris iris.tar.gz --sample row.csv --stack MmePlatform --json"
)(onboard)


def _print_outputs(state: LocalState, *, as_json: bool) -> None:
    if as_json:
        print_json(state.outputs)
        return
    for name, value in state.outputs.items():
        stdout.print(f"{name}: {value}", soft_wrap=True, markup=False)


def _api_variables(state: LocalState, keys: Credentials) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": keys.access_key_id,
        "AWS_SECRET_ACCESS_KEY": keys.secret_access_key,
        "AWS_SESSION_TOKEN": keys.session_token or "",
        "AWS_REGION": state.region,
        "API_URL": state.output("ApiUrl").rstrip("/"),
    }


def _print_variables(variables: Mapping[str, str], *, as_json: bool) -> None:
    if as_json:
        print_json(variables)
        return
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")


def _print_demo(report: DemoReport) -> None:
    from mme_cli.tables import demo_table

    stdout.print(demo_table(report))
    stdout.print(
        f"{report.requests} requests, hit ratio {report.hit_ratio:.3f}, {report.evictions} evictions; "
        f"greatest difference from a model's own prediction {max(row.difference for row in report.rows):.1e}",
        soft_wrap=True,
    )


def run() -> None:
    """Entry point: errors become one line on standard error and an exit status (1 failed, 2 usage, 130 interrupted)."""
    try:
        app()
    except CommandError as error:
        stderr.print(f"mme: {error}", style="red", markup=False, soft_wrap=True)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        stderr.print("mme: interrupted")
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    run()
