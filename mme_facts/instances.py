"""Catalogue of SageMaker's hosting instance types: facts that decide whether a configuration works and what fits into it.

The data is ``instances.csv``: every type that CreateEndpointConfig accepts (API reference: ProductionVariant, ``InstanceType``), with
what EC2 says of the same type (API reference: DescribeInstanceTypes; of ``p2``, ``p3`` and ``dl1``: Amazon EC2 instance types).
`LEFT_OUT` names what is missing and why.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal, cast

__all__ = [
    "Architecture",
    "InstanceType",
    "InstanceTypeError",
    "LEFT_OUT",
    "family",
    "has_local_storage",
    "instance",
    "instance_types",
    "is_burstable",
    "load_slots",
    "mme_gpu_types",
    "models_memory_bytes",
]

Architecture = Literal["x86_64", "arm64"]

LEFT_OUT: Mapping[str, str] = {
    "ml.p6e-gb200.36xlarge": "EC2 offers it only in UltraServers and DescribeInstanceTypes gives no figures for it."
}
"""Type that CreateEndpointConfig accepts -> why the catalogue does not have it."""

_TYPE = re.compile(r"ml\.([a-z][a-z0-9-]*)\.([a-z0-9]+)")
_BURSTABLE = re.compile(r"t[0-9]+[a-z]*")
_MODELS_SHARE = 0.8
"""Of an instance's memory, what models may take; the rest is the system's and the server's."""
_FEWEST_SLOTS = 2
_MIB = 1024 * 1024
_LOCAL_STORAGE_LEFT_OUT = frozenset({"p6e-gb200"})
"""Families outside the catalogue with NVMe disks (Amazon EC2 instance types)."""
_MME_GPU_TYPES = (
    *("ml.p2.xlarge", "ml.p3.2xlarge"),
    *("ml.g5.xlarge", "ml.g5.2xlarge", "ml.g5.4xlarge", "ml.g5.8xlarge", "ml.g5.16xlarge"),
    *("ml.g4dn.xlarge", "ml.g4dn.2xlarge", "ml.g4dn.4xlarge", "ml.g4dn.8xlarge", "ml.g4dn.16xlarge"),
)


class InstanceTypeError(ValueError):
    """A text that is no SageMaker instance type, or one that the catalogue does not know."""


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One hosting instance type.

    Attributes:
        name: such as ``ml.m5.xlarge``.
        vcpus: number of virtual CPUs.
        memory_mib: main memory, MiB.
        gpus: number of NVIDIA GPUs.
        gpu_memory_mib: memory of all its GPUs together, MiB, as DescribeInstanceTypes says (for ``g5`` and ``g6`` 22,888 a GPU, what the
            documentation rounds to 24 GiB).
        nvme_gb: local NVMe disks together, GB of 10^9 bytes; 0: EBS only.
        architecture: ``x86_64`` or ``arm64``.
        other_accelerators: number of AWS Inferentia or Trainium or Habana Gaudi chips.
        burstable: whether it cannot be auto scaled (Amazon SageMaker AI, Configure model auto scaling with the console).
    """

    name: str
    vcpus: int
    memory_mib: int
    gpus: int
    gpu_memory_mib: int
    nvme_gb: int
    architecture: Architecture
    other_accelerators: int
    burstable: bool


@cache
def _catalogue() -> Mapping[str, InstanceType]:
    text = resources.files("mme_facts").joinpath("instances.csv").read_text("utf-8")
    return {row["name"]: _parse(row) for row in csv.DictReader(text.splitlines())}


def _parse(row: Mapping[str, str]) -> InstanceType:
    return InstanceType(
        name=row["name"],
        vcpus=int(row["vcpus"]),
        memory_mib=int(row["memory_mib"]),
        gpus=int(row["gpus"]),
        gpu_memory_mib=int(row["gpu_memory_mib"]),
        nvme_gb=int(row["nvme_gb"]),
        architecture=cast(Architecture, row["architecture"]),
        other_accelerators=int(row["other_accelerators"]),
        burstable=is_burstable(row["name"]),
    )


@cache
def _local_storage_families() -> frozenset[str]:
    return _LOCAL_STORAGE_LEFT_OUT | {family(name) for name, found in _catalogue().items() if found.nvme_gb}


def instance_types() -> tuple[InstanceType, ...]:
    """The whole catalogue, by family and size."""
    return tuple(_catalogue().values())


def instance(name: str) -> InstanceType:
    """The facts of a type; raises `InstanceTypeError` if it is malformed or the catalogue does not know it."""
    found = _catalogue().get(name)
    if found is None:
        siblings = [other for other in _catalogue() if other.startswith(f"ml.{family(name)}.")]
        families = sorted({family(other) for other in _catalogue()})
        known = ", ".join(siblings) if siblings else f"types of the families {', '.join(families)}"
        raise InstanceTypeError(f"instance type {name!r} is not in the catalogue: it knows {known}")
    return found


def mme_gpu_types() -> tuple[str, ...]:
    """The GPU types that AWS documents for multi-model endpoints (Amazon SageMaker AI, Multi-model endpoints: supported instances)."""
    return _MME_GPU_TYPES


def models_memory_bytes(instance_type: str) -> int:
    """Memory of one instance that models may take, bytes: the GPUs' on a type that has some; raises `InstanceTypeError`."""
    known = instance(instance_type)
    return int((known.gpu_memory_mib if known.gpus else known.memory_mib) * _MODELS_SHARE) * _MIB


def load_slots(instance_type: str) -> int:
    """Loads at once that one instance is taken to do; raises `InstanceTypeError`.

    AWS publishes no number. Unpacking and loading keep about one processor busy, so it is one a vCPU, at least two: while one model is
    downloaded, another is loaded.
    """
    return max(_FEWEST_SLOTS, instance(instance_type).vcpus)


def family(instance_type: str) -> str:
    """The family of a type: ``m5`` of ``ml.m5.xlarge``; raises `InstanceTypeError`."""
    match = _TYPE.fullmatch(instance_type)
    if match is None:
        raise InstanceTypeError(f"instance type {instance_type!r} is not allowed: use ml.<family>.<size>, such as 'ml.m5.xlarge'")
    return match[1]


def has_local_storage(instance_type: str) -> bool:
    """Whether the type has NVMe disks: no EBS volume is attached, and a KMS key on the config makes CreateEndpointConfig fail.

    Decided by the family, so that a new size of a known one is right (Amazon SageMaker AI, Host instance storage volumes); raises
    `InstanceTypeError` for a malformed type.
    """
    return family(instance_type) in _local_storage_families()


def is_burstable(instance_type: str) -> bool:
    """Whether the type is burstable: it cannot be auto scaled; raises `InstanceTypeError` for a malformed type."""
    return _BURSTABLE.fullmatch(family(instance_type)) is not None
