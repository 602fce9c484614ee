"""Starting and stopping a cloud: nothing stays behind, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import psutil
import pytest

from mme_local import CloudStartError, LocalCloud, LocalSettings
from mme_local.folders import make_run
from tests.local.cloud_support import is_open, port_of, processes_in, start_a_function, start_an_endpoint, wait_until


@pytest.fixture
def short_path():
    """A temporary folder whose path leaves room for the sockets of model servers."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        yield Path(folder)


def test_five_starts_and_stops_leave_no_process_no_folder_and_no_port(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    ports = []
    for _ in range(5):
        with LocalCloud() as cloud:
            ports.append(port_of(cloud))
            start_a_function(cloud)
            assert is_open(ports[-1])
            assert len(processes_in(tmp_path)) >= 2, "a gateway and a worker"
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    assert not any(is_open(port) for port in ports)
    assert {child.pid for child in psutil.Process().children(recursive=True)} == before


def test_a_given_folder_keeps_the_log_and_nothing_of_the_run(tmp_path):
    with LocalCloud(directory=tmp_path / "cloud") as cloud:
        start_a_function(cloud)
    assert {path.name for path in (tmp_path / "cloud").iterdir()} <= {"gateway.log", "lock", "cdk"}


def test_what_a_killed_run_left_goes_with_the_next_start(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    left, foreign = make_run(tmp_path), tmp_path / "precious"
    foreign.mkdir()
    with LocalCloud(directory=tmp_path):
        assert not left.exists()
    (tmp_path / "run").symlink_to(foreign)
    with LocalCloud(directory=tmp_path):
        assert foreign.exists()
    assert foreign.exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_long_path_of_the_folder_does_not_matter_to_the_servers_sockets(tmp_path):
    with LocalCloud(directory=tmp_path / ("long" * 30)) as cloud:
        assert len(str((cloud.directory / "run").readlink())) < 60


@pytest.mark.parametrize("parent", ["alone", "forked"])
def test_killing_the_parent_leaves_nothing(tmp_path, parent):
    """Also when a child that the parent forked goes on and holds the parent's pipe open."""
    program = """
        import os, sys, tempfile, time
        tempfile.tempdir = sys.argv[1]
        sys.path.insert(0, sys.argv[2])
        from mme_local import LocalCloud
        from cloud_support import start_a_function
        cloud = LocalCloud()
        cloud.start()
        start_a_function(cloud)
        child = os.fork() if sys.argv[3] == "forked" else os.getpid()
        if child:
            print(cloud.endpoint_url, child, flush=True)
        time.sleep(600)
    """
    arguments = [str(tmp_path), str(Path(__file__).parent), parent]
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program), *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        url, child = process.stdout.readline().split()
        assert len(processes_in(tmp_path)) >= 2
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    try:
        wait_until(lambda: not processes_in(tmp_path))
        wait_until(lambda: not list(tmp_path.iterdir()))
        assert not is_open(int(url.rsplit(":", 1)[1]))
    finally:
        if parent == "forked":
            os.kill(int(child), signal.SIGKILL)


def test_a_killed_gateway_leaves_nothing_after_the_stop(short_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(short_path))
    with LocalCloud() as cloud:
        start_a_function(cloud)
        start_an_endpoint(cloud)
        (gateway,) = [process for process in processes_in(short_path) if "mme_local.gateway" in process.cmdline()]
        gateway.kill()
        wait_until(lambda: not cloud.running)
    assert processes_in(short_path) == []
    assert list(short_path.iterdir()) == []


def test_a_killed_gateway_leaves_nothing_though_nobody_stops_it(short_path, monkeypatch):
    """Its watchdog cleans up."""
    monkeypatch.setattr("tempfile.tempdir", str(short_path))
    cloud = LocalCloud()
    cloud.start()
    try:
        start_a_function(cloud)
        start_an_endpoint(cloud)
        (gateway,) = [process for process in processes_in(short_path) if "mme_local.gateway" in process.cmdline()]
        assert len(processes_in(short_path)) >= 3, "a gateway, a worker and a model server"
        gateway.kill()
        wait_until(lambda: not processes_in(short_path))
        wait_until(lambda: not list(short_path.iterdir()))
    finally:
        cloud.stop()


def test_killing_parent_and_gateway_together_leaves_no_model_server(short_path):
    program = """
        import sys, tempfile, time
        tempfile.tempdir = sys.argv[1]
        sys.path.insert(0, sys.argv[2])
        from mme_local import LocalCloud
        from cloud_support import start_an_endpoint
        cloud = LocalCloud()
        cloud.start()
        start_an_endpoint(cloud)
        print(cloud._process.pid, flush=True)
        time.sleep(600)
    """
    arguments = [str(short_path), str(Path(__file__).parent)]
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program), *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        gateway = int(process.stdout.readline())
    assert any("mms" in " ".join(item.cmdline()) for item in processes_in(short_path)), "a model server"
    for pid in (process.pid, gateway):
        os.kill(pid, signal.SIGKILL)
    process.wait(10)
    wait_until(lambda: not processes_in(short_path))
    wait_until(lambda: not list(short_path.iterdir()))


def test_a_watchdog_goes_with_its_gateway(tmp_path):
    with LocalCloud(directory=tmp_path):
        assert watchdogs(tmp_path)
    wait_until(lambda: not watchdogs(tmp_path))


def test_what_a_thread_of_the_gateway_writes_while_it_ends_goes_with_the_stop(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cloud = LocalCloud()
    cloud.start()
    run = (cloud.directory / "run").readlink()
    (gateway,) = [process for process in processes_in(tmp_path) if "mme_local.gateway" in process.cmdline()]
    gateway.terminate()
    wait_until(lambda: not cloud.running)
    (run / "tmp" / "a-function" / "code").mkdir(parents=True)
    cloud.stop()
    assert list(tmp_path.iterdir()) == []


def test_what_a_gateway_leaves_behind_goes_though_nobody_stops_it(tmp_path, monkeypatch):
    """A watchdog cleans up after a gateway that ended in order, too."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cloud = LocalCloud()
    cloud.start()
    run = (cloud.directory / "run").readlink()
    (watchdog,) = watchdogs(run)
    watchdog.suspend()
    (gateway,) = [process for process in processes_in(tmp_path) if "mme_local.gateway" in process.cmdline()]
    gateway.terminate()
    wait_until(lambda: not cloud.running)
    (run / "tmp" / "a-function" / "code").mkdir(parents=True)
    watchdog.resume()
    wait_until(lambda: not run.exists())
    cloud.stop()


def watchdogs(directory):
    found = [process for process in psutil.process_iter(["cmdline"]) if "mme_local.watchdog" in (process.info["cmdline"] or ())]
    return [process for process in found if str(directory) in process.info["cmdline"]]


def test_a_gateway_that_hangs_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with LocalCloud(settings=LocalSettings(stop_seconds=0.5)) as cloud:
        start_a_function(cloud)
        for process in processes_in(tmp_path):
            process.suspend()
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


class TestFailures:
    def test_a_port_in_use_is_named(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            with pytest.raises(CloudStartError, match=f"Port {port} of 127.0.0.1 cannot be used"):
                LocalCloud(port=port).start()

    def test_a_folder_in_use_is_named_and_its_cloud_goes_on(self, tmp_path):
        with LocalCloud(directory=tmp_path) as first:
            with pytest.raises(CloudStartError, match="belongs to a local cloud that is running"):
                LocalCloud(directory=tmp_path).start()
            assert first.status()["endpoints"] == []

    def test_a_gateway_that_ends_at_once_shows_the_end_of_its_log(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        (tmp_path / "sick").mkdir()
        (tmp_path / "sick" / "hypercorn.py").write_text("raise ImportError('made to fail')")
        environment = LocalCloud._gateway_environment
        monkeypatch.setattr(
            LocalCloud, "_gateway_environment", lambda self, *given: {**environment(self, *given), "PYTHONPATH": str(tmp_path / "sick")}
        )
        with pytest.raises(CloudStartError, match=r"(?s)did not start: it ended with status 1.*made to fail"):
            LocalCloud().start()
        assert [path.name for path in tmp_path.iterdir()] == ["sick"]

    def test_a_gateway_that_does_not_answer_in_time_is_stopped(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with pytest.raises(CloudStartError, match=r"did not answer within 0\.001 s"):
            LocalCloud(settings=LocalSettings(start_seconds=0.001)).start()
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("values", [{"instance_limit": 0}, {"start_seconds": 0}, {"stop_seconds": -1}])
    def test_bad_settings_are_refused(self, values):
        with pytest.raises(ValueError, match=next(iter(values))):
            LocalSettings(**values)


class TestUse:
    def test_it_listens_on_loopback_only(self, local_cloud):
        gateway = psutil.Process(local_cloud._process.pid)
        addresses = {item.laddr.ip for item in gateway.net_connections("inet") if item.status == psutil.CONN_LISTEN}
        assert addresses == {"127.0.0.1"}

    def test_a_reset_forgets_everything_but_the_administrator(self, local_cloud):
        local_cloud.client("s3").create_bucket(Bucket="to-be-forgotten")
        start_a_function(local_cloud)
        local_cloud.reset()
        assert local_cloud.client("s3").list_buckets()["Buckets"] == []
        assert local_cloud.client("lambda").list_functions()["Functions"] == []
        identity = local_cloud.client("sts").get_caller_identity()
        assert identity["Arn"] == "arn:aws:iam::000000000000:user/mme-admin"
        assert not list((local_cloud.directory / "run" / "tmp").glob("ministack-lambda-*"))

    def test_its_environment_is_enough_for_an_sdk(self, local_cloud):
        program = "import boto3; print(boto3.client('sts').get_caller_identity()['Arn'])"
        environment = {"HOME": os.devnull, **local_cloud.environment()}
        ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
        assert ran.stdout.strip().endswith(":user/mme-admin")

    def test_its_environment_has_the_toolchain_and_needs_none_of_the_machine(self, local_cloud, monkeypatch):
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        environment = {"HOME": os.devnull, **local_cloud.environment()}
        for command, expected in (("node --version", "v24."), ("cdk --version", "2.1146")):
            ran = subprocess.run(["/bin/sh", "-c", command], env=environment, capture_output=True, text=True, check=True)
            assert ran.stdout.startswith(expected)

    def test_the_urls_of_apis_are_translated(self, local_cloud):
        url = local_cloud.local_url("https://abc.execute-api.us-east-1.amazonaws.com/v1/tenants")
        assert url == f"{local_cloud.endpoint_url}/_aws/execute-api/abc/v1/tenants"
        with pytest.raises(ValueError, match="is not the URL of an API Gateway stage"):
            local_cloud.local_url("https://example.com/v1")

    def test_web_pages_cannot_reset_it(self, local_cloud):
        import httpx

        for path in ("/_mme/reset", "/_ministack/reset"):
            assert httpx.post(local_cloud.endpoint_url + path, headers={"Origin": "http://evil.example"}).status_code == 403
        assert httpx.get(local_cloud.endpoint_url + "/_mme/none").status_code == 404

    def test_secrets_do_not_show(self, local_cloud):
        assert local_cloud.admin.secret_access_key not in repr(local_cloud.admin)
        assert local_cloud.admin.secret_access_key not in json.dumps(local_cloud.status())
        arguments = psutil.Process(local_cloud._process.pid).cmdline()
        assert local_cloud.admin.secret_access_key not in " ".join(arguments)
