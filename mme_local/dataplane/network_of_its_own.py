"""Runs a server in a network namespace of its own and forwards one loopback port to it: for servers that listen on every address.

Started as a script, with the standard library alone: ``python network_of_its_own.py PORT INNER_PORT COMMAND...``. The namespace has nothing
but a loopback interface, so the server's port cannot be reached from other machines; this process, which took its own socket before it
entered the namespace, passes connections on. It ends with the server's status, or with `NO_NAMESPACE`.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["NO_NAMESPACE", "main"]

NO_NAMESPACE = 86
"""Exit status when no namespace can be made."""

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40
_CHUNK_BYTES = 256 * 1024


def _enter_namespace() -> None:
    """Raises `OSError` where that is not allowed: without privileges it takes user namespaces."""
    user, group = os.getuid(), os.getgid()
    library = ctypes.CDLL(None, use_errno=True)
    flags = _CLONE_NEWNET if user == 0 else _CLONE_NEWUSER | _CLONE_NEWNET
    if library.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny", "ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", "ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", "ascii")
    with socket.socket() as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh", b"lo", _IFF_UP | _IFF_RUNNING))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while part := await reader.read(_CHUNK_BYTES):
            writer.write(part)
            await writer.drain()
    writer.close()


async def _forward(listening: socket.socket, inner_port: int, command: list[str]) -> int:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", inner_port)
        except OSError:  # the server does not listen yet
            writer.close()
            return
        await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))

    server = await asyncio.start_server(connect, sock=listening)
    process = await asyncio.create_subprocess_exec(*command)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, process.terminate)
    try:
        return await process.wait()
    finally:
        server.close()


def main(port: int, inner_port: int, command: list[str]) -> int:
    """Serve until the server ends; its status."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        try:
            _enter_namespace()
        except OSError as error:
            print(f"no network namespace can be made here: {error}", file=sys.stderr)  # noqa: T201 - the console of the instance
            return NO_NAMESPACE
        return asyncio.run(_forward(listening, inner_port, command))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
