"""Names of models that a trace does not name, in the key grammar."""

from __future__ import annotations

import hashlib

import numpy as np

from mme_facts.grammar import ArtifactName, VersionId
from mme_fleet.traffic.trace import Integers

__all__ = ["target_models", "tenant_names"]


def tenant_names(count: int) -> list[str]:
    """``tenant-0000`` and so on, as wide as the greatest number."""
    width = max(4, len(str(count - 1)))
    return [f"tenant-{number:0{width}}" for number in range(count)]


def target_models(tenant: Integers) -> list[str]:
    """A TargetModel for every entry: the tenant's number, the model's number, and a version 1 with a digest made of both."""
    width = max(5, len(str(len(tenant) - 1)))
    names = tenant_names(int(np.max(tenant, initial=0)) + 1)
    result = []
    for number, owner in enumerate(tenant.tolist()):
        model = f"model-{number:0{width}}"
        digest = hashlib.sha256(f"{names[owner]}/{model}".encode()).hexdigest()
        result.append(ArtifactName(names[owner], model, VersionId(1, digest[:12])).target_model)
    return result
