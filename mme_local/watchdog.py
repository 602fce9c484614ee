"""Outlives a gateway, and ends what it left: model servers, Lambda workers and the folder of the run.

``python watchdog.py RUN DIRECTORY EPHEMERAL``, a process and a session of its own, that waits until its standard input closes: the
gateway has ended, however. One that was killed, alone or with its parent, leaves everything; one that ends in order leaves at most
what a thread of the emulator wrote while it went. It uses the standard library alone and keeps its working folder out of the run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["Watchdog"]

_ROUNDS, _ROUND_SECONDS = 200, 0.05


class Watchdog:
    """The watchdog of this process, which holds its pipe to the last.

    Args:
        run: folder of the run, in which everything works that shall end.
        directory: the cloud's folder, which holds a link to the run.
        ephemeral: whether ``directory`` goes, too.
    """

    def __init__(self, run: Path, directory: Path, *, ephemeral: bool) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mme_local.watchdog", str(run), str(directory), str(int(ephemeral))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )


def main(run: Path, directory: Path, *, ephemeral: bool) -> None:
    """Wait for the gateway's end and clean up after it."""
    from mme_local.folders import end_processes_of, forget_run

    os.read(0, 1)  # nobody writes
    for _ in range(_ROUNDS):  # a server that was about to start a worker may have done so
        if not end_processes_of(run):
            break
        time.sleep(_ROUND_SECONDS)
    forget_run(directory, run)
    if ephemeral:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), ephemeral=sys.argv[3] == "1")
