"""The capacity of scalable targets: SageMaker's instance counts and copies, changed through SageMaker's own operations."""

from __future__ import annotations

from typing import Protocol

from mme_facts.instances import InstanceTypeError, is_burstable
from mme_local.autoscaling.models import COMPONENT_COPIES, Key, resource_parts
from mme_local.sagemaker.models import SageMaker
from mme_local.wire import AwsError

__all__ = ["BusyError", "Capacity", "RefusedError", "SageMakerCapacity"]


class BusyError(Exception):
    """The resource changes at the moment and takes no other change."""


class RefusedError(Exception):
    """SageMaker refused the change or could not fulfil it; the text says why."""


class Capacity(Protocol):
    """The capacity of scalable targets."""

    def desired(self, key: Key) -> int | None:
        """What a target shall have now; ``None`` when the resource does not exist."""

    def set(self, key: Key, count: int) -> None:
        """Ask for another capacity.

        Raises:
            BusyError: try again when the resource has settled.
            RefusedError: SageMaker refuses.
        """

    async def settled(self, key: Key) -> None:
        """Return when no change is under way."""

    def shortfall(self, key: Key, count: int) -> str | None:
        """Why a settled target does not have the capacity; ``None`` when it has."""


class SageMakerCapacity:
    """`Capacity` of SageMaker variants and inference components.

    Args:
        sagemaker: the endpoints.
    """

    def __init__(self, sagemaker: SageMaker) -> None:
        self._sagemaker = sagemaker

    def desired(self, key: Key) -> int | None:
        """See `Capacity.desired`."""
        name, *variant = resource_parts(key)
        if key[2] == COMPONENT_COPIES:
            component = self._sagemaker.components.by_name.get(name)
            return None if component is None else component.copies
        endpoint = self._sagemaker.endpoints.get(name)
        found = endpoint.variant(variant[0]) if endpoint is not None else None
        return None if found is None else found.desired_count

    def set(self, key: Key, count: int) -> None:
        """See `Capacity.set`."""
        name, *variant = resource_parts(key)
        try:
            if key[2] == COMPONENT_COPIES:
                if (component := self._sagemaker.components.by_name.get(name)) is not None and not component.settled.is_set():
                    raise BusyError
                self._sagemaker.components.set_copies(name, count)
                return
            if (endpoint := self._sagemaker.endpoints.get(name)) is not None and not endpoint.settled.is_set():
                raise BusyError
            change = {"VariantName": variant[0], "DesiredInstanceCount": count}
            self._sagemaker.update_weights_and_capacities({"EndpointName": name, "DesiredWeightsAndCapacities": [change]})
        except AwsError as error:
            raise RefusedError(error.message) from None

    async def settled(self, key: Key) -> None:
        """See `Capacity.settled`."""
        if key[2] == COMPONENT_COPIES:
            if (component := self._sagemaker.components.by_name.get(resource_parts(key)[0])) is not None:
                await component.settled.wait()
            return
        endpoint = self._sagemaker.endpoints.get(resource_parts(key)[0])
        if endpoint is not None:
            await endpoint.settled.wait()

    def shortfall(self, key: Key, count: int) -> str | None:
        """See `Capacity.shortfall`."""
        name, *variant = resource_parts(key)
        if key[2] == COMPONENT_COPIES:
            component = self._sagemaker.components.by_name.get(name)
            if component is None:
                return f"{key[1]} is gone."
            return None if component.current == count else component.failure_reason or f"{key[1]} has {component.current} copies."
        endpoint = self._sagemaker.endpoints.get(name)
        found = endpoint.variant(variant[0]) if endpoint is not None else None
        if endpoint is None or found is None:
            return f"{key[1]} is gone."
        if found.current_count == count:
            return None
        return endpoint.failure_reason or f"{key[1]} has {found.current_count} instances."

    def refusal(self, key: Key) -> str | None:
        """Why a target may not be scaled: burstable instances cannot be (SageMaker AI guide: Auto scaling prerequisites)."""
        if key[2] == COMPONENT_COPIES:
            return None
        name, variant = resource_parts(key)
        endpoint = self._sagemaker.endpoints.get(name)
        found = endpoint.variant(variant) if endpoint is not None else None
        try:
            if found is None or not is_burstable(found.instance_type):
                return None
        except InstanceTypeError:
            return None
        return f"Auto scaling is not supported for {key[1]}: {found.instance_type} is a burstable instance type."
