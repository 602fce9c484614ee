"""A server that listens on every address is reached on one loopback port, and on no other."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from mme_local.dataplane import DataPlaneSettings, FleetSpec, network_of_its_own
from mme_local.dataplane.servers import server_for

TRITON = "007439368137.dkr.ecr.us-east-2.amazonaws.com/sagemaker-tritonserver:24.09-py3"
LISTEN = "import http.server as s; s.HTTPServer(('0.0.0.0', {port}), s.SimpleHTTPRequestHandler).serve_forever()"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(port, inner, *command):
    arguments = [sys.executable, network_of_its_own.__file__, str(port), str(inner), *command]
    return subprocess.Popen(arguments, stderr=subprocess.PIPE, start_new_session=True)


def test_only_the_forwarded_port_reaches_the_server(tmp_path):
    port, inner = free_port(), free_port()
    with start(port, inner, sys.executable, "-c", LISTEN.format(port=inner)) as process:
        try:
            deadline = time.monotonic() + 60
            while True:
                assert time.monotonic() < deadline
                if process.poll() == network_of_its_own.NO_NAMESPACE:
                    pytest.skip("no network namespace may be made here")
                try:
                    assert urllib.request.urlopen(f"http://127.0.0.1:{port}/").status == 200
                    break
                except OSError:
                    continue
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", inner))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def test_it_ends_with_the_servers_status():
    with start(free_port(), free_port(), sys.executable, "-c", "raise SystemExit(7)") as process:
        status = process.wait(60)
    if status == network_of_its_own.NO_NAMESPACE:
        pytest.skip("no network namespace may be made here")
    assert status == 7


def test_without_a_namespace_nothing_is_started(monkeypatch, capsys, tmp_path):
    def refuse():
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(network_of_its_own, "_enter_namespace", refuse)
    started = tmp_path / "started"
    assert network_of_its_own.main(free_port(), 1, ["touch", str(started)]) == network_of_its_own.NO_NAMESPACE
    assert "no network namespace can be made here: [Errno 1] Operation not permitted" in capsys.readouterr().err
    assert not started.exists()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "no model server for image"),
        ({"servers": {"sagemaker-tritonserver": "triton"}}, "name its Python in DataPlaneSettings.triton_python"),
        ({"triton_python": "/nowhere/python"}, "'/nowhere/python', which cannot be run"),
        ({"triton_python": sys.executable}, "has no nvidia-pytriton"),
    ],
)
def test_where_triton_cannot_run_every_load_is_refused_with_the_reason(settings, text):
    assert text in server_for(FleetSpec("e", "v", 1, TRITON, "b", "models/"), DataPlaneSettings(**settings)).refusal
