"""The gateway process: ``python -m mme_local.gateway``, started by `mme_local.cloud.LocalCloud` only.

It reads its orders as one JSON line from standard input and ends when that pipe closes: when its parent is gone, however it
went, nothing stays behind. When it is killed itself, its watchdog (`mme_local.watchdog`) cleans up.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mme_local.credentials import Credentials
from mme_local.folders import forget_run
from mme_local.settings import LocalSettings
from mme_local.watchdog import Watchdog

__all__ = ["Orders", "main"]

logger = logging.getLogger(__name__)

_CHILDREN_SECONDS = 3.0
_PARENT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Orders:
    """What the parent tells the gateway.

    Attributes:
        socket: file descriptor of the listening socket.
        lock: file descriptor of the folder's lock, which goes with this process.
        port: its port.
        directory: the cloud's folder.
        run: a short-lived folder of the gateway and its children, with a short path because sockets lie in it.
        ephemeral: whether the whole folder goes with the process.
        admin: keys of the administrator.
        settings: the cloud's settings.
    """

    socket: int
    lock: int
    port: int
    directory: Path
    run: Path
    ephemeral: bool
    admin: Credentials
    settings: LocalSettings

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(
            {
                "socket": self.socket,
                "lock": self.lock,
                "port": self.port,
                "directory": str(self.directory),
                "run": str(self.run),
                "ephemeral": self.ephemeral,
                "admin": [self.admin.access_key_id, self.admin.secret_access_key],
                "settings": self.settings.to_json(),
            }
        )

    @classmethod
    def from_json(cls, line: str) -> Orders:
        """Read what `to_json` wrote."""
        document = json.loads(line)
        return cls(
            document["socket"],
            document["lock"],
            document["port"],
            Path(document["directory"]),
            Path(document["run"]),
            document["ephemeral"],
            Credentials(*document["admin"]),
            LocalSettings.from_json(document["settings"]),
        )


def main() -> None:
    """Serve until told to stop or left alone, then leave no process and no folder behind."""
    orders = Orders.from_json(sys.stdin.readline())
    logging.basicConfig(level=orders.settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for descriptor in (orders.socket, orders.lock):
        os.set_inheritable(descriptor, False)  # uvloop closes no descriptors in its children
    _watchdog = Watchdog(orders.run, orders.directory, ephemeral=orders.ephemeral)
    try:
        _run(orders)
    except BaseException:
        logger.exception("the gateway failed")
        raise
    finally:
        ended = _end_children()
        forget_run(orders.directory)
        if orders.ephemeral:
            shutil.rmtree(orders.directory, ignore_errors=True)
        sys.stdout.flush()
        sys.stderr.flush()
        if not ended:
            os.killpg(0, signal.SIGKILL)
    # Threads of the emulator that wait for something (a custom resource) must not hold the process.
    os._exit(0)


def _run(orders: Orders) -> None:
    from mme_local.http_server import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(orders))


async def _serve(orders: Orders) -> None:
    from mme_local import patches

    patches.apply()

    import ministack.app

    from mme_local.emulator import create_admin, reset_state
    from mme_local.http_server import serve
    from mme_local.images import ImageStore, images_folder
    from mme_local.services import Services

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _watch_parent(lambda: loop.call_soon_threadsafe(stop.set))

    async def reset_emulator() -> None:
        await asyncio.to_thread(reset_state)
        create_admin(orders.admin)

    services = Services(
        orders.run, ImageStore(images_folder(orders.directory)), orders.settings, f"http://127.0.0.1:{orders.port}", reset_emulator, loop
    )
    ending = loop.create_task(services.end_streams_at(stop), name="end streams")
    create_admin(orders.admin)
    try:
        await serve(services.application(ministack.app.app), socket.socket(fileno=orders.socket), stop)
    finally:
        ending.cancel()
        await services.close()


def _watch_parent(gone: Callable[[], object]) -> None:
    """Call ``gone`` when the parent ends: the pipe closes, or, where a child of the parent's holds it, another parent takes over."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            readable, _, _ = select.select([0], [], [], _PARENT_SECONDS)
            if readable and not os.read(0, 4096):
                break
        gone()

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _end_children() -> bool:
    """Ask what is left of this process group to end: Lambda workers and whatever they started. Whether they did."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.getpgrp() != os.getpid():
        return True
    os.killpg(0, signal.SIGTERM)
    deadline = time.monotonic() + _CHILDREN_SECONDS
    while time.monotonic() < deadline:
        try:
            if os.waitpid(0, os.WNOHANG) == (0, 0):  # of this process group, so the watchdog may stay
                time.sleep(0.01)
        except ChildProcessError:
            return True
    logger.warning("children did not end in %s s: killing them", _CHILDREN_SECONDS)
    return False


if __name__ == "__main__":
    main()
