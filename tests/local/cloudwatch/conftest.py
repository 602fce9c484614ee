"""A clock that stands still until it is put forward, and alarms on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from mme_local.clock import CloudClock
from mme_local.cloudwatch.alarms import Alarms, Transition
from mme_local.cloudwatch.store import MetricStore

START = 1_800_000_000.0  # on a full hour


class StillClock(CloudClock):
    """Shows a moment of the test's choice."""

    def __init__(self, moment: float = START) -> None:
        super().__init__()
        self.moment = moment

    def time(self) -> float:
        return self.moment


@dataclass
class Watch:
    """Alarms, their metrics and what they did."""

    clock: StillClock = field(default_factory=StillClock)
    done: list[tuple[str, str, Transition]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = MetricStore(self.clock.time)
        self.alarms = Alarms(self.store, self.clock, region="us-east-1", account="000000000000")
        self.alarms.on_action("arn:aws:sns:", lambda arn, alarm, transition: self.done.append((arn, alarm.name, transition)))

    def alarm(self, **members: Any) -> dict[str, Any]:
        """A PutMetricAlarm document: more than 10 errors a minute at the endpoint ``ours``."""
        return {
            "AlarmName": "errors",
            "Namespace": "Platform",
            "MetricName": "Errors",
            "Dimensions": [{"Name": "EndpointName", "Value": "ours"}],
            "Statistic": "Sum",
            "Period": 60,
            "EvaluationPeriods": 1,
            "Threshold": 10.0,
            "ComparisonOperator": "GreaterThanThreshold",
            "AlarmActions": ["arn:aws:sns:us-east-1:000000000000:alarm"],
            "OKActions": ["arn:aws:sns:us-east-1:000000000000:ok"],
            **members,
        }

    def minute(self, *values: float, endpoint: str = "ours", unit: str = "Count", name: str = "Errors") -> None:
        """Put values into the minute that is passing, end it and let the alarms look."""
        if values:
            self.store.put("Platform", name, {"EndpointName": endpoint}, values, unit=unit, timestamp=self.clock.moment)
        self.clock.moment += 60
        self.alarms.evaluate()

    def minutes(self, values: Sequence[float | None]) -> None:
        for value in values:
            self.minute(*([] if value is None else [value]))

    def state(self, name: str = "errors") -> str:
        return self.alarms.by_name[name].state


@pytest.fixture
def watch() -> Watch:
    return Watch()
