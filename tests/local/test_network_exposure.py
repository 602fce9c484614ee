"""Nothing of a running cloud can be reached from elsewhere: every socket of every process of it is on loopback."""

from __future__ import annotations

import ipaddress
import os
import socket
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from benchmarks.local_cloud import plain_endpoint, plain_settings
from mme_local import LocalCloud, LocalSettings
from mme_local.dataplane import DataPlaneSettings
from tests.local.cloud_support import start_a_function, start_an_endpoint


def is_loopback(address):
    parsed = ipaddress.ip_address(address)
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


def exposed(processes):
    """Sockets that take what comes from elsewhere, and connections that lead there: ``/proc/net/tcp``, ``tcp6``, ``udp`` and ``udp6``."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            for entry in process.net_connections("inet"):
                ends = [entry.raddr] if entry.raddr else [entry.laddr]
                if any(end and not is_loopback(end.ip) for end in ends):
                    found.append((process.pid, entry.type.name, *ends))
    return found


def gateway_of(cloud):
    (gateway,) = [child for child in psutil.Process().children() if Path(child.cwd()) == cloud.directory]
    assert "mme_local.gateway" in gateway.cmdline()
    return gateway


def processes_of(cloud):
    """The gateway, its children and theirs, and whoever works in the folders of the run: servers have other parents and groups."""
    gateway = gateway_of(cloud)
    found = {gateway, *gateway.children(recursive=True)}
    run = (cloud.directory / "run").readlink()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(run):
                found.add(process)
    return found


@pytest.fixture(scope="module")
def cloud():
    """A cloud in which everything runs: a real server with a model, a simulated one, a function."""
    plain = plain_settings()
    settings = DataPlaneSettings(handlers=plain.data_plane.handlers, servers={"simulated": "simulated"})
    with LocalCloud(settings=LocalSettings(data_plane=settings)) as running:
        plain_endpoint(running)
        start_an_endpoint(running, "simulated:1")
        start_a_function(running)
        yield running


def test_a_socket_on_all_addresses_would_be_seen():
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            with socket.socket(family, kind) as open_to_all:
                open_to_all.bind((address, 0))
                if kind is socket.SOCK_STREAM:
                    open_to_all.listen()
                assert (os.getpid(), kind.name) in [entry[:2] for entry in exposed([psutil.Process()])]


def test_every_socket_of_every_process_is_on_loopback(cloud):
    processes = processes_of(cloud)
    commands = [" ".join(process.cmdline()) for process in processes]
    for part in (
        "mme_local.gateway",
        "mme_local.watchdog",
        "com.amazonaws.ml.mms",
        "model_service_worker",
        "_worker.py",
        "simulated",
    ):
        assert any(part in command for command in commands), (part, commands)
    listening = [entry for process in processes for entry in process.net_connections("inet") if entry.status == psutil.CONN_LISTEN]
    assert len({entry.laddr.port for entry in listening}) >= 3, "the gateway and two servers"
    assert exposed(processes) == []


def test_only_the_gateway_holds_its_port_and_the_lock_of_its_folder(cloud):
    others = processes_of(cloud) - {gateway_of(cloud)}
    assert others
    port = int(cloud.endpoint_url.rpartition(":")[2])
    for process in others:
        held = {descriptor.resolve() for descriptor in Path(f"/proc/{process.pid}/fd").iterdir()}
        assert cloud.directory / "lock" not in held, process.cmdline()
        assert port not in [entry.laddr.port for entry in process.net_connections("inet") if entry.status == psutil.CONN_LISTEN]
