"""A cloud with one multi-model endpoint, whose models say what they are told to."""

from __future__ import annotations

import io
import json
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from mme_local import LocalCloud, LocalSettings
from mme_local.dataplane import DataPlaneSettings
from tests.local.conftest import Workbench

MIB = 1024 * 1024
HANDLER = f"{Path(__file__).parents[1] / 'dataplane' / 'scripted_handler.py'}:handle"


def artifact(**script):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        content = json.dumps(script).encode()
        member = tarfile.TarInfo("script.json")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


class Shared:
    """The endpoint ``shared``: an instance holds two models."""

    def __init__(self, bench: Workbench) -> None:
        self.bench, self.cloud = bench, bench.cloud
        self.sagemaker, self.runtime = bench.client("sagemaker"), bench.client("sagemaker-runtime")
        self.bucket = bench.bucket()
        role = bench.service_role(
            "sagemaker.amazonaws.com",
            {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": f"arn:aws:s3:::{self.bucket}*"},
        )
        image = "000000000000.dkr.ecr.us-east-1.amazonaws.com/scripted:1"
        container = {"Image": image, "Mode": "MultiModel", "ModelDataUrl": f"s3://{self.bucket}/models/"}
        self.sagemaker.create_model(ModelName="m", ExecutionRoleArn=role, PrimaryContainer=container)
        self.configure("c1")
        for model in ("acme/a", "acme/b", "globex/c"):
            bench.client("s3").put_object(Bucket=self.bucket, Key=f"models/{model}.tar.gz", Body=artifact())
        self.sagemaker.create_endpoint(EndpointName="shared", EndpointConfigName="c1")
        self.settle()

    def configure(self, name: str) -> None:
        variant = {"VariantName": "AllTraffic", "ModelName": "m", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
        self.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])

    def settle(self) -> None:
        describe = self.sagemaker.describe_endpoint
        self.bench.wait_for(lambda: describe(EndpointName="shared")["EndpointStatus"] == "InService", 60)

    def invoke(self, model: str) -> None:
        self.runtime.invoke_endpoint(EndpointName="shared", TargetModel=f"{model}.tar.gz", Body=b"1")

    def status(self) -> dict:
        (endpoint,) = self.cloud.status()["endpoints"]
        return endpoint


@pytest.fixture(scope="module")
def shared():
    data_plane = DataPlaneSettings(handlers={"scripted": HANDLER}, instance_memory_bytes=220 * MIB, model_overhead_bytes=100 * MIB)
    settings = LocalSettings(data_plane=data_plane, faults=True, duplicate_event_share=0)
    with LocalCloud(settings=settings) as cloud, closing(Workbench(cloud)) as bench:
        yield Shared(bench)
