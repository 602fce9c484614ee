"""Updates of the running reference app by the real CDK CLI: in place, with the instances that scaling gave it, and back when they fail."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mme_local import InsufficientCapacity, LocalCloud, LocalSettings
from tests.e2e.support import PROJECT, wait_until

pytestmark = pytest.mark.e2e

STACKS = ("MmeStorage", "MmePlatform")
SCALED = 4
MODEL, CONFIG = "AWS::SageMaker::Model", "AWS::SageMaker::EndpointConfig"
CONTAINER, VARIANT = "PrimaryContainer", "ProductionVariants.0"

OVERRIDES = """
import json
import pathlib

for kind, path, value in json.loads(pathlib.Path("changes.json").read_text()):
    for node in app.node.find_all():
        if isinstance(node, cdk.CfnResource) and node.cfn_resource_type == kind:
            node.add_property_override(path, value)
app.synth()
"""


class Deployed:
    """The reference app in a cloud of its own, and what is changed of it."""

    def __init__(self, cloud: LocalCloud, project: Path, scratch: Path) -> None:
        self.cloud, self.project, self.scratch = cloud, project, scratch
        self.sagemaker = cloud.client("sagemaker")
        self.changes: list[tuple[str, str, object]] = []
        self.write()

    def write(self) -> None:
        (self.project / "changes.json").write_text(json.dumps(self.changes))

    def cdk(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(self.scratch), **self.cloud.environment(), "CDK_VALIDATION": "false", "PYTHONPATH": str(PROJECT)}
        command = ["/usr/bin/env", "cdk", *arguments, "--app", f"{sys.executable} app.py", "--output", str(self.scratch / "cdk.out")]
        return subprocess.run(command, cwd=self.project, env=environment, capture_output=True, text=True, check=False)

    def deploy(self) -> subprocess.CompletedProcess[str]:
        return self.cdk("deploy", "--all", "--require-approval", "never", "-c", "environment=local")

    @property
    def name(self) -> str:
        (endpoint,) = self.sagemaker.list_endpoints()["Endpoints"]
        return endpoint["EndpointName"]

    def endpoint(self):
        return self.sagemaker.describe_endpoint(EndpointName=self.name)

    def container(self):
        return self.sagemaker.describe_model(ModelName=self.variant()["ModelName"])[CONTAINER]

    def config(self):
        return self.sagemaker.describe_endpoint_config(EndpointConfigName=self.endpoint()["EndpointConfigName"])

    def variant(self):
        (variant,) = self.config()["ProductionVariants"]
        return variant

    def counts(self):
        (variant,) = self.endpoint()["ProductionVariants"]
        return variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]

    def update(self, kind: str, path: str, value: object) -> None:
        """Change one thing; the endpoint must still be the one that it was, with the instances that it had."""
        before = self.endpoint()
        pids = self.pids()
        self.changes.append((kind, path, value))
        self.write()
        done = self.deploy()
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        after = self.endpoint()
        assert after["EndpointStatus"] == "InService"
        assert after["CreationTime"] == before["CreationTime"], "updated in place, not made anew"
        assert after["EndpointArn"] == before["EndpointArn"]
        assert after["EndpointConfigName"] != before["EndpointConfigName"]
        assert self.counts() == (SCALED, SCALED)
        assert len(self.pids()) == SCALED
        assert not self.pids() & pids, "the new fleet is a new one"

    def pids(self) -> set[int]:
        (endpoint,) = self.cloud.status()["endpoints"]
        return {instance["pid"] for instance in endpoint["instances"]}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the reference app that reads what is to be different of its resources."""
    copy = tmp_path_factory.mktemp("app")
    for name in ("app.py", "cdk.json"):
        shutil.copy(PROJECT / name, copy / name)
    shutil.copytree(PROJECT / "stacks", copy / "stacks", ignore=shutil.ignore_patterns("__pycache__"))
    app = copy / "app.py"
    text = app.read_text()
    assert text.endswith("app.synth()\n")
    app.write_text(text.removesuffix("app.synth()\n") + OVERRIDES)
    return copy


@pytest.fixture(scope="module")
def deployed(project, tmp_path_factory):
    with LocalCloud(settings=LocalSettings(faults=True)) as cloud:
        app = Deployed(cloud, project, tmp_path_factory.mktemp("cdk"))
        done = app.cdk("bootstrap", f"aws://{cloud.account}/{cloud.region}")
        assert done.returncode == 0, done.stderr[-4000:]
        done = app.deploy()
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        (variant,) = app.endpoint()["ProductionVariants"]
        change = {"VariantName": variant["VariantName"], "DesiredInstanceCount": SCALED}
        app.sagemaker.update_endpoint_weights_and_capacities(EndpointName=app.name, DesiredWeightsAndCapacities=[change])
        wait_until(lambda: app.endpoint()["EndpointStatus"] == "InService" and app.counts() == (SCALED, SCALED), what="the scale-out")
        yield app


@pytest.mark.parametrize(
    ("kind", "path", "value", "seen"),
    [
        (MODEL, f"{CONTAINER}.Image", None, lambda app, value: app.container()["Image"] == value),
        (MODEL, f"{CONTAINER}.Environment.TAG", "b", lambda app, value: app.container()["Environment"]["TAG"] == value),
        (CONFIG, f"{VARIANT}.InstanceType", "ml.m5.2xlarge", lambda app, value: app.variant()["InstanceType"] == value),
        (
            MODEL,
            f"{CONTAINER}.MultiModelConfig.ModelCacheSetting",
            "Disabled",
            lambda app, value: app.container()["MultiModelConfig"]["ModelCacheSetting"] == value,
        ),
        (CONFIG, "KmsKeyId", "alias/volumes", lambda app, value: app.config()["KmsKeyId"] == value),
    ],
    ids=["image", "environment", "instance type", "cache mode", "KMS key"],
)
def test_one_change_updates_the_endpoint_in_place_and_keeps_its_instances(deployed, kind, path, value, seen):
    if value is None:
        registry, _, tag = deployed.container()["Image"].rpartition(":")
        value = f"{registry}:{'1.5-1' if tag != '1.5-1' else '1.7-1'}"
    name = deployed.name
    deployed.update(kind, path, value)
    assert deployed.name == name
    assert seen(deployed, value)


def test_an_update_that_fails_goes_back_to_the_old_configuration_and_says_so(deployed):
    before, pids, models = deployed.endpoint(), deployed.pids(), deployed.sagemaker.list_models()["Models"]
    deployed.changes.append((MODEL, f"{CONTAINER}.Environment.TAG", "never"))
    deployed.write()
    fault = deployed.cloud.faults.put(InsufficientCapacity(endpoint=f"{deployed.name}*"))
    try:
        done = deployed.deploy()
    finally:
        deployed.cloud.faults.remove(fault.id)
    assert done.returncode != 0
    assert "InsufficientInstanceCapacity" in done.stdout + done.stderr
    after = deployed.endpoint()
    assert (after["EndpointStatus"], after["EndpointConfigName"]) == ("InService", before["EndpointConfigName"])
    assert "InsufficientInstanceCapacity" in after["FailureReason"]
    assert deployed.counts() == (SCALED, SCALED)
    assert deployed.pids() == pids, "the old fleet never stopped"
    assert deployed.container()["Environment"]["TAG"] == "b"
    (stack,) = deployed.cloud.client("cloudformation").describe_stacks(StackName=STACKS[1])["Stacks"]
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert deployed.sagemaker.list_models()["Models"] == models, "nothing of the attempt is left"

    deployed.changes.pop()
    deployed.write()
    deployed.update(MODEL, f"{CONTAINER}.Environment.TAG", "c")
    assert deployed.container()["Environment"]["TAG"] == "c"
    assert "FailureReason" not in deployed.endpoint(), "a good update leaves nothing of the failed one"
