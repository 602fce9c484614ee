"""Guard rails of endpoints' names and instance counts."""

from __future__ import annotations

import aws_cdk as cdk

from mme_constructs import ModelArtifactStore, MultiModelContainer, MultiModelEndpoint
from mme_constructs.errors import InstanceCountError
from tests.constructs.guard_rails.rail import GuardRail


def _min_above_max(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, min_instances=4, max_instances=2)


def _min_below_max(stack: cdk.Stack) -> None:
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=container, min_instances=2, max_instances=4)


RAILS = (
    GuardRail(
        "More instances at least than at most",
        "Application Auto Scaling refuses a scalable target whose minimum is above its maximum (API reference: RegisterScalableTarget).",
        _min_above_max,
        _min_below_max,
        InstanceCountError,
    ),
)
