"""What the tests of the suite share: folders of simulated models, and servers of the contract in this process."""

import asyncio
import json

import pytest

from mme_local.conformance import Subject, check_container_async
from mme_local.dataplane.simulated_server import Connection, Container, Script


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A valid, a broken and a large model."""
    root = tmp_path_factory.mktemp("models")
    for name, script in (("valid", {"bytes": 10, "answer": "[1]"}), ("broken", {"load_status": 500}), ("large", {"bytes": 1000})):
        (root / name).mkdir()
        (root / name / "simulated.json").write_text(json.dumps(script))
    return root


@pytest.fixture(scope="session")
def subject(folders):
    """Everything that the suite may be told, for an address."""

    def make(url, **values):
        given = {
            "models": [str(folders / "valid")],
            "broken": str(folders / "broken"),
            "too_large": str(folders / "large"),
            "fill": 20,
            "payload": b"1,2",
            "content_type": "text/csv",
            "timeout_seconds": 20,
        }
        return Subject(url, **{**given, **values})

    return make


@pytest.fixture
def check(container, subject):
    """Runs the suite against a container that is served on the same event loop."""

    def run(held=None, connection=Connection, *, told=subject, server=None, only=(), progress=None, **values):
        async def check_it():
            connections, served_container = set(), held or container()

            async def serve(reader, writer):
                connections.add(asyncio.current_task())
                await connection(served_container).serve(reader, writer)

            served = await asyncio.start_server(serve, "127.0.0.1", 0)
            url = f"http://127.0.0.1:{served.sockets[0].getsockname()[1]}"
            try:
                return await check_container_async(told(url, **values), server=server, only=only, progress=progress)
            finally:
                served.close()
                await asyncio.gather(*connections)

        return asyncio.run(check_it())

    return run


@pytest.fixture(scope="session")
def container():
    """A container of 60 bytes, of any class."""
    return lambda kind=Container: kind(Script.read({"memory_bytes": 60}))
