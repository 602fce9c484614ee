"""The ``mme`` command line: every command with its examples; what they do is in `mme_cli.commands`."""

from __future__ import annotations

import sys

import typer

from mme_cli.commands import checks, local
from mme_cli.commands import tenants as tenant_commands
from mme_cli.commands.models import activate, models, retire
from mme_cli.commands.onboard import onboard
from mme_cli.commands.operators import dead_letters_app, registry_app
from mme_cli.commands.warm_up import warm_up
from mme_cli.console import stderr
from mme_cli.errors import CommandError
from mme_cli.top.command import top

_INTERRUPTED = 130

app = typer.Typer(
    name="mme",
    help="Serve thousands of tenants' models from SageMaker multi-model endpoints.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

app.add_typer(registry_app, name="registry")
app.add_typer(dead_letters_app, name="dead-letters")
tenants = typer.Typer(help="Tenants: quotas, tier and formats; who asks for what.", no_args_is_help=True)
app.add_typer(tenants, name="tenants")
tenants.command(
    "top", epilog="Examples:  mme tenants top --last 6h --by cost  |  mme tenants top --stack MmePlatform --stack MmeStorage --json"
)(top)
tenants.command("show", epilog="Examples:  mme tenants show acme globex  |  mme tenants show acme --stack MmePlatform --json")(
    tenant_commands.show
)
tenants.command(
    "set", epilog="Examples:  mme tenants set acme  |  mme tenants set acme --tier trusted --models 500 --formats xgboost,onnx"
)(tenant_commands.set_)
tenants.command("key", epilog="Examples:  mme tenants key acme  |  mme tenants key acme --rotate --yes")(tenant_commands.key)
tenants.command("delete", epilog="Example:  mme tenants delete acme --yes")(tenant_commands.delete)

app.command(epilog="Examples:  mme demo  |  mme demo --json > report.json")(local.demo)
app.command("demo-models", epilog="Example:  mme demo-models build/demo && mme demo --models build/demo")(local.demo_models)
app.command(epilog="Examples:  mme up  |  mme up --port 4566 --models-per-instance 3  |  mme up --clock-scale 60")(local.up)
app.command(epilog="Example:  mme deploy")(local.deploy)
app.command(epilog="Example:  mme destroy")(local.destroy)
app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    epilog="Example:  mme cdk diff -c environment=local",
)(local.cdk)
app.command(epilog="Examples:  mme status  |  mme status --watch  |  mme status --json")(local.status)
app.command(
    epilog='Examples:  eval "$(mme credentials --tenant acme)"  |  mme credentials --admin --json  |  eval "$(mme credentials --operator)"'
)(local.credentials)
app.command(epilog="Examples:  mme doctor mme-xgboost  |  mme doctor mme-xgboost --hours 25 --region eu-central-1 --json")(checks.doctor)
app.command(
    epilog="Examples:  mme package booster.ubj  |  mme package saved_model/ --framework tensorflow --output model.tar.gz  |  "
    "mme package model.joblib --allow-code --json"
)(checks.package)
app.command(
    epilog="Examples:  mme conformance http://127.0.0.1:8080  |  mme conformance http://127.0.0.1:8080 --model /models/a --model /models/b "
    "--broken /models/broken --payload row.csv --content-type text/csv --json"
)(checks.conformance)
app.command(
    epilog="Examples:  mme onboard acme iris iris.tar.gz --sample row.csv  |  mme onboard --manifest models.csv --concurrency 16  |  "
    "mme onboard acme iris iris.tar.gz --sample row.csv --stack MmePlatform --json"
)(onboard)
app.command(epilog="Examples:  mme models acme  |  mme models acme iris  |  mme models acme iris v1-0123456789ab --json")(models)
app.command(epilog="Examples:  mme activate acme iris v1-0123456789ab  |  mme activate acme iris v2-ba9876543210 --canary 10 --no-warm")(
    activate
)
app.command(
    "warm-up",
    epilog="Examples:  mme warm-up  |  mme warm-up xgboost --dry-run  |  mme warm-up xgboost --dry-run --instances 7 --json  |  "
    "mme warm-up xgboost --now --aws --region eu-central-1",
)(warm_up)
app.command(epilog="Examples:  mme retire acme iris v1-0123456789ab  |  mme retire acme iris --yes")(retire)


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
