"""The commands of the local cloud and of the reference app in it."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mme_cli.commands.options import Json, Project
from mme_cli.console import Steps, print_json, stderr, stdout
from mme_cli.errors import CommandError
from mme_cli.local_state import LocalState

if TYPE_CHECKING:
    from mme_cli.demo.run import DemoReport
    from mme_local import Credentials

__all__ = ["cdk", "credentials", "demo", "demo_models", "deploy", "destroy", "status", "up"]

_DEMO_STEPS = 5
_WATCH_SECONDS = 1.0


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


def demo_models(folder: Annotated[Path, typer.Argument(help="Folder to write artifacts and expected predictions to.")]) -> None:
    """Train the demo's models and write their artifacts."""
    from mme_cli.demo.models import prepare

    for model in prepare(folder):
        stdout.print(f"{model.tenant}/{model.model}: {folder / model.artifact}")


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


def deploy(project: Project = Path(), as_json: Json = False) -> None:
    """Run the real `cdk bootstrap` and `cdk deploy` against the running local cloud."""
    from mme_cli.cdk import deploy as run_deploy

    steps = Steps(1)
    with steps.step("cdk bootstrap and cdk deploy"):
        state = run_deploy(LocalState.read(), project.resolve(), steps.detail)
    state.write()
    _print_outputs(state, as_json=as_json)


def destroy(project: Project = Path()) -> None:
    """Run the real `cdk destroy` of every stack against the running local cloud."""
    from mme_cli.cdk import destroy as run_destroy

    steps = Steps(1)
    with steps.step("cdk destroy"):
        state = run_destroy(LocalState.read(), project.resolve(), steps.detail)
    state.write()


def cdk(context: typer.Context, project: Project = Path()) -> None:
    """Run any command of the CDK CLI against the running local cloud."""
    from mme_cli.cdk import run_cdk

    run_cdk(LocalState.read(), project.resolve(), context.args, print)


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
