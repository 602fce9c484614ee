"""The model of a multi-model fleet, without I/O, clock or randomness of its own.

`Fleet` says where models are and what happens next: events in, actions out. A driver executes the actions: with real
servers in real time, or in virtual time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mme_facts.lazy import attach

if TYPE_CHECKING:
    from mme_fleet.events import (
        Action,
        Discard,
        Download,
        Downloaded,
        Event,
        Forward,
        InstanceDraining,
        InstanceLost,
        InstanceUp,
        Load,
        Loaded,
        LoadFailed,
        LoadFailure,
        Release,
        Replied,
        Reply,
        ReplyError,
        Request,
        Tick,
        Unload,
        Unloaded,
        ZoneLost,
    )
    from mme_fleet.fleet import Fleet
    from mme_fleet.hashing import HashRing
    from mme_fleet.recording import Recorder, ReplayMismatchError, Step, replay
    from mme_fleet.routing import FleetView, InstanceView, LeastOutstandingRouter, OneHomeRouter, RandomRouter, Router, StickyRouter
    from mme_fleet.settings import FleetSettings
    from mme_fleet.snapshot import FleetSnapshot, InstanceSnapshot, ModelSnapshot

__all__ = [
    "Action",
    "Discard",
    "Download",
    "Downloaded",
    "Event",
    "Fleet",
    "FleetSettings",
    "FleetSnapshot",
    "FleetView",
    "Forward",
    "HashRing",
    "InstanceDraining",
    "InstanceLost",
    "InstanceSnapshot",
    "InstanceUp",
    "InstanceView",
    "LeastOutstandingRouter",
    "Load",
    "LoadFailed",
    "LoadFailure",
    "Loaded",
    "ModelSnapshot",
    "OneHomeRouter",
    "RandomRouter",
    "Recorder",
    "Release",
    "Replied",
    "ReplayMismatchError",
    "Reply",
    "ReplyError",
    "Request",
    "Router",
    "Step",
    "StickyRouter",
    "Tick",
    "Unload",
    "Unloaded",
    "ZoneLost",
    "replay",
]

_EXPORTS = {
    "Fleet": "fleet",
    "FleetSettings": "settings",
    **dict.fromkeys(("Recorder", "ReplayMismatchError", "Step", "replay"), "recording"),
    "HashRing": "hashing",
    **dict.fromkeys(
        ("FleetView", "InstanceView", "LeastOutstandingRouter", "OneHomeRouter", "RandomRouter", "Router", "StickyRouter"), "routing"
    ),
    **dict.fromkeys(("FleetSnapshot", "InstanceSnapshot", "ModelSnapshot"), "snapshot"),
}
__getattr__, __dir__ = attach(__name__, {name: _EXPORTS.get(name, "events") for name in __all__})
