"""Who may have an upload's admission begin by an event of ours, which the rule of `ModelAdmission` takes as it takes S3's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import aws_iam as iam

from mme_constructs.stack_of import stack_of
from mme_facts.own_events import RESUME_DETAIL, SWEEP_SOURCE

if TYPE_CHECKING:
    from constructs import Construct

__all__ = ["grant_resume"]


def grant_resume(scope: Construct, role: iam.Role) -> None:
    """Let ``role`` send that one kind of event. It names no function, so that the admission may be built before or after, or elsewhere."""
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["events:PutEvents"],
            resources=[stack_of(scope).format_arn(service="events", resource="event-bus", resource_name="default")],
            # AWS always tells the events' source and kind; the local cloud does not.
            conditions={"StringEqualsIfExists": {"events:source": SWEEP_SOURCE, "events:detail-type": RESUME_DETAIL}},
        )
    )
