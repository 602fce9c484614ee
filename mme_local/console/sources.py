"""What goes into the feed beside the steps of fleets: events, alarms."""

from __future__ import annotations

from mme_local.cloudwatch.alarms import Alarm, Alarms, Transition
from mme_local.console.feed import Feed
from mme_local.events import Event, Events

__all__ = ["follow"]


def follow(feed: Feed, events: Events, alarms: Alarms) -> None:
    """Put every event and every change of an alarm's state into the feed."""

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

    events.listen(event)
    alarms.on_change(alarm)
