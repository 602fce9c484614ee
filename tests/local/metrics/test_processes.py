"""Measured use of server processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil  # type: ignore[import-untyped]
import pytest

from mme_local.metrics.processes import ProcessMeter

SERVER = """
import subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", "held = bytearray(50_000_000); print('up', flush=True)\\nwhile True: pass"])
worker.wait()
"""


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    """A server that idles and has a worker, which holds 50 MB and spins."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def fleet(*instances):
    return {
        "name": "fleet",
        "instances": [
            {"id": name, "pid": pid, "memory_bytes": accounted, "memory_budget_bytes": 200_000_000} for name, pid, accounted in instances
        ],
    }


def test_processor_time_and_memory_of_the_workers_are_measured(server):
    meter = ProcessMeter()
    meter.measure([fleet(("i-1", server.pid, 7))])
    (worker,) = psutil.Process(server.pid).children()
    before, deadline = worker.cpu_times().user, time.monotonic() + 60
    while worker.cpu_times().user < before + 0.5:
        assert time.monotonic() < deadline, "the worker does not spin"
    (use,) = meter.measure([fleet(("i-1", server.pid, 7))])["fleet"]
    assert use.cores is not None
    assert 0 < use.cores < 1.2, "one worker spins"
    assert 50_000_000 < use.memory_bytes < 200_000_000, "the worker's memory, without the server's"
    assert use.memory_budget_bytes == 200_000_000


def test_an_instance_without_a_process_of_its_own_has_its_accounted_memory(server):
    uses = ProcessMeter().measure([fleet(("i-1", server.pid, 7), ("i-2", server.pid, 8), ("i-3", None, 9))])["fleet"]
    assert [(use.cores, use.memory_bytes) for use in uses] == [(None, 7), (None, 8), (None, 9)]
