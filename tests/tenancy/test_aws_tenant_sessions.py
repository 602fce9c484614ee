from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from botocore.config import Config
from botocore.credentials import ReadOnlyCredentials

from mme_tenancy.aws.tenant_sessions import SessionKeys, TenantSessions


class Sts:
    """Opens sessions of an hour, or raises ``error``."""

    def __init__(self, clock):
        self.clock, self.opened, self.error = clock, [], None

    def __call__(self, tenant):
        self.opened.append(tenant)
        if self.error is not None:
            raise self.error
        return SessionKeys(ReadOnlyCredentials(f"AKIA-{tenant}-{len(self.opened)}", "secret", "token"), self.clock.wall() + 3600)


@pytest.fixture
def sts(clock):
    return Sts(clock)


@pytest.fixture
def sessions(sts, clock):
    return TenantSessions(sts, clock, entries=3)


def test_a_session_is_opened_once_and_renewed_shortly_before_its_end(sessions, sts, clock):
    assert sessions.keys("acme").access_key == sessions.keys("acme").access_key == "AKIA-acme-1"
    clock.sleep(3299)
    assert sessions.keys("acme").access_key == "AKIA-acme-1"
    clock.sleep(1)
    assert sessions.keys("acme").access_key == "AKIA-acme-2"
    assert sts.opened == ["acme", "acme"]


def test_an_error_of_sts_is_told_but_does_not_matter_while_the_session_lasts(sessions, sts, clock, caplog):
    sessions.keys("acme")
    sts.error = OSError("throttled")
    clock.sleep(3599)
    assert sessions.keys("acme").access_key == "AKIA-acme-1"
    assert "the session of tenant acme could not be renewed" in caplog.text
    clock.sleep(1)
    with pytest.raises(OSError, match="throttled"):
        sessions.keys("acme")


def test_the_least_recently_used_session_goes(sessions, sts):
    for tenant in ("a", "b", "c", "a", "d"):
        sessions.keys(tenant)
    sts.opened.clear()
    for tenant in ("a", "c", "d", "b"):
        sessions.keys(tenant)
    assert sts.opened == ["b"]


def test_many_threads_open_one_session(clock):
    go_on = threading.Event()
    opened = []

    def assume(tenant):
        opened.append(tenant)
        assert go_on.wait(10)
        return SessionKeys(ReadOnlyCredentials("AKIA", "secret", "token"), clock.wall() + 3600)

    sessions = TenantSessions(assume, clock)
    with ThreadPoolExecutor(8) as pool:
        keys = [pool.submit(sessions.keys, "acme") for _ in range(8)]
        go_on.set()
        assert {each.result(10).access_key for each in keys} == {"AKIA"}
    assert opened == ["acme"]


def test_nothing_is_signed_outside_of_a_tenants_context(sessions):
    client = sessions.boto3_session(boto3.Session(region_name="us-east-1")).client("sagemaker-runtime", endpoint_url="http://127.0.0.1:9")
    with pytest.raises(RuntimeError, match="outside of a tenant's context"):
        client.invoke_endpoint(EndpointName="e", Body=b"")


def test_one_client_signs_as_the_tenant_of_each_thread(sessions):
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
            with sessions.acting_as(tenant), pytest.raises(InterruptedError):
                client.invoke_endpoint(EndpointName="e", Body=b"")

    threads = [threading.Thread(target=work, args=(tenant,)) for tenant in ("acme", "zeta")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert signed == {"acme": {"acme"}, "zeta": {"zeta"}}


def test_contexts_nest_and_end(sessions):
    with sessions.acting_as("acme"):
        with sessions.acting_as("zeta"):
            assert "zeta" in sessions.current().access_key
        assert "acme" in sessions.current().access_key
    with pytest.raises(RuntimeError):
        sessions.current()
