"""The data plane of the local cloud: one `mme_fleet.Fleet` a variant or component, with a real model server for every instance.

What is not modelled:

- The whole platform is one process: an instance has no CPU, memory or network of its own. Its memory budget is
  bookkeeping (unpacked size and an overhead a model), its server could take more.
- Images are not run: a handler that behaves like the image's stands in, with the packages of this environment; where there is
  none, a server that refuses every load.
- Downloads take the time of the emulator's S3 on this machine, not of a region.
- Components do not share an instance's processors, and do not fight for its memory: each copy has the memory it reserves.
- Instances do not differ by type or availability zone, and AWS's router is known only as far as it is documented.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mme_facts.lazy import attach

if TYPE_CHECKING:
    from mme_local.dataplane.interface import (
        ArtifactDenied,
        ArtifactMissing,
        ArtifactSource,
        DataPlaneError,
        DataPlaneSettings,
        FleetSpec,
        InvokeReply,
        InvokeRequest,
        InvokeStream,
        StartFailed,
        StepObserver,
        StreamFailed,
        UnknownFleet,
    )
    from mme_local.dataplane.plane import DataPlane

__all__ = [
    "ArtifactDenied",
    "ArtifactMissing",
    "ArtifactSource",
    "DataPlane",
    "DataPlaneError",
    "DataPlaneSettings",
    "FleetSpec",
    "InvokeReply",
    "InvokeRequest",
    "InvokeStream",
    "StartFailed",
    "StepObserver",
    "StreamFailed",
    "UnknownFleet",
]

__getattr__, __dir__ = attach(__name__, {name: "plane" if name == "DataPlane" else "interface" for name in __all__})
