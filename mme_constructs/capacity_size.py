"""The size of one step of an update."""

from __future__ import annotations

import math
from dataclasses import dataclass

from aws_cdk import aws_sagemaker as sagemaker

from mme_constructs.errors import DeploymentError

__all__ = ["CapacitySize"]


@dataclass(frozen=True, slots=True)
class CapacitySize:
    """A part of a fleet: a percentage of its instances or a number of them. Make one with `of_percent` or `of_instances`.

    Attributes:
        value: percent or instances, from 1.
        in_percent: whether it is a percentage.
    """

    value: int
    in_percent: bool

    def __post_init__(self) -> None:
        if self.value < 1 or (self.in_percent and self.value > 100):
            allowed = "1 to 100 percent" if self.in_percent else "1 instance or more"
            raise DeploymentError("The size of a step is out of range", value=self.value, allowed=allowed, fix="Use such a size")

    @classmethod
    def of_percent(cls, percent: int) -> CapacitySize:
        """A percentage of the variant's instances; raises `DeploymentError`."""
        return cls(percent, in_percent=True)

    @classmethod
    def of_instances(cls, instances: int) -> CapacitySize:
        """A number of instances; raises `DeploymentError`."""
        return cls(instances, in_percent=False)

    def check(self, what: str, smallest_percent: int, fleet: tuple[int, int] | None = None) -> None:
        """Refuse a size outside the service's ``smallest_percent`` to 50 % of the fleet.

        Args:
            what: the size's name in the error's text.
            smallest_percent: least percentage.
            fleet: fewest and most instances that the fleet can have; None if that is not known yet.

        Raises:
            DeploymentError: it is outside, for a number of instances: whatever the fleet's size.
        """
        if self.in_percent:
            if not smallest_percent <= self.value <= 50:
                raise DeploymentError(
                    f"{what} is out of range", value=f"{self.value} %", allowed=f"{smallest_percent} to 50 % of the instances", fix="Use 10"
                )
            return
        if fleet is None:
            return
        fewest, most = fleet
        if self.value * 2 > most or self.value * 100 < smallest_percent * fewest:
            raise DeploymentError(
                f"{what} is out of range for every size of the fleet",
                value=f"{self.value} of {fewest} to {most} instances",
                allowed=f"{smallest_percent} to 50 % of the instances",
                fix="Use another number of instances, or a percentage",
            )

    def steps(self, instances: int) -> int:
        """How many steps of this size a fleet of ``instances`` takes."""
        return math.ceil((100 if self.in_percent else instances) / self.value)

    def render(self) -> sagemaker.CfnEndpoint.CapacitySizeProperty:
        """The property."""
        return sagemaker.CfnEndpoint.CapacitySizeProperty(
            type="CAPACITY_PERCENT" if self.in_percent else "INSTANCE_COUNT", value=self.value
        )
