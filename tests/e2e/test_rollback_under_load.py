"""Roll back and forward, canaries and deletions while callers invoke: on the deployed reference app, with real model servers."""

import json
import threading
import time
from dataclasses import dataclass

import pytest

from mme_tenancy.stale_cache import Freshness
from tests.e2e.support import onboard_model, problem, register, upload, wait_until

CALLERS, ACTIVATIONS = 8, 50
KEPT_SECONDS = Freshness().stale_seconds
"""So long a container of the function may still follow the route it knows."""
TENANT, MODEL = "initech", "rolled"
PATH = f"/tenants/{TENANT}/models/{MODEL}"


@dataclass(frozen=True)
class Call:
    """One call as its caller saw it: begin and end, which version it was for or from, and whether the prediction was that one's."""

    began: float
    ended: float
    version: str
    status: int = 200
    right: bool = True


@pytest.fixture(scope="module")
def versions(platform, served, demo_models):
    """Two versions of one model whose predictions differ: version -> expected predictions, in the order of their numbers."""
    folder, _ = demo_models
    client = platform.tenant_client(TENANT)
    expected = {}
    for prepared in (served["acme", "iris"][0], served["initech", "iris-deep"][0]):
        version = onboard_model(client, TENANT, MODEL, (folder / prepared.artifact).read_bytes(), prepared.rows[0])
        expected[version] = prepared.expected
    first, second = expected.values()
    assert max(distance(one, other) for one, other in zip(first, second, strict=True)) > 0.01
    return expected


@pytest.fixture(scope="module")
def rows(served):
    iris, deep = served["acme", "iris"][0], served["initech", "iris-deep"][0]
    assert iris.rows == deep.rows
    return "\n".join(iris.rows).encode()


def distance(one, other):
    return max(abs(left - right) for left, right in zip(one, other, strict=True))


def settled(by_key):
    """What answers which key once all containers of the function know the route: no round differs from the one before."""
    seen = [by_key()]

    def same_again():
        seen.append(by_key())
        return seen[-1] == seen[-2]

    began = time.monotonic()
    wait_until(lambda: same_again() and time.monotonic() > began + KEPT_SECONDS, what="the same answers again")
    return seen[-1]


def taken(by_key, version):
    return {key for key, answered in by_key.items() if answered == version}


def activate(client, version, percent=None):
    body = {"version": version} | ({} if percent is None else {"canary": {"percent": percent}})
    return client.expect((200,), "POST", f"{PATH}/activate", body).json()


def invoke(client, rows, versions, **headers):
    """One invocation; the prediction is compared with what the version in the answer predicts."""
    began = time.monotonic()
    answer = client.call("POST", f"{PATH}/invocations", rows, {"content-type": "text/csv", "accept": "application/json", **headers})
    ended = time.monotonic()
    version = answer.headers.get("x-mme-version", "")
    right = answer.status == 200 and all(
        distance(got, wanted) < 1e-5 for got, wanted in zip(json.loads(answer.body), versions[version], strict=True)
    )
    return Call(began, ended, version, answer.status, right)


class Load:
    """Callers that invoke all the time, each with a client of its own."""

    def __init__(self, platform, rows, versions):
        self.calls, self._stopped = [], threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(platform.tenant_client(TENANT), rows, versions), name=f"caller {number}")
            for number in range(CALLERS)
        ]

    def _run(self, client, rows, versions):
        while not self._stopped.is_set():
            try:
                self.calls.append(invoke(client, rows, versions))
            except Exception as error:
                self.calls.append(Call(0.0, 0.0, repr(error), 0, right=False))

    def follow(self, activation):
        """Whether requests were answered that began when every container knew of the activation."""
        return sum(call.began > activation.ended + KEPT_SECONDS for call in self.calls[-10 * CALLERS :]) >= CALLERS

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self._stopped.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.e2e
@pytest.mark.timeout(600)
def test_nobody_notices_fifty_activations_but_by_the_version_that_answers(platform, served, versions, rows):
    client, (first, second) = platform.tenant_client(TENANT), versions
    activate(client, first)
    activations = [Call(0.0, time.monotonic(), first)]
    with Load(platform, rows, versions) as load:
        for number in range(ACTIVATIONS):
            wait_until(lambda: load.follow(activations[-1]), what="answers to requests after the activation")
            version = (second, first)[number % 2]
            began = time.monotonic()
            assert activate(client, version)["active_version"] == version
            activations.append(Call(began, time.monotonic(), version))
        wait_until(lambda: load.follow(activations[-1]), what="the last answers")
    failed = [call for call in load.calls if not call.right]
    assert failed == []
    assert {call.version for call in load.calls} == {first, second}
    settled = 0
    for call in load.calls:
        # The last activation that every container knew before the request, and those that were under way since.
        before = [activation for activation in activations if activation.ended + KEPT_SECONDS <= call.began][-1:] or activations[:1]
        meanwhile = [activation for activation in activations if activation.ended > before[0].ended and activation.began < call.ended]
        assert call.version in {activation.version for activation in (*before, *meanwhile)}, (call, before, meanwhile)
        settled += not meanwhile
    # These met no activation at all: they show that the new version answers, and only it.
    assert settled >= ACTIVATIONS * CALLERS / 2


@pytest.mark.e2e
def test_a_canary_takes_its_keys_and_gives_them_back(platform, served, versions, rows):
    client, (first, second) = platform.tenant_client(TENANT), versions
    activate(client, first)
    keys = [f"user-{number}" for number in range(40)]

    def by_key():
        calls = {key: invoke(client, rows, versions, **{"x-mme-sticky-key": key}) for key in keys}
        assert all(call.right for call in calls.values())
        return {key: call.version for key, call in calls.items()}

    assert activate(client, second, 30)["canary"] == {"version": second, "percent": 30}
    wait_until(lambda: set(by_key().values()) == {first, second}, what="answers of the canary")
    small = settled(by_key)
    assert set(small.values()) == {first, second}
    activate(client, second, 60)
    wait_until(lambda: by_key() != small, what="the canary's larger part")
    assert taken(small, second) < taken(settled(by_key), second)
    activate(client, second, 0)
    wait_until(lambda: set(by_key().values()) == {first}, what="the end of the canary")
    assert set(settled(by_key).values()) == {first}


def test_what_is_deleted_is_refused_at_once_and_says_how(platform, served, demo_models):
    folder, prepared = demo_models
    admin, tenant = platform.admin_client(), "leaving"
    admin.expect((200, 201), "PUT", f"/tenants/{tenant}", {})
    client = platform.tenant_client(tenant)
    iris = next(model for model in prepared if model.model == "iris")
    artifact = (folder / iris.artifact).read_bytes()
    version = onboard_model(client, tenant, "short-lived", artifact, iris.rows[0])
    model = f"/tenants/{tenant}/models/short-lived"
    problem(client.call("DELETE", f"{model}/versions/{version}"), 409, "version-active")
    retired = client.expect((200,), "DELETE", f"{model}/versions/{version}?force=true").json()
    assert retired["state"] == "retired"
    assert "only by eviction or when the fleet is replaced" in retired["cached_copies"]
    problem(client.call("POST", f"{model}/invocations", iris.rows[0].encode()), 409, "no-active-version")
    problem(client.call("POST", f"{model}/activate", json.dumps({"version": version}).encode()), 409, "forbidden-move")
    # The same artifact is another version now, and lives.
    registered = register(client, tenant, "short-lived", artifact, iris.rows[0]).json()
    assert registered["version"][:3] == "v2-"
    assert upload(client, registered, artifact).status == 200
    again = f"{model}/versions/{registered['version']}"
    wait_until(lambda: client.expect((200,), "GET", again).json()["state"] == "active", what="the artifact's second life")
    assert client.expect((200,), "DELETE", model).json()["retiring"] is False
    problem(client.call("POST", f"{model}/invocations", iris.rows[0].encode()), 404, "model-not-found")
    assert client.expect((200,), "GET", f"/tenants/{tenant}/models").json()["models"] == []
    assert client.call("DELETE", f"/tenants/{tenant}").status == 403
    assert client.call("DELETE", f"/tenants/{tenant}/").status == 403
    admin.expect((200,), "DELETE", f"/tenants/{tenant}")
    problem(register(client, tenant, "another", b"artifact"), 410, "tenant-deleted")
    problem(client.call("POST", f"{model}/invocations", iris.rows[0].encode()), 410, "tenant-deleted")
    assert admin.expect((201,), "PUT", f"/tenants/{tenant}", {}).json()["deleted_at"] is None
