"""The reference app and every example through the real CDK CLI: bootstrap, deploy, diff, destroy, deploy again."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from mme_local import LocalCloud

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/app.py"))
BOOTSTRAP = "CDKToolkit"


@pytest.fixture
def cdk(local_cloud: LocalCloud, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # Node and the CLI come from Python packages alone
    environment = {"HOME": str(tmp_path), **local_cloud.environment()}

    def run(*arguments: str, folder: Path = ROOT, context: tuple[str, ...] = ("-c", "environment=local")) -> str:
        command = ["--app", f"{sys.executable} app.py", "--output", str(tmp_path / "cdk.out"), *context, *arguments]
        return call(*command, folder=folder)

    def call(*arguments: str, folder: Path) -> str:
        command = ["/usr/bin/env", "cdk", *arguments]
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{ran.stdout[-4000:]}\n{ran.stderr[-4000:]}"
        return ran.stdout + ran.stderr

    call("bootstrap", f"aws://{local_cloud.account}/{local_cloud.region}", folder=tmp_path)
    return run


def statuses(cloud):
    """Names and states of all stacks but that of the bootstrap, gone ones included."""
    stacks = cloud.client("cloudformation").list_stacks()["StackSummaries"]
    return {(stack["StackName"], stack["StackStatus"]) for stack in stacks if stack["StackName"] != BOOTSTRAP}


def in_service(cloud):
    """The names of the endpoints, all of which are in service."""
    endpoints = cloud.status()["endpoints"]
    assert {endpoint["status"] for endpoint in endpoints} == {"InService"}
    return {endpoint["name"] for endpoint in endpoints}


@pytest.mark.e2e
def test_the_reference_app_deploys_without_differences_goes_completely_and_deploys_again(cdk, local_cloud):
    cdk("deploy", "--all", "--require-approval", "never")
    stacks = {name for name, _ in statuses(local_cloud)}
    assert "MmeStorage" in stacks
    assert statuses(local_cloud) == {(name, "CREATE_COMPLETE") for name in stacks}
    assert in_service(local_cloud)
    assert "Number of stacks with differences: 0" in cdk("diff", "--fail")
    cdk("destroy", "--all", "--force")
    assert statuses(local_cloud) == {(name, "DELETE_COMPLETE") for name in stacks}
    assert local_cloud.status()["endpoints"] == []
    assert local_cloud.client("s3").list_buckets()["Buckets"] != [], "the bootstrap bucket stays"
    cdk("deploy", "--all", "--require-approval", "never")
    assert in_service(local_cloud)


@pytest.mark.e2e
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_deploys_unchanged_and_without_differences_and_goes(cdk, local_cloud, example):
    cdk("deploy", "--all", "--require-approval", "never", folder=example, context=())
    deployed = statuses(local_cloud)
    assert deployed
    assert {status for _, status in deployed} == {"CREATE_COMPLETE"}
    assert in_service(local_cloud)
    assert "Number of stacks with differences: 0" in cdk("diff", "--fail", folder=example, context=())
    check_answer(local_cloud)
    cdk("destroy", "--all", "--force", folder=example, context=())
    assert statuses(local_cloud) == {(name, "DELETE_COMPLETE") for name, _ in deployed}
    assert local_cloud.status()["endpoints"] == []


def check_answer(cloud):
    """The deployed endpoint answers as a model of its image does, or says why it cannot."""
    sagemaker = cloud.client("sagemaker")
    (model,) = sagemaker.list_models()["Models"]
    described = sagemaker.describe_model(ModelName=model["ModelName"])
    container = described.get("PrimaryContainer") or described["Containers"][0]
    if "sagemaker-xgboost" in container["Image"]:
        artifact, prediction = booster()
        assert invoke(cloud, container, artifact, b"3,4", "text/csv") == [pytest.approx(prediction, abs=1e-5)]
    elif "container-assets" in container["Image"]:
        scores = {"scores.json": b'{"good": 2, "bad": -1}'}
        assert invoke(cloud, container, scores, b"good good bad", "text/plain") == {"score": 3}
    else:
        with pytest.raises(ClientError, match=r"\(501\).*the local cloud has no model server for image .*triton"):
            invoke(cloud, container, {"m/config.pbtxt": b""}, b"1", "text/plain")


def booster():
    """A small model and what it says of 3 and 4."""
    import numpy
    import xgboost

    features = numpy.array([[a, b] for a in range(8) for b in range(8)], dtype=float)
    trained = xgboost.train({"max_depth": 3}, xgboost.DMatrix(features, features.sum(axis=1)), 10)
    return {"xgboost-model": bytes(trained.save_raw("ubj"))}, float(trained.predict(xgboost.DMatrix([[3.0, 4.0]]))[0])


def invoke(cloud, container, members, body, content_type):
    """Store an artifact where the endpoint looks for it and invoke it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    bucket, _, prefix = container["ModelDataUrl"].removeprefix("s3://").partition("/")
    cloud.client("s3").put_object(Bucket=bucket, Key=f"{prefix}acme/words/v1.tar.gz", Body=packed.getvalue())
    (endpoint,) = cloud.status()["endpoints"]
    answer = cloud.client("sagemaker-runtime").invoke_endpoint(
        EndpointName=endpoint["name"], TargetModel="acme/words/v1.tar.gz", Body=body, ContentType=content_type
    )
    return json.loads(answer["Body"].read())
