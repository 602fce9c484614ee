"""What endpoints cost in a time range: how many instances they had, and what one costs an hour."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from mme_cli.errors import CommandError
from mme_facts.instances import InstanceTypeError, instance
from mme_facts.metrics import FLEET_NAMESPACE

__all__ = ["UNITS", "EndpointFleet", "Prices", "endpoint_fleet"]

UNITS = 1_000_000_000
"""Smallest units of a dollar, or of an instance-hour: costs are whole numbers of them, so that sums are exact."""
_POINTS = 1440
_MINUTE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class EndpointFleet:
    """An endpoint's instances in a time range.

    Attributes:
        name: the endpoint's.
        instance_type: of its first variant; ``None`` where that is not known any more.
        instances: on average.
        measured: whether the average is of the fleet watch's metric; if not, it is the number of now.
    """

    name: str
    instance_type: str | None
    instances: float
    measured: bool

    def cost(self, seconds: float, hourly: Decimal) -> int:
        """In `UNITS`, for so long at a price an hour."""
        return round(Decimal(self.instances * seconds / 3600) * hourly * UNITS)


@dataclass(frozen=True, slots=True)
class Prices:
    """What an hour of an instance costs.

    Attributes:
        by_type: instance type -> dollars.
        other: of types that are not named; ``None``: they have no price.
    """

    by_type: Mapping[str, Decimal]
    other: Decimal | None = None

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Prices:
        """Read ``0.23`` and ``ml.m5.xlarge=0.23``; raises `CommandError`."""
        by_type: dict[str, Decimal] = {}
        other: Decimal | None = None
        for text in texts:
            name, _, value = text.rpartition("=")
            price = _price(text, value)
            if not name:
                other = price
                continue
            try:
                by_type[instance(name).name] = price
            except InstanceTypeError as error:
                raise CommandError(f"price {text!r}: {error}") from None
        return cls(by_type, other)

    @property
    def given(self) -> bool:
        """Whether there is any; without, costs are in instance-hours."""
        return bool(self.by_type) or self.other is not None

    def hourly(self, fleet: EndpointFleet) -> Decimal:
        """Of an endpoint's instances: dollars, or 1 where no price is given at all; raises `CommandError` if this one has none."""
        if not self.given:
            return Decimal(1)
        found = self.by_type.get(fleet.instance_type or "", self.other)
        if found is None:
            raise CommandError(
                f"endpoint {fleet.name!r} has instances of type {fleet.instance_type or 'unknown'}, which has no price: "
                "add --usd-per-hour TYPE=USD for it, or --usd-per-hour USD for all others"
            )
        return found


def endpoint_fleet(sagemaker: Any, cloudwatch: Any, endpoint: str, *, start: int, end: int) -> EndpointFleet:
    """An endpoint's instances between two moments.

    Args:
        sagemaker: describes endpoints; boto3's client.
        cloudwatch: has the metric ``instances`` of the fleet watch; boto3's client.
        endpoint: its name.
        start: epoch seconds.
        end: epoch seconds.
    """
    instance_type, now = _described(sagemaker, endpoint)
    period = math.ceil((end - start) / _POINTS / _MINUTE_SECONDS) * _MINUTE_SECONDS
    found = cloudwatch.get_metric_statistics(
        Namespace=FLEET_NAMESPACE,
        MetricName="instances",
        Dimensions=[{"Name": "endpoint", "Value": endpoint}],
        StartTime=datetime.fromtimestamp(start, UTC),
        EndTime=datetime.fromtimestamp(end, UTC),
        Period=max(period, _MINUTE_SECONDS),
        Statistics=["Average"],
    )["Datapoints"]
    if not found:
        return EndpointFleet(endpoint, instance_type, float(now), measured=False)
    return EndpointFleet(endpoint, instance_type, sum(point["Average"] for point in found) / len(found), measured=True)


def _described(sagemaker: Any, endpoint: str) -> tuple[str | None, int]:
    """Instance type and number of now; of an endpoint that is gone neither."""
    from botocore.exceptions import ClientError

    try:
        described = sagemaker.describe_endpoint(EndpointName=endpoint)
        config = sagemaker.describe_endpoint_config(EndpointConfigName=described["EndpointConfigName"])
    except ClientError as error:
        if "could not find" in str(error.response["Error"].get("Message", "")).lower():
            return None, 0
        raise
    count = sum(variant.get("CurrentInstanceCount", 0) for variant in described.get("ProductionVariants", ()))
    return next((variant.get("InstanceType") for variant in config["ProductionVariants"]), None), count


def _price(text: str, value: str) -> Decimal:
    try:
        price = Decimal(value)
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or price < 0:
        raise CommandError(f"price {text!r} is not one: use dollars an hour, such as 0.23 or ml.m5.xlarge=0.23")
    return price
