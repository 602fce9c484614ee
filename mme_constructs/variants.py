"""Production variants: one by default, up to ten for A/B tests, each with instances and auto scaling of its own.

AWS's documents disagree on several variants behind one multi-model endpoint: the page on multi-model endpoints lists A/B testing, the
feature matrix leaves the cell empty. One variant is the default, and an endpoint with more carries a warning.

Sources: Amazon SageMaker AI, Multi-Model Endpoints; API reference: ProductionVariant, CreateEndpointConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from aws_cdk import aws_sagemaker as sagemaker

from mme_constructs.compatibility import Caution, check_container_on_instance
from mme_constructs.errors import (
    ConfigurationError,
    EncryptionError,
    EndpointSettingsError,
    InstanceCountError,
    VariantError,
)
from mme_constructs.serving_model import steps_of
from mme_constructs.stack_of import is_token
from mme_facts import instances

if TYPE_CHECKING:
    from mme_constructs.container import MultiModelContainer
    from mme_constructs.pipeline import InferencePipeline
    from mme_constructs.scaling import ScalingRule

__all__ = ["DEFAULT_VARIANT", "ProductionVariant", "ResolvedVariant", "check_storage", "check_timeout", "resolve_variants", "variant_named"]

DEFAULT_VARIANT = "AllTraffic"
_T = TypeVar("_T")
_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductionVariant:
    """One of an endpoint's variants; what is left out is the endpoint's own setting.

    Attributes:
        name: 1 to 63 letters, digits and inner hyphens. Deployment policies need the same names before and after an update.
        weight: the share of requests, relative to the other variants' weights, from 0. Default 1.
        container: what serves its models. Default: the endpoint's.
        instance_type: its instances. Default: the endpoint's.
        min_instances: fewest. Default: the endpoint's.
        max_instances: most. Default: twice ``min_instances`` if that is given, else the endpoint's.
        scaling: when instances are added and removed. Default: the endpoint's.
        volume_size_gb: EBS volume of each instance, GB. Default: the endpoint's.

    Raises:
        VariantError: name or weight is not allowed.
    """

    name: str
    weight: float = 1
    container: MultiModelContainer | InferencePipeline | None = None
    instance_type: str | None = None
    min_instances: int | None = None
    max_instances: int | None = None
    scaling: ScalingRule | None = None
    volume_size_gb: int | None = None

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise VariantError(
                "The variant's name is not allowed",
                value=self.name,
                allowed="1 to 63 letters, digits and inner hyphens",
                fix="Use such a name, such as 'Champion'",
            )
        if self.weight < 0:
            raise VariantError("A variant's weight is negative", value=self.weight, allowed="0 or more", fix="Use 0 to send it nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedVariant:
    """A variant with every setting decided.

    Attributes:
        name: its name.
        weight: its share of the requests.
        container: what serves its models.
        instance_type: its instances.
        smallest: fewest instances.
        greatest: most instances.
        scaling: its rule; None is the default rule.
        volume_size_gb: EBS volume of each instance; None is the service's.
        startup_timeout_seconds: until the container must answer ``/ping``; None is the service's.
        download_timeout_seconds: of model data at start; None is the service's.

    Raises:
        ConfigurationError: one of its subclasses: the combination is known to fail.
    """

    name: str
    weight: float
    container: MultiModelContainer | InferencePipeline
    instance_type: str
    smallest: int
    greatest: int
    scaling: ScalingRule | None
    volume_size_gb: int | None
    startup_timeout_seconds: int | None
    download_timeout_seconds: int | None

    def __post_init__(self) -> None:
        if self.smallest < 1:
            raise InstanceCountError(
                "A multi-model endpoint cannot scale to zero",
                value=self.smallest,
                allowed="min_instances from 1",
                fix="Use 2 for two zones",
            )
        if self.greatest < self.smallest:
            raise InstanceCountError(
                "max_instances is below min_instances",
                value=self.greatest,
                allowed=f"{self.smallest} or more",
                fix="Raise max_instances",
            )
        check_timeout("container_startup_timeout_seconds", self.startup_timeout_seconds)
        check_timeout("model_download_timeout_seconds", self.download_timeout_seconds)

    @property
    def suffix(self) -> str:
        """What the ids of the variant's own resources end in: nothing for the usual single variant."""
        return "" if self.name == DEFAULT_VARIANT else self.name

    def check_instances(self, *, encrypted: bool, allow_undocumented_gpu: bool) -> set[Caution]:
        """Refuse what the instance type cannot do.

        Args:
            encrypted: whether a KMS key is given for its volume.
            allow_undocumented_gpu: whether GPU types outside AWS's list give a caution instead of an error.

        Returns:
            What may fail.

        Raises:
            ConfigurationError: one of its subclasses: volume, key or container do not fit the type.
        """
        check_storage(self.instance_type, encrypted=encrypted, volume_size_gb=self.volume_size_gb)
        return {
            caution
            for step in steps_of(self.container)
            for caution in check_container_on_instance(step.container, self.instance_type, allow_undocumented_gpu=allow_undocumented_gpu)
        }

    def render(self, model_name: str) -> sagemaker.CfnEndpointConfig.ProductionVariantProperty:
        """The property."""
        return sagemaker.CfnEndpointConfig.ProductionVariantProperty(
            variant_name=self.name,
            model_name=model_name,
            instance_type=self.instance_type,
            initial_instance_count=self.smallest,
            initial_variant_weight=self.weight,
            volume_size_in_gb=self.volume_size_gb,
            container_startup_health_check_timeout_in_seconds=self.startup_timeout_seconds,
            model_data_download_timeout_in_seconds=self.download_timeout_seconds,
        )


def resolve_variants(variants: Sequence[ProductionVariant], default: ResolvedVariant) -> tuple[ResolvedVariant, ...]:
    """Fill the variants' settings with the endpoint's.

    Args:
        variants: none for the usual single one.
        default: the endpoint's settings as a variant.

    Raises:
        VariantError: more than ten, two of one name, or no weight at all.
        ConfigurationError: one of its subclasses: a variant's settings are known to fail.
    """
    names = [variant.name for variant in variants]
    if len(names) > 10:
        raise VariantError("An endpoint has too many variants", value=len(names), allowed="1 to 10", fix="Test fewer at a time")
    if len(set(names)) < len(names):
        raise VariantError("Two variants share a name", value=names, allowed="one variant per name", fix="Rename one")
    if variants and not any(variant.weight for variant in variants):
        raise VariantError("No variant gets requests", value=0, allowed="a weight above 0 for at least one", fix="Set a weight")
    return tuple(_fill(variant, default) for variant in variants) or (default,)


def _fill(variant: ProductionVariant, default: ResolvedVariant) -> ResolvedVariant:
    smallest = default.smallest if variant.min_instances is None else variant.min_instances
    greatest = default.greatest if variant.min_instances is None else 2 * smallest
    return replace(
        default,
        name=variant.name,
        weight=variant.weight,
        container=variant.container or default.container,
        instance_type=variant.instance_type or default.instance_type,
        smallest=smallest,
        greatest=greatest if variant.max_instances is None else variant.max_instances,
        scaling=variant.scaling or default.scaling,
        volume_size_gb=default.volume_size_gb if variant.volume_size_gb is None else variant.volume_size_gb,
    )


def variant_named(by_name: Mapping[str, _T], name: str) -> _T:
    """What belongs to the variant ``name``; raises `VariantError` if there is no such variant."""
    if name not in by_name:
        raise VariantError("The endpoint has no such variant", value=name, allowed=", ".join(by_name), fix="Use one of these")
    return by_name[name]


def check_storage(instance_type: str, *, encrypted: bool, volume_size_gb: int | None) -> None:
    """Refuse a volume or its key where there is no volume.

    Args:
        instance_type: a literal type, or a token, which passes.
        encrypted: whether a KMS key is given.
        volume_size_gb: the volume's size; None if none is given.

    Raises:
        ConfigurationError: not an instance type.
        EncryptionError: a key on a type with local NVMe disks.
        EndpointSettingsError: a volume on such a type, or one outside 1 to 512 GB.

    Sources: API reference: CreateEndpointConfig (KmsKeyId), ProductionVariant (VolumeSizeInGB); Host instance storage volumes.
    """
    if volume_size_gb is not None and not 1 <= volume_size_gb <= 512:
        raise EndpointSettingsError(
            "The volume's size is out of range", value=f"{volume_size_gb} GB", allowed="1 to 512 GB", fix="Use a size in this range"
        )
    if is_token(instance_type):
        return
    try:
        local = instances.has_local_storage(instance_type)
    except instances.InstanceTypeError as error:
        raise ConfigurationError(
            "Not an instance type", value=instance_type, allowed="ml.<family>.<size>", fix="Use a type such as 'ml.m5.xlarge'"
        ) from error
    if local and encrypted:
        raise EncryptionError(
            "CreateEndpointConfig refuses a KMS key on types with local NVMe storage, which is encrypted by its hardware",
            value=instance_type,
            allowed="types with EBS volumes, such as ml.m5.xlarge",
            fix="Leave encryption_key out, or choose another type",
        )
    if local and volume_size_gb is not None:
        raise EndpointSettingsError(
            "Types with local NVMe storage get no EBS volume",
            value=f"{volume_size_gb} GB on {instance_type}",
            allowed="volume_size_gb on types with EBS volumes, such as ml.m5.xlarge",
            fix="Leave volume_size_gb out, or choose another type",
        )


def check_timeout(name: str, seconds: int | None) -> None:
    """Refuse a timeout outside 60 to 3,600 seconds (API reference: ProductionVariant); raises `EndpointSettingsError`."""
    if seconds is not None and not 60 <= seconds <= 3600:
        raise EndpointSettingsError(f"{name} is out of range", value=seconds, allowed="60 to 3,600 seconds", fix="Use one in this range")
