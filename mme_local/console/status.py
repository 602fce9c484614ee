"""The document of ``GET /_mme/status``: what a local cloud holds and does at this moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mme_local.autoscaling.activities import Activities
from mme_local.autoscaling.models import AutoScaling
from mme_local.clock import CloudClock
from mme_local.cloudwatch.alarms import Alarms
from mme_local.console.activity import Activity
from mme_local.console.feed import Feed
from mme_local.console.sources import activity_document
from mme_local.faults import Faults
from mme_local.sagemaker.models import SageMaker
from mme_local.sagemaker.resources import Endpoint, InferenceComponent, Variant

if TYPE_CHECKING:
    from mme_local.dataplane import DataPlane

__all__ = ["Status"]

_ACTIVITIES = 20
_TENANTS = 200
"""Tenants of an endpoint in the document, those with the most requests."""


class Status:
    """Makes the document.

    Args:
        sagemaker: endpoints and components.
        data_plane: the data plane, if there is one yet.
        autoscaling: scalable targets.
        activities: what was scaled.
        alarms: the alarms.
        activity: the counters.
        feed: what happened last.
        clock: the cloud's clock.
        faults: the faults; ``None`` where fault control is off.
    """

    def __init__(
        self,
        *,
        sagemaker: SageMaker,
        data_plane: Callable[[], DataPlane | None],
        autoscaling: AutoScaling,
        activities: Activities,
        alarms: Alarms,
        activity: Activity,
        feed: Feed,
        clock: CloudClock,
        faults: Faults | None,
    ) -> None:
        self._sagemaker, self._data_plane, self._autoscaling, self._alarms = sagemaker, data_plane, autoscaling, alarms
        self._activities, self._activity, self._feed, self._clock, self._faults = activities, activity, feed, clock, faults

    def document(self, *, models: bool = True) -> dict[str, Any]:
        """The document.

        Args:
            models: with every resident model; without, only how many they are.
        """
        self._activity.forget(self._sagemaker.endpoints)
        plane = self._data_plane()
        fleets: dict[str, list[dict[str, Any]]] = {}
        for fleet in plane.status() if plane is not None else ():
            fleets.setdefault(fleet["name"].partition(".")[0], []).append(fleet)
        return {
            "now": time.time(),
            "clock": {"now": self._clock.time(), "scale": self._clock.scale},
            "sequence": self._feed.last,
            "endpoints": [
                self._endpoint(endpoint, fleets.get(endpoint.name, []), models=models) for endpoint in self._sagemaker.endpoints.values()
            ],
            "scaling": self._scaling(),
            "alarms": self._alarms_not_ok(),
            "seconds": [second.document() for second in self._activity.seconds()],
            "faults": None if self._faults is None else [entry.document() for entry in self._faults.list()],
        }

    def _endpoint(self, endpoint: Endpoint, fleets: list[dict[str, Any]], *, models: bool) -> dict[str, Any]:
        counters = self._activity.counters(endpoint.name)
        components = [one for one in self._sagemaker.components.by_name.values() if one.endpoint_name == endpoint.name]
        current = endpoint.fleets + [component.run.name for component in components if component.run is not None]
        tenants = sorted(counters.tenants.items(), key=lambda item: -item[1].requests)
        return {
            "name": endpoint.name,
            "status": endpoint.status,
            "failure_reason": endpoint.failure_reason,
            "config": endpoint.config_name,
            "created": endpoint.created.timestamp(),
            "modified": endpoint.modified.timestamp(),
            **counters.document(),
            **({"loads_by_model": dict(counters.loads_by_model)} if models else {}),
            "tenants": [{"tenant": name, **tenant.document()} for name, tenant in tenants[:_TENANTS]],
            "tenant_count": len(tenants),
            "other_tenants": counters.others.document(),
            "variants": [_variant(variant) for variant in endpoint.variants],
            "components": [_component(component) for component in components],
            "instances": [_instance(fleet, instance, current, models=models) for fleet in fleets for instance in fleet["instances"]],
        }

    def _scaling(self) -> dict[str, Any]:
        return {
            "targets": [
                {
                    "resource": target.key[1],
                    "dimension": target.key[2],
                    "min": target.min_capacity,
                    "max": target.max_capacity,
                    "suspended": sorted(name for name, suspended in target.suspended.items() if suspended),
                }
                for target in self._autoscaling.targets.values()
            ],
            "activities": [activity_document(activity) for activity in self._activities.of("sagemaker")[:_ACTIVITIES]],
        }

    def _alarms_not_ok(self) -> list[dict[str, Any]]:
        return [
            {"name": alarm.name, "state": alarm.state, "reason": alarm.reason, "since": alarm.transitioned}
            for _, alarm in sorted(self._alarms.by_name.items())
            if alarm.state != "OK"
        ]


def _variant(variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name,
        "instance_type": variant.given.get("InstanceType"),
        "current_count": variant.current_count,
        "desired_count": variant.desired_count,
        "current_weight": variant.current_weight,
        "desired_weight": variant.desired_weight,
        "doing": None if variant.doing is None else variant.doing.status,
    }


def _component(component: InferenceComponent) -> dict[str, Any]:
    return {"name": component.name, "variant": component.variant_name, "status": component.status, "copies": component.current}


def _instance(fleet: dict[str, Any], instance: dict[str, Any], current: list[str], *, models: bool) -> dict[str, Any]:
    """An instance of a fleet; ``current`` is false for those that an update brings up, or takes down."""
    resident = instance["models"]
    return {
        **instance,
        "models": resident if models else [],
        "model_count": len(resident),
        "in_flight": sum(model["in_flight"] for model in resident),
        "fleet": fleet["name"],
        "component": _component_of(fleet["name"]),
        "current": fleet["name"] in current,
    }


def _component_of(fleet: str) -> str | None:
    """The inference component whose copies a fleet is: ``endpoint.generation.variant.component``."""
    parts = fleet.split(".")
    return parts[3] if len(parts) > 3 else None
