"""A multi-model endpoint whose models are scripts (`tests/local/dataplane/scripted_handler.py`), served by the real model server."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from mme_local import LocalSettings
from mme_local.dataplane import DataPlaneSettings
from tests.local.conftest import Workbench, allow

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/scripted:1"
_HANDLER = Path(__file__).parent / "dataplane" / "scripted_handler.py"


def settings(**more: Any) -> LocalSettings:
    """Settings of a cloud that serves `IMAGE`."""
    return LocalSettings(data_plane=DataPlaneSettings(handlers={"scripted": f"{_HANDLER}:handle"}), **more)


def artifact(**script: Any) -> bytes:
    """A model that does what the script says."""
    packed, content = io.BytesIO(), json.dumps(script).encode()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("script.json")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def deploy(bench: Workbench, name: str, models: dict[str, bytes], *, instances: int = 1, instance_type: str = "ml.m5.xlarge") -> None:
    """Create the endpoint with a variant AllTraffic and wait until it is InService."""
    bucket = bench.bucket()
    for model, content in models.items():
        bench.client("s3").put_object(Bucket=bucket, Key=f"models/{model}", Body=content)
    role = bench.service_role("sagemaker.amazonaws.com", allow(["s3:GetObject", "s3:ListBucket"], "*"))
    sagemaker = bench.client("sagemaker")
    container = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": f"s3://{bucket}/models/"}
    sagemaker.create_model(ModelName=name, ExecutionRoleArn=role, PrimaryContainer=container)
    variant = {"VariantName": "AllTraffic", "ModelName": name, "InstanceType": instance_type, "InitialInstanceCount": instances}
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    bench.wait_for(lambda: sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"] == "InService", seconds=120)
