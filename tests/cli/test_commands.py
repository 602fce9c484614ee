"""The command line: help, errors as one sentence, exit statuses."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace

import pytest

from mme_cli.errors import CommandError
from mme_cli.local_state import LocalState
from mme_local import Credentials
from mme_local.addresses import local_api_url

STATE = LocalState("http://127.0.0.1:1", "us-east-1", "000000000000", os.getpid(), Credentials("AKIA", "secret"), {"PATH": os.defpath})


def mme(*arguments, cwd):
    return subprocess.run([sys.executable, "-m", "mme_cli.main", *arguments], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command",
    [
        "demo",
        "demo-models",
        "up",
        "deploy",
        "destroy",
        "status",
        "doctor",
        "conformance",
        "credentials",
        "package",
        "onboard",
        "models",
        "activate",
        "retire",
        "warm-up",
    ],
)
def test_every_command_helps_with_an_example(command, tmp_path):
    done = mme(command, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert f"mme {command}" in done.stdout


def test_without_a_local_cloud_a_command_fails_in_one_sentence(tmp_path):
    done = mme("status", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no local cloud runs here" in done.stderr
    assert "mme up" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_usage_exits_with_status_2(tmp_path):
    done = mme("credentials", cwd=tmp_path)
    assert done.returncode == 2
    assert "--tenant" in done.stderr


def test_the_operators_credentials_are_all_aws_settings_and_clear_the_token_of_another_session(tmp_path):
    environment = {"PATH": "/bin", "AWS_ACCESS_KEY_ID": "AKIA", "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_CONFIG_FILE": "/with space"}
    replace(STATE, environment=environment).write(tmp_path / ".mme")
    done = mme("credentials", "--operator", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == {"AWS_SESSION_TOKEN": "", **{name: environment[name] for name in list(environment)[1:]}}
    exports = mme("credentials", "--operator", cwd=tmp_path).stdout
    shell = subprocess.run(
        ["sh", "-c", exports + 'echo "$AWS_CONFIG_FILE<$AWS_SESSION_TOKEN>"'], capture_output=True, text=True, check=True
    )
    assert shell.stdout == "/with space<>\n"
    assert mme("credentials", "--operator", "--admin", cwd=tmp_path).returncode == 2


def test_an_ended_cloud_is_noticed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    document = {**json.loads(STATE.write(tmp_path).read_text()), "pid": ended.pid}
    (tmp_path / "local.json").write_text(json.dumps(document))
    with pytest.raises(CommandError, match=f"process {ended.pid}"):
        LocalState.read(tmp_path)


def test_the_state_round_trips_is_private_and_is_removed(tmp_path):
    folder = tmp_path / ".mme"
    path = STATE.write(folder)
    assert LocalState.read(folder) == STATE
    assert path.stat().st_mode & 0o077 == 0
    STATE.remove(folder)
    assert not folder.exists()


def test_a_damaged_state_file_is_named(tmp_path):
    (tmp_path / "local.json").write_text("{")
    with pytest.raises(CommandError, match=r"local\.json is not readable"):
        LocalState.read(tmp_path)


def test_a_missing_output_says_to_deploy():
    with pytest.raises(CommandError, match=r"'ApiUrl'.*mme deploy"):
        STATE.output("ApiUrl")


def test_an_api_address_becomes_local():
    url = "https://0a1b2c3d.execute-api.us-east-1.amazonaws.com/v1/"
    assert local_api_url(url, "http://127.0.0.1:4566") == "http://127.0.0.1:4566/_aws/execute-api/0a1b2c3d/v1/"
    with pytest.raises(ValueError, match="https://example"):
        local_api_url("https://example.com/", "http://127.0.0.1:4566")


def test_a_folder_that_is_no_cdk_app_is_named(tmp_path):
    from mme_cli.cdk import run_cdk

    with pytest.raises(CommandError, match=r"holds no cdk\.json"):
        run_cdk(STATE, tmp_path, ["ls"], print)


def test_up_runs_the_cloud_at_the_scale_asked_for(tmp_path):
    command = [sys.executable, "-m", "mme_cli.main", "up", "--clock-scale", "90", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            state = json.loads("".join(iter(process.stdout.readline, "}\n")) + "}")
            with urllib.request.urlopen(f"{state['endpoint_url']}/_mme/status") as answer:
                assert json.load(answer)["clock"]["scale"] == 90.0
        finally:
            process.send_signal(signal.SIGINT)
        process.wait(30)
