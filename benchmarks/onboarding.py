"""What inspecting an artifact costs beside the standard tools that only unpack, list and hash it."""

from __future__ import annotations

import hashlib
import json
import shlex
import statistics
import struct
import subprocess
import sys
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from benchmarks.figure import Figure

__all__ = ["inspection", "measure"]

_ARTIFACT_BYTES = 2 << 30
_PIECE_BYTES = 16 << 20
_RUNS = 3
_WALL_BOUND = 0.8
_PEAK_BOUND_MB = 96.0
_SYMBOLS = 6
"""So many different bytes at random pack 3 : 1."""
_INSPECT = """
import json, sys, time
from pathlib import Path
import boto3
boto3.client("s3", region_name="us-east-1")
from mme_tenancy.archive import inspect_artifact

def chunks():
    with open(sys.argv[1], "rb") as file:
        while chunk := file.read(1 << 20):
            yield chunk

started = time.perf_counter()
found = inspect_artifact(chunks(), sha256=sys.argv[2], size_bytes=int(sys.argv[3]), framework="xgboost")
seconds = time.perf_counter() - started
assert not found.findings, found.findings
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps({"seconds": seconds, "peak_kib": int(peak.split()[1]), "unpacked_bytes": found.unpacked_bytes}))
"""


def measure(tell: Callable[[str], object]) -> Iterator[Figure]:
    """The figures of the inspection."""
    yield from inspection(tell)


def inspection(tell: Callable[[str], object], artifact_bytes: int = _ARTIFACT_BYTES) -> Iterator[Figure]:
    """Wall ratio (the worse of an incompressible and a compressible artifact) and peak memory, of artifacts of a packed size."""
    ratios: dict[str, float] = {}
    speeds: dict[str, int] = {}
    peak_mb = 0.0
    with TemporaryDirectory() as folder:
        for name, symbols in (("incompressible", 256), ("compressible", _SYMBOLS)):
            artifact = Path(folder) / f"{name}.tar.gz"
            _make(artifact, artifact_bytes, symbols)
            digest = hashlib.sha256()
            with artifact.open("rb") as file:
                while chunk := file.read(1 << 20):
                    digest.update(chunk)
            runs, size = [], artifact.stat().st_size
            for run in range(_RUNS):
                plain = _plain(artifact)
                ours = _ours(artifact, digest.hexdigest())
                runs.append(ours["seconds"] / plain)
                speeds[name] = max(speeds.get(name, 0), round(size / ours["seconds"]))
                peak_mb = max(peak_mb, ours["peak_kib"] / 1024)
                tell(f"inspection of the {name} artifact, run {run + 1}: {ours['seconds']:.2f} s, the tools {plain:.2f} s")
            ratios[name] = statistics.median(runs)
            artifact.unlink()
    conditions = {
        "artifact_bytes": artifact_bytes,
        "runs": _RUNS,
        "interleaved": True,
        "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()},
        # What the greatest admissible artifact is derived from: mme_facts.admission.
        "packed_bytes_per_second": speeds,
    }
    tools = "gzip -dc | tar -t, and sha256sum, of the same file"
    yield Figure("admission_wall_ratio", max(ratios.values()), "ratio", _WALL_BOUND, tools, conditions)
    yield Figure("admission_peak_mb", peak_mb, "MB", _PEAK_BOUND_MB, "VmHWM of the process, boto3 loaded", conditions)


def _plain(artifact: Path) -> float:
    name = shlex.quote(str(artifact))
    started = time.perf_counter()
    subprocess.run(["/bin/sh", "-c", f"gzip -dc {name} | tar -t && sha256sum {name}"], check=True, capture_output=True)
    return time.perf_counter() - started


def _ours(artifact: Path, sha256: str) -> dict[str, float]:
    arguments = [sys.executable, "-c", _INSPECT, str(artifact), sha256, str(artifact.stat().st_size)]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _make(artifact: Path, artifact_bytes: int, symbols: int) -> None:
    """An XGBoost artifact whose booster is mostly one array of random bytes.

    The same packed piece comes again and again: pieces are far larger than the window of deflate, so that it cannot know.
    """
    piece = Random(7).randbytes(_PIECE_BYTES).translate(bytes(byte % symbols for byte in range(256)))  # noqa: S311 - data of a benchmark
    packed = _deflate(piece)
    count = max(1, artifact_bytes // len(packed))
    head = b"{" + _key("learner") + b"{" + _key("objective") + b"{}" + _key("learner_model_param") + b"{}"
    head += _key("gradient_booster") + b"{" + _key("model") + b"[$U#L" + struct.pack(">q", count * len(piece))
    tail = b"}}" + _key("version") + b"[$i#i\x03\x03\x02\x00" + b"}"
    member = tarfile.TarInfo("xgboost-model")
    member.size = len(head) + count * len(piece) + len(tail)
    start = member.tobuf(tarfile.GNU_FORMAT) + head
    end = tail + bytes(-member.size % 512) + bytes(1024)
    checksum = zlib.crc32(start)
    with artifact.open("wb") as file:
        file.write(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + _deflate(start))
        for _ in range(count):
            file.write(packed)
            checksum = zlib.crc32(piece, checksum)
        size = (len(start) + count * len(piece) + len(end)) & 0xFFFFFFFF
        file.write(_deflate(end, zlib.Z_FINISH) + struct.pack("<LL", zlib.crc32(end, checksum), size))


def _deflate(data: bytes, flush: int = zlib.Z_FULL_FLUSH) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush(flush)


def _key(name: str) -> bytes:
    return b"L" + struct.pack(">q", len(name)) + name.encode()
