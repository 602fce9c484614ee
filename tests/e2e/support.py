"""What the end-to-end tests share."""

import io
import tarfile
import time
from pathlib import Path

from mme_cli.platform import local_status

PROJECT = Path(__file__).resolve().parents[2]


def wait_until(condition, *, seconds=60.0, what="the condition"):
    """Poll ``condition`` until it is true; its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} did not come within {seconds} s"
        time.sleep(0.05)
    return value


def targz(*members):
    """A ``.tar.gz`` of ``(TarInfo, content)`` members."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for info, content in members:
            info.size = len(content) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def only_endpoint(platform):
    """Status of the one endpoint."""
    (endpoint,) = local_status(platform.state)["endpoints"]
    return endpoint
