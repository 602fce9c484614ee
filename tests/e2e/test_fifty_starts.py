"""Fifty starts and ends of the local cloud, with what users and accidents do: no process, no file and no port is left."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from mme_cli.local_state import LocalState
from mme_local import LocalCloud
from tests.local.cloud_support import is_open, port_of, processes_in, start_a_function, start_an_endpoint, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

CYCLES = 50


@pytest.fixture
def scratch(monkeypatch):
    """The temporary folder of all that runs here; its path leaves room for the sockets of model servers."""
    with tempfile.TemporaryDirectory(prefix="t") as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder).resolve()


def busy(cloud, number):
    """Some clouds run a function, some a model server, some both, some nothing."""
    if number % 2:
        start_a_function(cloud)
    if number % 3 == 0:
        start_an_endpoint(cloud)


def stopped(_scratch, number):
    with LocalCloud() as cloud:
        busy(cloud, number)
        return port_of(cloud)


def raised(_scratch, number):
    """The block ends with an error."""
    port = 0
    with pytest.raises(ZeroDivisionError), LocalCloud() as cloud:  # noqa: PT012 - the block is what is tested
        busy(cloud, number)
        port = port_of(cloud)
        raise ZeroDivisionError
    return port


def gateway_killed(scratch, number):
    cloud = LocalCloud()
    cloud.start()
    port = port_of(cloud)
    busy(cloud, number)
    (gateway,) = [process for process in processes_in(scratch) if "mme_local.gateway" in process.cmdline()]
    gateway.send_signal(signal.SIGKILL)
    wait_until(lambda: not processes_in(scratch))
    cloud.stop()
    return port


def up(scratch, number):
    """``mme up`` in a folder of its own, when it answers: its process and a client."""
    home = scratch / "home"
    home.mkdir()
    process = subprocess.Popen([sys.executable, "-m", "mme_cli.main", "up"], cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until((home / ".mme" / "local.json").exists, 60)
    state = LocalState.read(home / ".mme")
    client = LocalCloud()
    client.admin, client.endpoint_url = state.admin, state.endpoint_url
    busy(client, number)
    return process, home, port_of(client)


def interrupted(scratch, number):
    process, home, port = up(scratch, number)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    forget(home)
    return port


def terminated(scratch, number):
    process, home, port = up(scratch, number)
    process.terminate()
    process.wait(30)
    forget(home)
    return port


def parent_killed(scratch, number):
    process, home, port = up(scratch, number)
    process.kill()
    process.wait(30)
    wait_until(lambda: not processes_in(scratch), 30)
    forget(home)
    return port


def forget(home):
    """Remove the folder of ``mme up``: a killed one leaves its state file, which names a process that is gone; nothing else stays."""
    left = [path for path in home.rglob("*") if path.is_file()]
    assert left in ([], [home / ".mme" / "local.json"])
    for path in left:
        path.unlink()
    if (home / ".mme").exists():
        (home / ".mme").rmdir()
    home.rmdir()


ENDS = (stopped, gateway_killed, interrupted, raised, parent_killed, terminated)


def test_fifty_starts_and_ends_leave_no_process_no_file_and_no_port(scratch):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - its own descriptor does not stay
    for number in range(CYCLES):
        end = ENDS[number % len(ENDS)]
        port = end(scratch, number)
        wait_until(lambda: not processes_in(scratch), 30)
        wait_until(lambda: not list(scratch.iterdir()), 30)
        assert not is_open(port), (number, end.__name__)
        assert {child.pid for child in psutil.Process().children(recursive=True)} == before, (number, end.__name__)
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2  # noqa: PTH208
