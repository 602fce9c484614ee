"""What goes into the feed beside the steps of fleets: events, alarms, scaling activities."""

from __future__ import annotations

from typing import Any

from mme_local.autoscaling.activities import Activities, Activity
from mme_local.cloudwatch.alarms import Alarm, Alarms, Transition
from mme_local.console.feed import Feed
from mme_local.events import Event, Events

__all__ = ["activity_document", "follow"]


def activity_document(activity: Activity) -> dict[str, Any]:
    """The JSON form of a scaling activity."""
    return {
        "resource": activity.key[1],
        "description": activity.description,
        "cause": activity.cause,
        "status": activity.status,
        "message": activity.message,
        "started": activity.started,
        "ended": activity.ended,
    }


def follow(feed: Feed, events: Events, alarms: Alarms, activities: Activities) -> None:
    """Put every event, every change of an alarm's state and every scaling activity into the feed."""

    def event(sent: Event) -> None:
        detail = sent.detail
        doing = [
            f"{variant['VariantName']}: {status['Status']}{' - ' + status['StatusMessage'] if 'StatusMessage' in status else ''}"
            for variant in detail.get("ProductionVariants", ())
            for status in variant.get("VariantStatus", ())
        ]
        feed.put(
            "event",
            endpoint=detail.get("EndpointName"),
            source=sent.source,
            detail_type=sent.detail_type,
            status=detail.get("EndpointStatus"),
            message="; ".join(doing),
        )

    def alarm(changed: Alarm, transition: Transition) -> None:
        feed.put("alarm", name=changed.name, old=transition.old, new=transition.new, reason=transition.reason)

    def scaling(activity: Activity) -> None:
        if not activity.not_scaled:
            feed.put("scaling", **activity_document(activity))

    activities.listen(scaling)
    events.listen(event)
    alarms.on_change(alarm)
