"""Facts about SageMaker instance types that decide whether a configuration works."""

from __future__ import annotations

import re

__all__ = ["InstanceTypeError", "family", "has_local_storage", "is_burstable"]

_TYPE = re.compile(r"ml\.([a-z][a-z0-9-]*)\.([a-z0-9]+)")

_LOCAL_STORAGE = frozenset(
    {
        *("m5d", "c5d", "r5d", "m6gd", "c6gd", "r6gd", "r7gd"),
        *("g4dn", "g5", "g6", "g6e", "g7", "g7e"),
        *("p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300"),
        *("trn1", "trn1n", "trn2", "dl1"),
    }
)
"""Families with NVMe disks. The d families and g5: Amazon SageMaker AI, Host instance storage volumes. The others: EC2 instance types."""
_BURSTABLE = frozenset({"t2", "t3"})
"""No auto scaling (Amazon SageMaker AI, Configure model auto scaling with the console)."""


class InstanceTypeError(ValueError):
    """A text that is no SageMaker instance type."""


def family(instance_type: str) -> str:
    """The family of a type: ``m5`` of ``ml.m5.xlarge``; raises `InstanceTypeError`."""
    match = _TYPE.fullmatch(instance_type)
    if match is None:
        raise InstanceTypeError(f"instance type {instance_type!r} is not allowed: use ml.<family>.<size>, such as 'ml.m5.xlarge'")
    return match[1]


def has_local_storage(instance_type: str) -> bool:
    """Whether the type has NVMe disks: no EBS volume is attached, and a KMS key on the config makes CreateEndpointConfig fail."""
    return family(instance_type) in _LOCAL_STORAGE


def is_burstable(instance_type: str) -> bool:
    """Whether the type is burstable: it cannot be auto scaled."""
    return family(instance_type) in _BURSTABLE
