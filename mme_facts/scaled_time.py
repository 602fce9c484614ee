"""The scaled clock of a local cloud: ``now = t0 + (real - t0) x scale``, shared by its processes through one variable.

On AWS the variable is not set and time is the machine's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["CLOCK_VARIABLE", "ScaledTime"]

CLOCK_VARIABLE = "MME_CLOCK"
"""Environment variable with `ScaledTime.setting`."""


@dataclass(frozen=True, slots=True)
class ScaledTime:
    """A linear map from real to scaled epoch seconds.

    Attributes:
        origin: the real moment ``t0`` at which the scale began, in epoch seconds.
        shown: what the scaled clock showed then; differs from ``origin`` after a clock jump.
        scale: scaled seconds a real second, above 0.
    """

    origin: float = 0.0
    shown: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not (self.scale > 0 and math.isfinite(self.scale)):
            raise ValueError(f"the clock's scale is {self.scale}: use a number above 0, such as 60 for a minute a second")

    def at(self, real: float) -> float:
        """The scaled epoch seconds at a real moment."""
        return self.shown + (real - self.origin) * self.scale

    def jumped(self, real: float, seconds: float) -> ScaledTime:
        """The clock that shows ``seconds`` more from the real moment on."""
        return ScaledTime(real, self.at(real) + seconds, self.scale)

    @property
    def setting(self) -> str:
        """The value of `CLOCK_VARIABLE`: ``origin,shown,scale``."""
        return f"{self.origin!r},{self.shown!r},{self.scale!r}"

    @classmethod
    def read(cls, setting: str | None) -> ScaledTime:
        """Read `setting`; nothing means real time.

        Raises:
            ValueError: it is not three numbers with commas between them.
        """
        if not setting:
            return cls()
        try:
            origin, shown, scale = map(float, setting.split(","))
        except ValueError:
            raise ValueError(f"{CLOCK_VARIABLE} is {setting!r}: it must be origin,shown,scale, three numbers") from None
        return cls(origin, shown, scale)
