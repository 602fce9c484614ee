"""``mme status``: what it prints, how it watches, and how Ctrl-C ends it."""

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from rich.console import Console

from mme_cli.local_state import LocalState
from mme_cli.status import status_view, watch

GB = 1_000_000_000


def model(name, used=None, in_flight=0):
    return {"target_model": name, "bytes": 104_000_000, "last_used": used, "in_flight": in_flight}


def instance(**changes):
    return {
        "id": "AllTraffic-1",
        "state": "up",
        "current": True,
        "component": None,
        "memory_bytes": 3 * GB,
        "memory_budget_bytes": 4 * GB,
        "models": [model("acme/old.tar.gz", 900), model("acme/new.tar.gz", 990), model("globex/never.tar.gz")],
        "moving": [{"target_model": "acme/next.tar.gz", "bytes": 5, "state": "loading", "waiting": 1}],
        **changes,
    }


def endpoint(**changes):
    return {
        "name": "mme-xgboost",
        "status": "InService",
        "failure_reason": None,
        "requests": 1000,
        "hit_ratio": 0.875,
        "cold_loads": 12,
        "evictions": 7,
        "errors": 3,
        "variants": [{"name": "AllTraffic", "current_count": 2, "desired_count": 3, "instance_type": "ml.m5.xlarge"}],
        "components": [],
        "instances": [instance()],
        "tenants": [
            {"tenant": "acme", "requests": 900, "hits": 810, "errors": 2},
            {"tenant": "globex", "requests": 100, "hits": 0, "errors": 1},
        ],
        **changes,
    }


def document(*endpoints, **changes):
    return {
        "now": 1000.0,
        "clock": {"now": 0.0, "scale": 1},
        "endpoints": list(endpoints),
        "scaling": {"targets": [], "activities": []},
        "alarms": [],
        "faults": None,
        **changes,
    }


def printed(what, models=8, width=120):
    console = Console(file=io.StringIO(), width=width)
    console.print(status_view(what, models))
    return console.file.getvalue()


def test_it_tells_endpoint_instances_models_and_tenants():
    text = printed(document(endpoint()))
    assert "mme-xgboost  InService  hit ratio 87.5%, 1000 requests, 12 cold loads, 7 evictions, 3 errors" in text
    assert "AllTraffic: 2 of 3 x ml.m5.xlarge" in text
    assert "3.0 GB of 4.0 GB" in text
    order = [text.index(name) for name in ("acme/next.tar.gz", "acme/new.tar.gz", "acme/old.tar.gz", "globex/never.tar.gz")]
    assert order == sorted(order), "what is loading, then the last used first"
    assert "10 s ago" in text
    assert [line.split()[:4] for line in text.splitlines() if line.startswith(("  acme  ", "  globex  "))] == [
        ["acme", "900", "90.0%", "2"],
        ["globex", "100", "0.0%", "1"],
    ]


def test_it_lists_no_more_models_than_asked_for():
    text = printed(document(endpoint(instances=[instance(moving=[])])), models=1)
    assert "acme/new.tar.gz" in text
    assert "acme/old.tar.gz" not in text
    assert "and 2 more" in text


def test_it_tells_scaling_alarms_faults_and_a_scaled_clock():
    text = printed(
        document(
            endpoint(),
            scaling={
                "targets": [{"resource": "endpoint/e/variant/v", "min": 1, "max": 4, "suspended": ["DynamicScalingInSuspended"]}],
                "activities": [{"description": "Setting desired instance count to 3.", "status": "Successful", "cause": "an alarm"}],
            },
            alarms=[
                {"name": "low-hits", "state": "ALARM", "reason": "Threshold Crossed"},
                {"name": "quiet", "state": "INSUFFICIENT_DATA", "reason": "Unchecked"},
            ],
            faults=[{"id": "fault-1", "kind": "slow-load", "struck": 2, "active": False}],
            clock={"now": 0.0, "scale": 60},
        )
    )
    text = re.sub(" +", " ", text)
    assert "endpoint/e/variant/v 1 to 4, suspended: DynamicScalingInSuspended" in text
    assert "Setting desired instance count to 3. Successful: an alarm" in text
    assert "low-hits ALARM Threshold Crossed" in text
    assert "quiet" not in text
    assert "fault-1 slow-load 2 ended" in text
    assert "60 times real time" in text


@pytest.mark.parametrize("width", [40, 80])
def test_it_fits_narrow_terminals(width):
    assert max(len(line.rstrip()) for line in printed(document(endpoint()), width=width).splitlines()) <= width


def test_names_are_no_markup():
    assert "[red]acme[/]" in printed(document(endpoint(tenants=[{"tenant": "[red]acme[/]", "requests": 1, "hits": 1, "errors": 0}])))


def test_an_empty_cloud_says_what_to_do():
    assert "deploy one with 'mme deploy'" in printed(document())


def test_a_watch_looks_again_until_it_is_interrupted():
    looks = []

    def ask():
        looks.append(len(looks))
        if len(looks) == 3:
            raise KeyboardInterrupt
        return document(endpoint(requests=len(looks)))

    console = Console(file=io.StringIO(), width=120)
    watch(ask, 8, console, 0.0)
    assert len(looks) == 3
    assert "2 requests" in console.file.getvalue()


def test_a_watch_of_a_cloud_that_went_away_says_so(tmp_path):
    def ask():
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        watch(ask, 8, Console(file=io.StringIO()), 0.0)


def test_ctrl_c_ends_a_watch_on_a_terminal_in_order(local_cloud, tmp_path):
    LocalState(local_cloud.endpoint_url, "us-east-1", "000000000000", os.getpid(), local_cloud.admin, {}).write(tmp_path / ".mme")
    leader, follower = pty.openpty()
    program = [sys.executable, "-m", "mme_cli.main", "status", "--watch"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(program, stdin=follower, stdout=follower, stderr=follower, cwd=tmp_path, env=environment) as watching:
        os.close(follower)
        try:
            shown = b""
            while b"mme deploy" not in shown:
                assert select.select([leader], [], [], 60)[0], shown
                shown += os.read(leader, 65536)
            watching.send_signal(signal.SIGINT)
            with suppress(OSError):  # the terminal's other side is closed
                while chunk := os.read(leader, 65536):
                    shown += chunk
            assert watching.wait(10) == 0
        finally:
            watching.kill()
            os.close(leader)
    assert b"Traceback" not in shown
    assert shown.rstrip().endswith(b"\x1b[?25h\x1b[?1049l"), "cursor and screen are there again"


def test_json_and_watch_exclude_each_other(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mme_cli.main", "status", "--watch", "--json"], check=False, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "either --watch or --json" in done.stderr
