"""Triton serves in the place of its image, keeps the container contract, and listens on nothing but loopback."""

import asyncio
import io
import json
import sys
import tarfile
import tempfile
from pathlib import Path

import psutil
import pytest

from mme_local.conformance import DIFFERENCES, Outcome, Subject, check_container_async
from mme_local.dataplane import DataPlane, DataPlaneSettings, FleetSpec, InvokeRequest
from mme_local.dataplane.server import ModelServer
from mme_local.dataplane.triton import TritonServer
from tests.e2e.foreign import environment

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.version_info >= (3, 13), reason="numpy below 2 has no wheels for this Python"),
]

IMAGE = "007439368137.dkr.ecr.us-east-2.amazonaws.com/sagemaker-tritonserver:24.09-py3"
CONFIGURATION = """
name: "twice"
backend: "python"
max_batch_size: 0
input [{ name: "x", data_type: TYPE_FP32, dims: [-1] }]
output [{ name: "y", data_type: TYPE_FP32, dims: [-1] }]
instance_group [{ kind: KIND_CPU, count: 1 }]
"""
MODEL = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        INITIALIZE

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor("y", pb_utils.get_input_tensor_by_name(request, "x").as_numpy() * 2)])
            for request in requests
        ]
"""
PAYLOAD = json.dumps({"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1.5, 2.5]}]}).encode()


def files(initialize="pass"):
    return {"twice/config.pbtxt": CONFIGURATION, "twice/1/model.py": MODEL.replace("INITIALIZE", initialize)}


@pytest.fixture(scope="module")
def python():
    return str(environment("triton") / "bin" / "python")


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="mme-") as folder:
        yield Path(folder)


def test_it_keeps_the_contract_but_for_the_table(python, folder):
    for name, initialize in (
        *((f"valid{number}", "pass") for number in range(4)),
        ("broken", 'raise ValueError("broken")'),
        ("large", 'raise MemoryError("CUDA out of memory")'),
    ):
        for path, content in files(initialize).items():
            target = folder / "models" / name / path
            target.parent.mkdir(parents=True)
            target.write_text(content)

    async def run():
        place = folder / "instance"
        place.mkdir()
        server = ModelServer(place, TritonServer(python), DataPlaneSettings(), {})
        await server.start()
        try:
            subject = Subject(
                server.address,
                models=[str(folder / "models" / f"valid{number}") for number in range(4)],
                broken=str(folder / "models" / "broken"),
                too_large=str(folder / "models" / "large"),
                payload=PAYLOAD,
                content_type="application/json",
                ping_seconds=30,
                unload_seconds=30,
            )
            return await check_container_async(subject, server="triton")
        finally:
            await server.kill()

    report = asyncio.run(run())
    assert [(result.rule.id, result.detail) for result in report.broken] == []
    allowed = {result.rule.id for result in report.results if result.outcome is Outcome.ALLOWED}
    assert allowed == {difference.rule for difference in DIFFERENCES if difference.server == "triton" and not difference.harmful}


class Artifacts:
    def fetch(self, key, destination):
        with tarfile.open(fileobj=destination, mode="w:gz") as tar:
            for name, content in files().items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content.encode()))
        return destination.tell()


@pytest.mark.parametrize("single", [False, True])
def test_its_image_is_served_by_it(python, folder, single):
    async def run():
        plane = DataPlane(folder, DataPlaneSettings(triton_python=python))
        spec = FleetSpec("triton", "v", 1, IMAGE, "bucket", "models/", model_key="models/m.tar.gz" if single else None)
        try:
            await plane.start_fleet(spec, Artifacts())
            pids = [process.pid for process in psutil.Process(plane.status()[0]["instances"][0]["pid"]).children(recursive=True)]
            seen = [entry for entry in psutil.net_connections("tcp") if entry.status == psutil.CONN_LISTEN and entry.pid in pids]
            reply = await plane.invoke("triton", InvokeRequest(PAYLOAD, None if single else "m.tar.gz", "application/json"))
            return reply, seen
        finally:
            await plane.close()

    reply, seen = asyncio.run(run())
    assert reply.status == 200, reply.message
    assert json.loads(reply.body)["outputs"][0]["data"] == [3, 5]
    assert seen == [], "its sockets are in another namespace"
