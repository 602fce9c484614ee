"""The folder of a running cloud: temporary, with a short path, known from the cloud's own folder by a link; and who works in it."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["end_processes_in", "end_processes_of", "forget_run", "make_run"]

_LINK = "run"
_PREFIX = "mme-run-"


def make_run(directory: Path) -> Path:
    """Make the folder of a run and the link ``run`` to it in ``directory``; what a killed run left goes first, processes too.

    It is not below ``directory``, whose path may be too long for the sockets of model servers.
    """
    end_processes_in(directory)
    forget_run(directory)
    run = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    (run / "tmp").mkdir()
    (directory / _LINK).symlink_to(run)
    return run


def forget_run(directory: Path, run: Path | None = None) -> None:
    """Remove the folder of a run and its link.

    Args:
        directory: the cloud's folder.
        run: only if the link leads there; to whatever it leads by default.
    """
    link = directory / _LINK
    if run is not None:
        shutil.rmtree(run, ignore_errors=True)
    if not link.is_symlink() or (run is not None and link.readlink() != run):
        return
    run = link.readlink()
    # The link says what to delete: follow it only to a folder that we can have made.
    if run.name.startswith(_PREFIX):
        shutil.rmtree(run, ignore_errors=True)
    link.unlink(missing_ok=True)


def end_processes_in(directory: Path) -> None:
    """Kill the processes that work in the folder of a run, which a killed gateway left: `end_processes_of` what the link leads to."""
    link = directory / _LINK
    if link.is_symlink():
        end_processes_of(link.readlink())


def end_processes_of(run: Path) -> int:
    """Kill the processes that work in the folder of a run; returns how many there were.

    Model servers have process groups of their own, so their working folder is what tells whose they are. Works where there is
    ``/proc``; elsewhere only the gateway itself ends its servers.
    """
    killed = 0
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cwd").readlink().is_relative_to(run):
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
    return killed
