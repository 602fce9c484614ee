"""Our servers keep the contract, but for the differences in the table."""

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mme_local.conformance import DIFFERENCES, Outcome, Subject, check_container_async
from mme_local.dataplane import DataPlaneSettings
from mme_local.dataplane.mms import MultiModelServer
from mme_local.dataplane.server import ModelServer
from mme_local.dataplane.simulated import SimulatedServer

SCRIPTED = MultiModelServer(f"{Path(__file__).parent.parent / 'local' / 'dataplane' / 'scripted_handler.py'}:handle")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models that both servers understand: each has its own script file."""
    root = tmp_path_factory.mktemp("models")
    for name, scripted, simulated in (
        ("valid", {}, {"bytes": 10}),
        ("broken", {"load": "raise"}, {"load_status": 500}),
        ("large", {"load": "out of memory"}, {"load_status": 507}),
    ):
        (root / name).mkdir()
        (root / name / "script.json").write_text(json.dumps(scripted))
        (root / name / "simulated.json").write_text(json.dumps(simulated))
    return root


@pytest.mark.parametrize(("name", "kind", "fill"), [("mms", SCRIPTED, 0), ("simulated", SimulatedServer({"memory_bytes": 60}), 20)])
def test_a_server_breaks_only_what_the_table_says(name, kind, fill, folders):
    async def run(folder):
        server = ModelServer(folder, kind, DataPlaneSettings(), {})
        await server.start()
        try:
            subject = Subject(
                server.address,
                models=[str(folders / "valid")],
                broken=str(folders / "broken"),
                too_large=str(folders / "large"),
                fill=fill,
                payload=b"1,2",
                content_type="text/csv",
                ping_seconds=30,  # other tests may need the processors
            )
            return await check_container_async(subject, server=name)
        finally:
            await server.kill()

    with TemporaryDirectory(prefix="mme-") as folder:  # short: the server's sockets are in it
        report = asyncio.run(run(Path(folder)))
    assert [(result.rule.id, result.detail) for result in report.broken] == []
    allowed = {result.rule.id for result in report.results if result.outcome is Outcome.ALLOWED}
    assert allowed == {difference.rule for difference in DIFFERENCES if difference.server == name and not difference.harmful}
    unchecked = {result.rule.id for result in report.results if result.outcome is Outcome.NOT_CHECKED}
    assert unchecked == (set() if fill else {"load.full", "load.full-recovers"})
