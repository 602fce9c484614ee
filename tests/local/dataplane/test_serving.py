"""Real servers answer as SageMaker's XGBoost image does, under a memory budget."""

import json
import pickle

import numpy as np
import pytest
import xgboost

from mme_fleet import Fleet, replay

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def cloud(make_cloud, monkeypatch_module):
    monkeypatch_module.setenv("AWS_SECRET_ACCESS_KEY", "never to be seen by a model server")
    monkeypatch_module.setenv("AWS_PROFILE", "neither")
    cloud = make_cloud(instance_memory_bytes=250 * MIB, model_overhead_bytes=100 * MIB, record_events=True)
    cloud.start("serving")
    return cloud


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield monkeypatch


def csv(rows) -> bytes:
    return "\n".join(",".join("" if np.isnan(value) else repr(float(value)) for value in row) for row in rows).encode()


def parse_json(body: bytes) -> np.ndarray:
    return np.array([np.atleast_1d(row) for row in json.loads(body)])


def parse_csv(body: bytes) -> np.ndarray:
    """One line that joins what JSON lists, as the image writes it."""
    return parse_json(b"[" + body + b"]")


@pytest.mark.parametrize(
    ("objective", "model_format"),
    [("binary:logistic", "json"), ("reg:squarederror", "ubj"), ("multi:softprob", "json")],
)
def test_predictions_equal_those_of_the_local_booster(cloud, booster, artifact, rows, objective, model_format):
    local = booster(objective, **({"num_class": 3} if "multi" in objective else {}))
    name = f"acme/{objective.replace(':', '-')}/v1.tar.gz"
    cloud.source.put(f"models/{name}", artifact(local, model_format))
    gaps = rows.copy()
    gaps[::3, 1] = np.nan
    expected = local.predict(xgboost.DMatrix(gaps)).reshape(len(rows), -1)

    reply = cloud.call("serving", name, csv(gaps), accept="text/csv")
    assert (reply.status, reply.content_type, reply.cold) == (200, "text/csv", True)
    np.testing.assert_allclose(parse_csv(reply.body), expected, rtol=0, atol=1e-6)

    libsvm = "\n".join("1 " + " ".join(f"{i}:{float(value)!r}" for i, value in enumerate(row) if not np.isnan(value)) for row in gaps)
    reply = cloud.call("serving", name, libsvm.encode(), "text/libsvm")
    assert (reply.content_type, reply.cold) == ("application/json", False)
    np.testing.assert_allclose(parse_json(reply.body), expected, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def plain(cloud, booster, artifact):
    cloud.source.put("models/plain.tar.gz", artifact(booster()))
    return "plain.tar.gz"


@pytest.mark.parametrize(
    ("body", "content_type", "accept", "status", "text"),
    [
        (b"1,2,3,4", "application/json", None, 415, "application/json"),
        (b"1,2,3,4", "text/csv", "image/png", 415, "image/png"),
        (b"1,2,x,4", "text/csv", None, 400, "'x'"),
        (b"1,2,3", "text/csv", None, 400, "3 columns"),
        (b"1,2,3,4,5", "text/csv", None, 400, "5 columns"),
        (b"inf,2,3,4", "text/csv", None, 400, "inf"),
        (b"\xff\xfe", "text/csv", None, 400, "UTF-8"),
        (b"", "text/csv", None, 400, "no rows"),
        (b"1 0:1 4:2", "text/libsvm", None, 400, "4:2"),
        (b"1 0:1 x", "application/x-libsvm", None, 400, "'x'"),
    ],
)
def test_bad_input_is_a_model_error_with_the_containers_status(cloud, plain, body, content_type, accept, status, text):
    reply = cloud.call("serving", plain, body, content_type, accept=accept)
    assert (reply.status, reply.error, reply.original_status) == (424, "ModelError", status)
    assert text in reply.body.decode()
    assert reply.message == f"The container answered with status {status}."


def test_a_request_without_content_type_is_csv(cloud, plain):
    assert cloud.call("serving", plain, b"1,2,3,4", None).status == 200


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [(None, "application/json"), ("*/*", "application/json"), ("Text/CSV", "text/csv"), ("json", "application/json")],
)
def test_the_answer_has_the_type_that_the_caller_accepts(cloud, plain, accept, content_type):
    assert cloud.call("serving", plain, b"1,2,3,4", accept=accept).content_type == content_type


def test_a_missing_artifact_is_a_validation_error_that_names_it(cloud):
    reply = cloud.call("serving", "nobody/nothing/v1.tar.gz", b"1,2,3,4")
    assert (reply.status, reply.error, reply.instance) == (400, "ValidationError", None)
    assert "bucket: bucket, key: models/nobody/nothing/v1.tar.gz" in reply.message


def test_an_artifact_that_the_role_may_not_read_is_a_validation_error(cloud, booster, artifact):
    cloud.source.put("models/denied.tar.gz", artifact(booster()))
    cloud.source.denied.add("models/denied.tar.gz")
    assert cloud.call("serving", "denied.tar.gz").error == "ValidationError"


def test_without_a_target_model_the_request_is_refused(cloud):
    assert cloud.call("serving", None).error == "ValidationError"


@pytest.mark.parametrize(
    ("members", "text"),
    [
        (b"not gzip at all", "not a sound .tar.gz"),
        ({"xgboost-model": b"hello"}, "neither JSON nor UBJSON"),
        ({"xgboost-model": pickle.dumps({"a": "booster"})}, "pickle"),
        ({"xgboost-model": b'{"learner": {}}'}, "cannot read xgboost-model"),
        ({"model.json": b"{}"}, "no file 'xgboost-model'"),
        ({"../xgboost-model": b"{}"}, "../xgboost-model"),
        ({"xgboost-model": b"{}", "numpy.py": b"import os"}, "numpy.py"),
        ({"xgboost-model": b"{}", "MAR-INF/MANIFEST.json": b"{}"}, "MAR-INF/MANIFEST.json"),
    ],
)
def test_a_broken_artifact_is_a_model_error_that_says_why(cloud, archive, members, text):
    cloud.source.put("models/broken.tar.gz", members if isinstance(members, bytes) else archive(members))
    reply = cloud.call("serving", "broken.tar.gz", b"1,2,3,4")
    assert (reply.status, reply.error, reply.original_status) == (424, "ModelError", 500)
    assert text in reply.message
    assert "broken.tar.gz" not in [model["target_model"] for model in cloud.status("serving")["instances"][0]["models"]]


def test_a_model_that_was_broken_is_served_once_it_is_mended(cloud, archive, booster, artifact):
    cloud.source.put("models/mended.tar.gz", archive({"xgboost-model": b"hello"}))
    assert cloud.call("serving", "mended.tar.gz", b"1,2,3,4").status == 424
    cloud.source.put("models/mended.tar.gz", artifact(booster()))
    assert cloud.call("serving", "mended.tar.gz", b"1,2,3,4").status == 200


def test_models_are_evicted_under_the_budget_and_come_back_from_disk(cloud, booster, artifact):
    for name in ("one", "two", "three"):
        cloud.source.put(f"models/evict/{name}.tar.gz", artifact(booster()))
        assert cloud.call("serving", f"evict/{name}.tar.gz", b"1,2,3,4").status == 200
    before = cloud.status("serving")
    (instance,) = before["instances"]
    assert [model["target_model"] for model in instance["models"]] == ["evict/two.tar.gz", "evict/three.tar.gz"]
    assert instance["memory_bytes"] == sum(model["bytes"] for model in instance["models"]) <= 250 * MIB
    reply = cloud.call("serving", "evict/one.tar.gz", b"1,2,3,4")
    after = cloud.status("serving")
    assert (reply.status, reply.cold) == (200, True)
    assert after["evictions"] == before["evictions"] + 1
    assert after["loads_by_model"]["evict/one.tar.gz"] == 2
    assert cloud.source.fetched.count("models/evict/one.tar.gz") == 1


def test_a_model_server_sees_no_credentials(cloud):
    (instance,) = cloud.status("serving")["instances"]
    with open(f"/proc/{instance['pid']}/environ", "rb") as file:  # noqa: PTH123
        names = {entry.partition(b"=")[0] for entry in file.read().split(b"\0")}
    assert b"SAGEMAKER_MULTI_MODEL" in names
    assert not [name for name in names if name.startswith(b"AWS_")]


def test_the_recorded_run_replays_with_the_same_actions(cloud, plain):
    for name in (plain, "nothing.tar.gz", plain):
        cloud.call("serving", name, b"1,2,3,4")
    steps = cloud.plane.recording("serving")
    assert replay(steps, Fleet(cloud.settings.fleet_settings())) == len(steps) > 5
