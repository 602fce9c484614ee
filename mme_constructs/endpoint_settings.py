"""Checks of an endpoint's settings that stand alone: its name, its tags, what has ended."""

from __future__ import annotations

import re
from collections.abc import Mapping

import aws_cdk as cdk
from constructs import Construct

from mme_constructs.errors import AutoScalingError, EndpointNameError, EndpointSettingsError, InstanceCountError
from mme_constructs.stack_of import is_token
from mme_facts import instances
from mme_facts.limits import MODEL_NAME_CHARACTERS

__all__ = ["check_accelerator", "check_managed_instances", "check_tags", "endpoint_name_of"]

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def endpoint_name_of(scope: Construct, name: str | None) -> str:
    """The endpoint's name: ``name`` if it is one that SageMaker and IAM treat alike, or one derived from the construct's path.

    Raises:
        EndpointNameError: it holds upper-case letters or is longer than 63 characters. SageMaker refuses a second endpoint whose name
            differs in case only, and looks the name up with case; ARNs hold it in lower case.
    """
    if name is None:
        return cdk.Names.unique_resource_name(scope, max_length=MODEL_NAME_CHARACTERS, separator="-").lower()
    if not is_token(name) and not _NAME.fullmatch(name):
        raise EndpointNameError(
            "SageMaker compares endpoint names without case and IAM with it",
            value=name,
            allowed="1 to 63 lower-case letters, digits and inner hyphens",
            fix="Use such a name, or leave it out",
        )
    return name


def check_accelerator(accelerator_type: str | None) -> None:
    """Refuse Elastic Inference (Amazon SageMaker AI, Multi-Model Endpoints; API reference: ProductionVariant, AcceleratorType)."""
    if accelerator_type is not None:
        raise EndpointSettingsError(
            "Elastic Inference never served multi-model endpoints, and AWS has ended it",
            value=accelerator_type,
            allowed="no accelerator_type",
            fix="Use a GPU instance type with a Triton container, such as 'ml.g5.xlarge'",
        )


def check_tags(tags: Mapping[str, str]) -> None:
    """Refuse tags outside the service's limits (API reference: Tag); raises `EndpointSettingsError`."""
    if len(tags) > 50:
        raise EndpointSettingsError("Too many tags", value=len(tags), allowed="at most 50", fix="Remove some")
    for key, value in tags.items():
        if not 1 <= len(key) <= 128 or key.lower().startswith("aws:") or len(value) > 256:
            raise EndpointSettingsError(
                "The tag is not allowed",
                value=f"{key}={value}"[:80],
                allowed="keys of 1 to 128 characters that do not start with 'aws:', values of up to 256",
                fix="Rename it",
            )


def check_managed_instances(instance_type: str, smallest: int, greatest: int) -> None:
    """Refuse bounds that managed instance scaling cannot have (API reference: ProductionVariantManagedInstanceScaling).

    Raises:
        InstanceCountError: they do not fit.
        AutoScalingError: the type is burstable.
    """
    if smallest < 0 or greatest < max(smallest, 1):
        raise InstanceCountError(
            "The bounds of the instances do not fit",
            value=f"{smallest} to {greatest}",
            allowed="min_instances from 0 and max_instances from 1, not below it",
            fix="Swap or raise them",
        )
    if greatest > smallest and not is_token(instance_type) and instances.is_burstable(instance_type):
        raise AutoScalingError(
            "Burstable types cannot be auto scaled",
            value=instance_type,
            allowed="other types, or max_instances equal to min_instances",
            fix="Choose another type",
        )
