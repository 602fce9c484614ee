from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import boto3
import pytest
from botocore.config import Config
from botocore.credentials import ReadOnlyCredentials
from botocore.stub import Stubber

from mme_tenancy.aws.tenant_sessions import SessionKeys, TenantSessions, assume_tenant
from mme_tenancy.errors import UnavailableError

FAR = 10.0
"""A deadline, on the fake clock, that is not reached."""


class Sts:
    """Opens sessions of an hour, or raises ``error``; but for ``quick`` tenants it waits for ``go_on``."""

    def __init__(self, clock):
        self.clock, self.opened, self.error, self.quick, self.go_on = clock, [], None, set(), threading.Event()
        self.go_on.set()

    def __call__(self, tenant):
        self.opened.append(tenant)
        number = len(self.opened)
        assert tenant in self.quick or self.go_on.wait(10)
        if self.error is not None:
            raise self.error
        return SessionKeys(ReadOnlyCredentials(f"AKIA-{tenant}-{number}", "secret", "token"), self.clock.wall() + 3600)


@pytest.fixture
def sts(clock):
    return Sts(clock)


@pytest.fixture
def sessions(sts, clock):
    return TenantSessions(sts, clock, entries=3)


@pytest.fixture
def key_of(sessions, clock):
    """The access key that a caller gets who waits for some seconds at most."""

    def key(tenant="acme", seconds=FAR):
        return sessions.keys(tenant, deadline=clock.monotonic() + seconds).access_key

    return key


def opening_ends():
    """Wait for the threads that open sessions."""
    for thread in threading.enumerate():
        if thread.name == "mme-session":
            thread.join(10)
            assert not thread.is_alive()


def test_a_session_is_opened_once_and_renewed_shortly_before_its_end(key_of, sts, clock):
    assert key_of() == key_of() == "AKIA-acme-1"
    clock.sleep(3299)
    assert key_of() == "AKIA-acme-1"
    assert sts.opened == ["acme"]
    clock.sleep(1)
    assert key_of() == "AKIA-acme-1"
    opening_ends()
    assert key_of() == "AKIA-acme-2"
    assert sts.opened == ["acme", "acme"]


def test_nobody_waits_for_a_renewal_and_one_is_under_way_at_most(key_of, sts, clock):
    key_of()
    sts.go_on.clear()
    clock.sleep(3400)
    assert {key_of(seconds=0) for _ in range(5)} == {"AKIA-acme-1"}
    sts.go_on.set()
    opening_ends()
    assert key_of(seconds=0) == "AKIA-acme-2"
    assert sts.opened == ["acme", "acme"]


def test_an_error_of_sts_is_told_but_does_not_matter_while_the_session_lasts(key_of, sts, clock, caplog):
    key_of()
    sts.error = OSError("throttled")
    clock.sleep(3589)
    assert key_of() == "AKIA-acme-1"
    opening_ends()
    assert "the session of tenant acme could not be renewed" in caplog.text
    clock.sleep(9)
    assert key_of() == "AKIA-acme-1"
    opening_ends()
    assert sts.opened == ["acme"] * 2, "a renewal that failed is not tried again at once"
    clock.sleep(1)
    assert key_of() == "AKIA-acme-1"
    opening_ends()
    assert sts.opened == ["acme"] * 3
    clock.sleep(1)
    with pytest.raises(OSError, match="throttled"):
        key_of()
    sts.error = None
    assert key_of() == "AKIA-acme-5", "without a session nobody waits for the pause"


def test_a_session_that_ended_while_nobody_called_is_never_used(key_of, sts, clock):
    key_of()
    clock.sleep(3600)
    assert key_of() == "AKIA-acme-2"


def test_the_least_recently_used_session_goes(key_of, sts):
    for tenant in ("a", "b", "c", "a", "d"):
        key_of(tenant)
    sts.opened.clear()
    for tenant in ("a", "c", "d", "b"):
        key_of(tenant)
    assert sts.opened == ["b"]


@pytest.mark.parametrize("error", [None, UnavailableError("throttled")])
def test_many_threads_open_one_session_and_share_how_it_ended(sessions, sts, clock, monkeypatch, error):
    sts.error = error
    sts.go_on.clear()
    deadline = clock.monotonic() + FAR
    waiting, monotonic = threading.Semaphore(0), clock.monotonic
    monkeypatch.setattr(clock, "monotonic", lambda: waiting.release() or monotonic())

    def call():
        try:
            return sessions.keys("acme", deadline=deadline).access_key
        except UnavailableError as raised:
            return raised

    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(call) for _ in range(8)]
        assert all(waiting.acquire(timeout=10) for _ in calls)
        sts.go_on.set()
        results = {each.result(10) for each in calls}
    assert results == {"AKIA-acme-1" if error is None else error}
    assert sts.opened == ["acme"]


def test_nobody_waits_for_sts_past_the_own_deadline_and_the_session_serves_the_next(key_of, sts):
    sts.go_on.clear()
    for _ in range(2):
        with pytest.raises(UnavailableError, match="not there in time") as raised:
            key_of(seconds=-1)
        assert raised.value.retry_after_seconds == 2
    sts.go_on.set()
    opening_ends()
    assert key_of(seconds=0) == "AKIA-acme-1"
    assert sts.opened == ["acme"]


def test_a_tenant_whose_session_sts_keeps_waiting_holds_up_no_other(key_of, sts):
    sts.go_on.clear()
    sts.quick.add("acme")
    with pytest.raises(UnavailableError):
        key_of("slow", seconds=0)
    assert key_of("acme").startswith("AKIA-acme-")
    sts.go_on.set()
    opening_ends()
    assert key_of("slow", seconds=0).startswith("AKIA-slow-")


def test_a_process_without_room_for_a_thread_says_so_and_tries_again(key_of, monkeypatch):
    def no_room(_thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_room)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            key_of()
    assert key_of() == "AKIA-acme-1"


def test_nothing_is_signed_outside_of_a_tenants_context(sessions):
    client = sessions.boto3_session(boto3.Session(region_name="us-east-1")).client("sagemaker-runtime", endpoint_url="http://127.0.0.1:9")
    with pytest.raises(RuntimeError, match="outside of a tenant's context"):
        client.invoke_endpoint(EndpointName="e", Body=b"")


def test_one_client_signs_as_the_tenant_of_each_thread(sessions, clock):
    config = Config(retries={"total_max_attempts": 1})
    client = sessions.boto3_session(boto3.Session(region_name="us-east-1")).client(
        "sagemaker-runtime", endpoint_url="http://127.0.0.1:9", config=config
    )
    signed = {}
    both = threading.Barrier(2)

    def look(request, **_):
        signed.setdefault(threading.current_thread().name, set()).add(re.search(r"AKIA-(\w+)-", str(request.headers["Authorization"]))[1])
        raise InterruptedError

    client.meta.events.register("before-send.sagemaker-runtime.*", look)

    def work(tenant):
        threading.current_thread().name = tenant
        for _ in range(20):
            both.wait(10)
            with sessions.acting_as(tenant, deadline=clock.monotonic() + FAR), pytest.raises(InterruptedError):
                client.invoke_endpoint(EndpointName="e", Body=b"")

    threads = [threading.Thread(target=work, args=(tenant,)) for tenant in ("acme", "zeta")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert signed == {"acme": {"acme"}, "zeta": {"zeta"}}


def test_contexts_nest_and_end(sessions, clock):
    until = clock.monotonic() + FAR
    with sessions.acting_as("acme", deadline=until):
        with sessions.acting_as("zeta", deadline=until):
            assert "zeta" in sessions.current().access_key
        assert "acme" in sessions.current().access_key
    with pytest.raises(RuntimeError):
        sessions.current()


def test_first_calls_at_the_same_time_make_one_client_of_sts():
    """A boto3 session may not make clients on several threads at once."""
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    client = boto3.client("sts", region_name="us-east-1", endpoint_url="http://127.0.0.1:9", **keys)
    made, twice = [], threading.Event()

    def sts():
        made.append(client)
        if len(made) > 1:
            twice.set()
        twice.wait(0.2)
        return client

    assume = assume_tenant(sts, "arn:aws:iam::111122223333:role/tenants")
    answer = {"AccessKeyId": "A" * 16, "SecretAccessKey": "s", "SessionToken": "t", "Expiration": datetime(2026, 1, 1, tzinfo=UTC)}
    with Stubber(client) as stub, ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            stub.add_response("assume_role", {"Credentials": answer})
        assert [keys.expires_at for keys in pool.map(assume, ("acme", "zeta"))] == [answer["Expiration"].timestamp()] * 2
    assert len(made) == 1
