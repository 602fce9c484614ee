"""What admission can take within its time, and how long a first load takes: measured speeds, and what follows from them."""

from __future__ import annotations

from mme_facts.limits import INVOKE_TIMEOUT_SECONDS

__all__ = [
    "ARTIFACT_BYTES",
    "FINE_PARTS_SECONDS",
    "FIRST_LOAD_LIMIT_SECONDS",
    "INSPECTION_BYTES_PER_SECOND",
    "INSPECTION_LIMIT_SHARE",
    "INSPECTION_SHARE",
    "S3_READ_BYTES_PER_SECOND",
    "SAFETY",
    "UNPACKED_BYTES",
    "VCPU_MEMORY_MB",
    "admissible_bytes",
    "first_load_seconds",
    "load_takes_too_long",
]

UNPACKED_BYTES = 16 << 30
"""Greatest unpacked size of an artifact."""
INSPECTION_BYTES_PER_SECOND = 130_000_000
"""Packed bytes that one processor inspects in a second: measured with the artifact of ``make bench`` that packs 3 : 1; one that does not
pack is faster (1 GB/s)."""
FINE_PARTS_SECONDS = 25.0
"""What the greatest number of parts that are looked at one by one takes a processor, measured with pickles; more is refused."""
S3_READ_BYTES_PER_SECOND = 85_000_000
"""Of one connection to S3 (Amazon S3, Performance design patterns: 85-90 MB/s for a request)."""
VCPU_MEMORY_MB = 1769
"""At this memory a Lambda function has one vCPU, below a part of it (AWS Lambda: Configure Lambda function memory)."""
SAFETY = 2.0
"""Lambda's processors may be slower than the one that was measured on, and artifacts may pack better."""
INSPECTION_SHARE = 0.5
"""Of the time limit; the rest is for the copy, the first load and the writes."""
INSPECTION_LIMIT_SHARE = 0.75
"""Of the time limit: an inspection that takes longer is given up, and its artifact refused."""
_FINE_SECONDS_PER_BYTE = 2.5e-6
"""Of a packed byte that unpacks to three, each of them a part."""
FIRST_LOAD_LIMIT_SECONDS = INVOKE_TIMEOUT_SECONDS
"""A multi-model endpoint downloads and loads within the invocation that needs the model, and that must be answered in this time."""
_LOAD_CONSTANT_SECONDS = 0.3
_DOWNLOAD_BYTES_PER_SECOND = 200_000_000
_LOAD_BYTES_PER_SECOND = 500_000_000


def admissible_bytes(*, memory_mb: int, timeout_seconds: int) -> int:
    """Greatest artifact, packed bytes, that an admission function of this size inspects in its time; whole mebibytes.

    Reading and inspecting follow one another for each piece, so their times add up. One artifact is inspected by one processor, so more
    than one vCPU makes it no faster.

    Args:
        memory_mb: memory of the function in MB.
        timeout_seconds: its time limit.
    """
    vcpus = min(1.0, memory_mb / VCPU_MEMORY_MB)
    seconds_per_byte = 1 / (INSPECTION_BYTES_PER_SECOND * vcpus) + 1 / S3_READ_BYTES_PER_SECOND
    seconds = timeout_seconds * INSPECTION_SHARE / SAFETY
    fine_seconds, fine_seconds_per_byte = FINE_PARTS_SECONDS / vcpus, _FINE_SECONDS_PER_BYTE / vcpus
    # An artifact has at most so many parts, and a small one at most one for each byte.
    found = max((seconds - fine_seconds) / seconds_per_byte, seconds / (seconds_per_byte + fine_seconds_per_byte))
    return max(1 << 20, min(int(found) >> 20 << 20, UNPACKED_BYTES))


def first_load_seconds(*, packed_bytes: int, unpacked_bytes: int) -> float:
    """How long the first load of a model will take at least: download, unpacking and load, without waiting for other loads."""
    return _LOAD_CONSTANT_SECONDS + packed_bytes / _DOWNLOAD_BYTES_PER_SECOND + unpacked_bytes / _LOAD_BYTES_PER_SECOND


def load_takes_too_long(seconds: float) -> bool:
    """Whether a load of this length does not fit into an invocation of a multi-model endpoint."""
    return seconds > FIRST_LOAD_LIMIT_SECONDS


ARTIFACT_BYTES = admissible_bytes(memory_mb=VCPU_MEMORY_MB, timeout_seconds=900)
"""Greatest artifact, packed bytes, with the default settings of the admission function."""
