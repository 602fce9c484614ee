"""SageMaker's errors with the texts of the service."""

from __future__ import annotations

from mme_local.wire import AwsError, ValidationError

__all__ = ["NO_ROOM", "already_exists", "component_in_progress", "could_not_find", "in_progress", "no_capacity", "over_instance_limit"]


NO_ROOM = "There is not enough hardware resources on the instances for this endpoint to create a copy of the inference component."
"""FailureReason of an inference component whose copies do not fit."""


def could_not_find(kind: str, arn: str) -> ValidationError:
    """A described, updated or deleted resource does not exist."""
    return ValidationError(f'Could not find {kind} "{arn}".')


def already_exists(kind: str, arn: str) -> ValidationError:
    """A created resource exists."""
    return ValidationError(f'Cannot create already existing {kind} "{arn}".')


def in_progress(arn: str) -> ValidationError:
    """An endpoint is changed while a change is under way."""
    return ValidationError(f'Cannot update in-progress endpoint "{arn}".')


def component_in_progress(arn: str) -> ValidationError:
    """An inference component is changed while a change is under way."""
    return ValidationError(f'Cannot update in-progress inference component "{arn}".')


def no_capacity() -> AwsError:
    """An inference component without a copy is invoked (SageMaker AI guide: Scale an endpoint to zero instances)."""
    return AwsError(
        "ValidationError",
        "Inference Component has no capacity to process this request. ApplicationAutoScaling may be in-progress (if configured) or try to "
        "increase the capacity by invoking UpdateInferenceComponentRuntimeConfig API.",
    )


def over_instance_limit(instance_type: str, limit: int, used: int, requested: int) -> AwsError:
    """More instances than the account (here: the local cloud's settings) may have."""
    return AwsError(
        "ResourceLimitExceeded",
        f"The account-level service limit '{instance_type} for endpoint usage' is {limit} Instances, with current utilization of "
        f"{used} Instances and a request delta of {requested} Instances. Please use AWS Service Quotas to request an increase "
        "for this quota (locally: LocalSettings.instance_limit).",
    )
