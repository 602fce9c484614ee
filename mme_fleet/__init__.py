"""The model of a multi-model fleet, without I/O, clock or randomness of its own.

`Fleet` says where models are and what happens next: events in, actions out. A driver executes the actions: with real
servers in real time, or in virtual time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mme_facts.lazy import attach

if TYPE_CHECKING:
    from mme_fleet.changes import FleetChange, InstanceSpec, LoseInstance, LoseZone, ScaleIn, ScaleOut, UpdateFleet
    from mme_fleet.costs import Costs, LoadCosts
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
    from mme_fleet.recording import Recorder, ReplayMismatchError, Step, StepObserver, replay
    from mme_fleet.results import RequestAnswer, SimulationResults
    from mme_fleet.routing import FleetView, InstanceView, LeastOutstandingRouter, OneHomeRouter, RandomRouter, Router, StickyRouter
    from mme_fleet.settings import FleetSettings
    from mme_fleet.simulator import SimulationPolicy, Simulator
    from mme_fleet.snapshot import FleetSnapshot, InstanceSnapshot, ModelSnapshot

__all__ = [
    "Action",
    "Costs",
    "Discard",
    "Download",
    "Downloaded",
    "Event",
    "Fleet",
    "FleetChange",
    "FleetSettings",
    "FleetSnapshot",
    "FleetView",
    "Forward",
    "HashRing",
    "InstanceDraining",
    "InstanceLost",
    "InstanceSnapshot",
    "InstanceSpec",
    "InstanceUp",
    "InstanceView",
    "LeastOutstandingRouter",
    "Load",
    "LoadCosts",
    "LoadFailed",
    "LoadFailure",
    "Loaded",
    "LoseInstance",
    "LoseZone",
    "ModelSnapshot",
    "OneHomeRouter",
    "RandomRouter",
    "Recorder",
    "Release",
    "ReplayMismatchError",
    "Replied",
    "Reply",
    "ReplyError",
    "Request",
    "RequestAnswer",
    "Router",
    "ScaleIn",
    "ScaleOut",
    "SimulationPolicy",
    "SimulationResults",
    "Simulator",
    "Step",
    "StepObserver",
    "StickyRouter",
    "Tick",
    "Unload",
    "Unloaded",
    "UpdateFleet",
    "ZoneLost",
    "replay",
]

_EXPORTS = {
    "Fleet": "fleet",
    "FleetSettings": "settings",
    **dict.fromkeys(("Recorder", "ReplayMismatchError", "Step", "StepObserver", "replay"), "recording"),
    "HashRing": "hashing",
    **dict.fromkeys(("FleetChange", "InstanceSpec", "LoseInstance", "LoseZone", "ScaleIn", "ScaleOut", "UpdateFleet"), "changes"),
    **dict.fromkeys(("Costs", "LoadCosts"), "costs"),
    **dict.fromkeys(("RequestAnswer", "SimulationResults"), "results"),
    **dict.fromkeys(("SimulationPolicy", "Simulator"), "simulator"),
    **dict.fromkeys(
        ("FleetView", "InstanceView", "LeastOutstandingRouter", "OneHomeRouter", "RandomRouter", "Router", "StickyRouter"), "routing"
    ),
    **dict.fromkeys(("FleetSnapshot", "InstanceSnapshot", "ModelSnapshot"), "snapshot"),
}
__getattr__, __dir__ = attach(__name__, {name: _EXPORTS.get(name, "events") for name in __all__})
