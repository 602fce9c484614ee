"""schemathesis calls the running API by the document that it serves, with real signatures: no answer is a surprise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mme_facts.api import OPERATIONS
from tests.closed_schema import closed
from tests.e2e.support import PROJECT, onboard_model, register

CASES = 2000
WITHOUT_PLANS = {f"{operation.method} {operation.path}" for operation in OPERATIONS if operation.path.endswith("/api-key")}
"""What the platform refuses as long as it has no usage plans, as this one; `test_usage_plans` has one that does."""


@pytest.fixture(scope="module")
def platform(own_platform):
    """A platform of its own: thousands of calls change whatever they reach."""
    return own_platform


@pytest.fixture(scope="module")
def known(platform, demo_models):
    """Names of a tenant, model and version that answer, and of an answer that came later."""
    folder, prepared = demo_models
    first = prepared[0]
    platform.admin_client().expect((200, 201), "PUT", f"/tenants/{first.tenant}", {})
    artifact = (folder / first.artifact).read_bytes()
    client = platform.tenant_client(first.tenant)
    version = onboard_model(client, first.tenant, first.model, artifact, first.rows[0])
    headers = {"content-type": "text/csv", "prefer": "respond-async"}
    accepted = client.call("POST", f"/tenants/{first.tenant}/models/{first.model}/invocations", first.rows[0].encode(), headers)
    result = accepted.headers["location"].rpartition("/")[2]
    return {"tenant": first.tenant, "model": first.model, "version": version, "result": result}


@pytest.fixture(scope="module")
def doomed(platform):
    """Operation -> names of a tenant, model and version of its own that it may delete."""

    def make(tenant):
        admin = platform.admin_client()
        admin.expect((201,), "PUT", f"/tenants/{tenant}", {})
        registered = register(admin, tenant, "model", tenant.encode())
        return {"tenant": tenant, "model": "model", "version": registered.json()["version"]}

    return {operation.id: make(operation.id.replace("_", "-")) for operation in OPERATIONS if operation.method == "DELETE"}


@pytest.mark.e2e
@pytest.mark.timeout(1500)
def test_no_answer_of_thousands_of_calls_is_missing_in_the_document(platform, known, doomed, tmp_path):
    document = platform.admin_client().expect((200,), "GET", "/openapi.json").json()
    document["components"]["schemas"] = closed(document["components"]["schemas"])
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    report = tmp_path / "report.json"
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("schemathesis"), "--config-file", Path(__file__).parent / "fuzz" / "schemathesis.toml"),
            *("run", tmp_path / "openapi.json", "--url", platform.state.output("ApiUrl").rstrip("/"), "--report-json-path", report),
        ],
        cwd=PROJECT,
        env={**os.environ, **_environment(platform, known, doomed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    outcome = json.loads(report.read_text())
    assert (outcome["complete"], outcome["failures"], outcome["errors"]) == (True, [], []), done.stdout[-20_000:]
    assert outcome["operations"]["tested"] == len(OPERATIONS)
    assert {phase: told["status"] for phase, told in outcome["phases"].items()} == dict.fromkeys(
        ("examples", "coverage", "fuzzing", "stateful"), "success"
    )
    assert outcome["test_cases"]["generated"] >= CASES, outcome["test_cases"]
    accepted = {call: sum(phase["accepted"] for phase in phases.values()) for call, phases in outcome["valid_rates"].items()}
    idle = {call for call, count in accepted.items() if not count}
    assert idle == WITHOUT_PLANS, f"calls that never got to work: {idle}"


def _environment(platform, known, doomed):
    keys = platform.admin_keys
    return {
        "SCHEMATHESIS_HOOKS": "tests.e2e.fuzz.hooks",
        "PYTHONPATH": os.pathsep.join((str(PROJECT), str(PROJECT / "lambda"))),
        "FUZZ_KEY": keys.access_key_id,
        "FUZZ_SECRET": keys.secret_access_key,
        "FUZZ_TOKEN": keys.session_token,
        "FUZZ_REGION": platform.state.region,
        "FUZZ_KNOWN": json.dumps(known),
        "FUZZ_DOOMED": json.dumps(doomed),
    }
