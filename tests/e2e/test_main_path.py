"""From registration to prediction over HTTP, on the reference app as the real CDK CLI deployed it."""

import io
import json
import tarfile

import pytest

from mme_cli.demo.onboard import predict
from mme_facts.limits import api_binary_body_bytes
from mme_tenancy.testing import booster
from tests.e2e.support import onboard_model, only_endpoint, problem, register, targz, upload, wait_until


def test_every_models_predictions_are_its_own_although_models_are_evicted(platform, served):
    for _ in range(2):
        for (tenant, model), (prepared, version) in served.items():
            predictions, answer, _seconds = predict(platform.tenant_client(tenant), tenant, model, prepared.rows)
            assert answer.headers["x-mme-version"] == version
            for row, expected in zip(predictions, prepared.expected, strict=True):
                assert row == pytest.approx(expected, abs=1e-6)
    assert only_endpoint(platform)["evictions"] > 0


def test_the_code_that_ran_is_the_deployed_asset_not_the_checkout(platform, served):
    answer = platform.tenant_client("acme").call("GET", "/tenants/acme")
    assert answer.status == 200
    assert answer.headers["x-deployed-mark"] == "seen"


def test_versions_and_models_are_listed_with_state_and_route(platform, served):
    client = platform.tenant_client("acme")
    version = served["acme", "iris"][1]
    document = client.expect((200,), "GET", f"/tenants/acme/models/iris/versions/{version}").json()
    assert (document["state"], document["active"], document["framework"]) == ("active", True, "xgboost")
    assert document["timings"]
    assert [item["version"] for item in client.expect((200,), "GET", "/tenants/acme/models/iris/versions").json()["versions"]] == [version]
    models = client.expect((200,), "GET", "/tenants/acme/models").json()["models"]
    assert {item["model"]: item["active_version"] for item in models} == {name: served["acme", name][1] for name in ("iris", "wine")}


def test_a_second_version_takes_over_the_route(platform, served, demo_models):
    folder, _ = demo_models
    client = platform.tenant_client("initech")
    prepared, _version = served["initech", "iris-deep"]
    first = onboard_model(client, "initech", "replaced", (folder / prepared.artifact).read_bytes(), prepared.rows[0])
    other, _version = served["acme", "iris"]
    second = onboard_model(client, "initech", "replaced", (folder / other.artifact).read_bytes(), other.rows[0])
    assert (first[:3], second[:3]) == ("v1-", "v2-")
    predictions, answer, _seconds = predict(client, "initech", "replaced", other.rows)
    assert answer.headers["x-mme-version"] == second
    assert predictions[0] == pytest.approx(other.expected[0], abs=1e-6)
    assert client.expect((200,), "GET", f"/tenants/initech/models/replaced/versions/{first}").json()["state"] == "ready"


def test_the_same_idempotency_key_replays_the_same_request_and_refuses_another(platform, served):
    client = platform.tenant_client("acme")
    first = register(client, "acme", "replayed", b"one artifact", **{"idempotency-key": "key-1"})
    again = register(client, "acme", "replayed", b"one artifact", **{"idempotency-key": "key-1"})
    assert (first.status, again.status) == (201, 201)
    assert first.body == again.body
    problem(register(client, "acme", "replayed", b"another artifact", **{"idempotency-key": "key-1"}), 409, "idempotency-conflict")


def test_a_stored_version_is_not_uploaded_again(platform, served, demo_models):
    folder, _ = demo_models
    prepared, version = served["globex", "digits"]
    client = platform.tenant_client("globex")
    artifact = (folder / prepared.artifact).read_bytes()
    document = problem(register(client, "globex", "digits", artifact), 409, "version-exists")
    assert version in document["detail"]


def test_a_signed_upload_takes_its_artifact_once_and_no_other(platform, served):
    client = platform.tenant_client("acme")
    artifact = b"the artifact as registered"
    registered = register(client, "acme", "once", artifact).json()
    assert upload(client, registered, artifact[::-1]).status == 400
    assert upload(client, registered, artifact).status == 200
    assert upload(client, registered, artifact).status == 412


def member(name, content=b"", kind=tarfile.REGTYPE, linkname=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, linkname
    return info, content


MODEL = member("xgboost-model", booster())
HOSTILE = {
    "not gzip": (b"PK\x03\x04 this is no gzip", None),
    "truncated": (targz(member("xgboost-model", bytes(range(256)) * 400))[:-20], None),
    "dot dot": (targz(MODEL, member("../evil", b"x")), "../evil"),
    "absolute": (targz(MODEL, member("/etc/evil", b"x")), "/etc/evil"),
    "symbolic link": (targz(MODEL, member("evil-link", kind=tarfile.SYMTYPE, linkname="/etc/passwd")), "evil-link"),
    "hard link": (targz(MODEL, member("evil-hard", kind=tarfile.LNKTYPE, linkname="xgboost-model")), "evil-hard"),
    "device": (targz(MODEL, member("evil-device", kind=tarfile.CHRTYPE)), "evil-device"),
    "no model": (targz(member("readme.txt", b"hello")), "xgboost-model"),
}


@pytest.fixture(scope="module")
def rejected(platform, served):
    """Every hostile artifact, uploaded; its version document once it is final."""
    client = platform.tenant_client("acme")
    documents = {}
    for name, (artifact, _named) in HOSTILE.items():
        model = "hostile-" + name.replace(" ", "-")
        registered = register(client, "acme", model, artifact).json()
        assert upload(client, registered, artifact).status == 200
        documents[name] = (model, f"/tenants/acme/models/{model}/versions/{registered['version']}")
    return {name: (model, settled(client, path)) for name, (model, path) in documents.items()}


def settled(client, path):
    def final():
        document = client.expect((200,), "GET", path).json()
        return document if document["state"] not in ("awaiting_upload", "inspecting") else None

    return wait_until(final, what=f"the end of the inspection of {path}")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_artifact_is_rejected_by_name_and_nothing_lands_under_the_prefix(name, rejected, platform):
    model, document = rejected[name]
    assert document["state"] == "rejected"
    named = HOSTILE[name][1]
    assert document["reasons"]
    if named is not None:
        assert any(reason["member"] == named or named in reason["detail"] for reason in document["reasons"]), document["reasons"]
    stored = platform.client("s3").list_objects_v2(Bucket=platform.state.output("BucketName"), Prefix=f"models/acme/{model}/")
    assert stored["KeyCount"] == 0
    problem(platform.tenant_client("acme").call("POST", f"/tenants/acme/models/{model}/invocations", b"1"), 409, "no-active-version")


def test_a_model_that_fails_on_its_sample_is_rejected_and_never_routed(platform, served):
    client = platform.tenant_client("acme")
    artifact = targz(member("xgboost-model", booster("well-formed, but XGBoost cannot load it")))
    registered = register(client, "acme", "broken", artifact).json()
    assert upload(client, registered, artifact).status == 200
    path = f"/tenants/acme/models/broken/versions/{registered['version']}"

    def final():
        document = client.expect((200,), "GET", path).json()
        return document if document["state"] in ("rejected", "active") else None

    assert wait_until(final, what="the end of the first invocation")["state"] == "rejected"
    problem(client.call("POST", "/tenants/acme/models/broken/invocations", b"1"), 409, "no-active-version")


def test_unknown_tenants_models_and_versions_are_not_found(platform, served):
    admin, client = platform.admin_client(), platform.tenant_client("acme")
    problem(admin.call("GET", "/tenants/nobody"), 404, "tenant-not-found")
    problem(admin.call("POST", "/tenants/nobody/models/iris/invocations", b"1"), 404, "tenant-not-found")
    problem(register(admin, "nobody", "iris", b"x"), 404, "tenant-not-found")
    problem(client.call("GET", "/tenants/acme/models/nothing"), 404, "model-not-found")
    problem(client.call("POST", "/tenants/acme/models/nothing/invocations", b"1"), 404, "model-not-found")
    problem(client.call("GET", "/tenants/acme/models/iris/versions/v9-0123456789ab"), 404, "version-not-found")


def test_a_body_that_cannot_fit_the_lambda_event_is_refused_with_the_limit(platform, served):
    limit = api_binary_body_bytes()
    answer = platform.tenant_client("acme").call(
        "POST", "/tenants/acme/models/iris/invocations", bytes(limit + 1), {"content-type": "text/csv"}
    )
    assert str(limit) in json.dumps(problem(answer, 413, "payload-too-large"))


def test_bad_names_and_bodies_name_the_field_and_what_is_allowed(platform, served):
    client = platform.tenant_client("acme")
    document = problem(client.call("GET", "/tenants/acme/models/Iris"), 400, "invalid-request")
    assert (document["field"], document["value"]) == ("model", "Iris")
    answer = client.call("POST", "/tenants/acme/models/iris/versions", b'{"sha256": "short"}', {"content-type": "application/json"})
    assert problem(answer, 400, "invalid-request")["field"] in ("sha256", "size_bytes", "framework", "sample")


def test_what_the_model_rejects_is_the_callers_error_without_internal_names(platform, served):
    answer = platform.tenant_client("acme").call(
        "POST", "/tenants/acme/models/iris/invocations", b"not,a,number,row", {"content-type": "text/csv"}
    )
    text = json.dumps(problem(answer, 422, "model-rejected-input"))
    for secret in (platform.state.output("BucketName"), platform.state.output("EndpointName"), "arn:", "Traceback", "/tmp"):
        assert secret not in text


def test_a_binary_body_reaches_the_model_intact(platform, served):
    body = io.BytesIO(bytes(range(256)) * 16).getvalue()
    answer = platform.tenant_client("acme").call(
        "POST", "/tenants/acme/models/iris/invocations", body, {"content-type": "application/octet-stream"}
    )
    problem(answer, 422, "model-rejected-input")
