"""What the tests of the data plane share: artifacts in a folder, and an event loop that lives as long as its module."""

import asyncio
import io
import json
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest
import xgboost

from mme_local.dataplane import ArtifactDenied, ArtifactMissing, DataPlane, DataPlaneSettings, FleetSpec, InvokeRequest
from mme_local.faults import Faults

XGBOOST_IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"


class FolderSource:
    """An `ArtifactSource` over a folder; a closed gate makes every fetch wait."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.denied: set[str] = set()
        self.fetched: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()

    def put(self, key: str, content: bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def fetch(self, key: str, destination) -> int:
        self.fetched.append(key)
        self.reached.set()
        assert self.gate.wait(60)
        if key in self.denied:
            raise ArtifactDenied(key)
        try:
            return destination.write((self.folder / key).read_bytes())
        except FileNotFoundError:
            raise ArtifactMissing(key) from None


class Cloud:
    """A data plane, its loop, and what a caller does with them."""

    def __init__(self, folder: Path, settings: DataPlaneSettings) -> None:
        self.runner = asyncio.Runner()
        self.settings = settings
        self.folder = folder
        self.source = FolderSource(folder / "bucket")
        self.faults = Faults(lambda: self.plane.instances())  # noqa: PLW0108 - there is no plane yet
        self.plane = DataPlane(folder / "plane", settings, faults=self.faults)

    def run(self, coroutine):
        return self.runner.run(coroutine)

    def start(self, name: str, *, image: str = XGBOOST_IMAGE, instances: int = 1, **spec) -> None:
        self.run(self.plane.start_fleet(FleetSpec(name, "AllTraffic", instances, image, "bucket", "models/", **spec), self.source))

    async def invoke(self, name: str, model: str | None, body: bytes = b"", content_type: str | None = "text/csv", **request):
        return await self.plane.invoke(name, InvokeRequest(body, model, content_type, **request))

    def call(self, name: str, model: str | None, body: bytes = b"", content_type: str | None = "text/csv", **request):
        return self.run(self.invoke(name, model, body, content_type, **request))

    def status(self, name: str) -> dict:
        async def ask():
            return self.plane.status()

        return next(entry for entry in self.run(ask()) if entry["name"] == name)

    def until(self, condition) -> None:
        """Let the loop run until the condition holds."""

        async def wait():
            async with asyncio.timeout(60):
                while not condition():
                    await asyncio.sleep(0.01)

        self.run(wait())

    def close(self) -> None:
        self.source.gate.set()
        self.run(self.plane.close())
        self.runner.close()


def pack(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture(scope="session")
def archive():
    return pack


@pytest.fixture(scope="session")
def artifact():
    """Packs a booster as a SageMaker artifact."""
    return lambda booster, model_format="json": pack({"xgboost-model": bytes(booster.save_raw(model_format))})


@pytest.fixture(scope="session")
def scripted():
    """Packs a script for `scripted_handler`."""
    return lambda **script: pack({"script.json": json.dumps(script).encode()})


@pytest.fixture(scope="session")
def rows():
    return np.random.default_rng(7).normal(size=(40, 4)).astype(np.float32)


@pytest.fixture(scope="session")
def booster(rows):
    """Trains a tiny model of an objective."""

    def train(objective: str = "binary:logistic", seed: int = 0, **parameters):
        labels = np.random.default_rng(seed).integers(0, 3 if "multi" in objective else 2, len(rows))
        return xgboost.train(
            {"objective": objective, "max_depth": 3, "nthread": 1, "seed": seed, **parameters},
            xgboost.DMatrix(rows, labels),
            num_boost_round=5,
        )

    return train


@pytest.fixture(scope="module")
def make_cloud(tmp_path_factory):
    """Makes data planes that are closed, and checked to be gone, when the module is done."""
    clouds = []

    def make(**settings) -> Cloud:
        scripted_handler = f"{Path(__file__).with_name('scripted_handler.py')}:handle"
        cloud = Cloud(tmp_path_factory.mktemp("cloud"), DataPlaneSettings(handlers={"scripted": scripted_handler}, **settings))
        clouds.append(cloud)
        return cloud

    yield make
    for cloud in clouds:
        cloud.close()
