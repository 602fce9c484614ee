"""`mme conformance` against a running container: report, exit status, errors."""

import json
import os
import socket
import subprocess
import sys

import pytest

from mme_local.dataplane import simulated_server


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    """A simulated container in a process of its own; gives its address and a folder of models."""
    folder = tmp_path_factory.mktemp("container")
    (folder / "script.json").write_text('{"answer": "[1]"}')
    for name, script in (("valid", {}), ("broken", {"load_status": 409})):
        (folder / name).mkdir()
        (folder / name / "simulated.json").write_text(json.dumps(script))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen([sys.executable, simulated_server.__file__, str(port), folder / "script.json"]) as process:
        yield f"http://127.0.0.1:{port}", folder
        process.terminate()


def conformance(*arguments):
    command = [sys.executable, "-m", "mme_cli.main", "conformance", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "250"})


@pytest.fixture(scope="module")
def ready(container):
    url, folder = container
    while conformance(url, "--rule", "ping.ok").returncode:
        pass
    return url, folder


def test_a_container_that_keeps_the_rules_exits_with_0(ready, tmp_path):
    url, folder = ready
    (tmp_path / "row.csv").write_text("1,2")
    given = ("--model", folder / "valid", "--payload", tmp_path / "row.csv", "--content-type", "text/csv")
    done = conformance(url, *given, "--rule", "invoke.headers", "--rule", "load.again", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["conforms"]) == (0, True)
    assert {entry["id"]: entry["outcome"] for entry in document["rules"]} == {
        "load.ok": "kept",
        "load.again": "kept",
        "invoke.ok": "kept",
        "invoke.headers": "kept",
    }


def test_broken_rules_are_named_and_exit_with_1(ready):
    url, folder = ready
    done = conformance(url, "--broken", folder / "broken", "--rule", "load.broken", "--rule", "load.ok")
    assert done.returncode == 1
    assert "load.broken" in done.stdout
    assert "an error other than 409 and 507 is expected" in " ".join(done.stdout.split())
    assert "not given: models" in done.stdout
    assert f"the container at {url} breaks load.broken" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("127.0.0.1:8080",), "http://127.0.0.1:8080"),
        (("http://127.0.0.1:1", "--server", "other"), "mms, simulated, triton"),
        (("http://127.0.0.1:1", "--rule", "other"), "load.ok"),
        ((), "Missing argument"),
    ],
)
def test_wrong_usage_exits_with_2(arguments, text):
    done = conformance(*arguments)
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(("http://127.0.0.1:1",), "no container answers at"), (("http://127.0.0.1:1", "--payload", "/nowhere/x"), "cannot be read")],
)
def test_what_cannot_be_checked_fails_in_one_sentence(arguments, text):
    done = conformance(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert text in done.stderr
    assert "Traceback" not in done.stderr
