"""Settings fitted to real traces by `mme_fleet.traffic.fit`; docs/traffic.md tells how, and how near they come.

What a trace does not know (payloads; sizes of the GenAI trace's models) is the default of `TrafficSettings`. Service times of the
Azure functions are cut at the time that InvokeEndpoint waits. Scale a preset with `TrafficSettings.resized`.
"""

from __future__ import annotations

from mme_facts.limits import INVOKE_TIMEOUT_SECONDS
from mme_fleet.traffic.distributions import Lognormal, Mixture
from mme_fleet.traffic.settings import Bursts, Diurnal, Periodic, Sessions, TrafficSettings

__all__ = ["AZURE_2019", "AZURE_2019_TAIL", "GENAI_2026", "GENAI_LOAD_SECONDS", "GENAI_LORA_LOAD_SECONDS"]


def _mixture(least: float, most: float, *parts: tuple[float, float, float]) -> Mixture:
    """Of weight, median and sigma, all between ``least`` and ``most``."""
    return Mixture(tuple((weight, Lognormal(median, sigma, least, most)) for weight, median, sigma in parts))


AZURE_2019 = TrafficSettings(
    models=1053,
    requests=596_482,
    popularity=_mixture(1, 4930, (0.107, 1.27, 0.373), (0.485, 14.6, 1.02), (0.306, 417, 1.12), (0.102, 3050, 0.373)),
    diurnal=Diurnal(0.106, 13.1),
    sessions=Sessions(Lognormal(8.21, 1.65), Lognormal(19.6, 0.985)),
    bursts=Bursts(0.411, 0.563, Lognormal(866, 1)),
    periodic=Periodic(0.834, (60, 300, 900, 1800, 3600, 86_400), most_requests=50, aligned_share=0.539, run_seconds=60),
    memory_bytes=_mixture(90.1e6, 11.1e9, (0.317, 355e6, 0.783), (0.683, 1.77e9, 0.29)),
    service_seconds=_mixture(0.007, INVOKE_TIMEOUT_SECONDS, (0.439, 1.01, 2.17), (0.561, 13.3, 1.99)),
)
"""The functions of the Azure sample of 2019 with at most 5,000 calls on that day, one tenant each.

The 197 busier ones make 97 % of its calls and are always in memory: they would only make runs long."""

AZURE_2019_TAIL = TrafficSettings(
    models=910,
    requests=155_724,
    popularity=_mixture(1, 1440, (0.109, 1.18, 0.31), (0.501, 11.4, 0.945), (0.259, 133, 0.986), (0.131, 735, 0.498)),
    diurnal=Diurnal(0.0879, 14.8),
    sessions=Sessions(Lognormal(4.85, 0.816), Lognormal(81.3, 0.984)),
    bursts=Bursts(0.827, 0.278, Lognormal(1780, 1)),
    periodic=Periodic(0.607, (300, 900, 1800, 3600, 86_400), aligned_share=0.439, run_seconds=60),
    memory_bytes=_mixture(90.1e6, 11.1e9, (0.333, 370e6, 0.802), (0.667, 1.78e9, 0.284)),
    service_seconds=_mixture(0.007, INVOKE_TIMEOUT_SECONDS, (0.441, 1.24, 2.27), (0.559, 11.5, 2.0)),
)
"""Those of them with at most 1,440 calls."""

GENAI_LOAD_SECONDS = _mixture(1.32, 79.5, (0.358, 2.96, 0.334), (0.642, 31.0, 0.317))
"""Times in which the GenAI trace's base models were loaded: of those that lay near, and of those that did not."""

GENAI_LORA_LOAD_SECONDS = _mixture(0.631, 38.8, (0.125, 1.67, 0.736), (0.875, 4.55, 0.242))
"""And its LoRA adapters."""

GENAI_2026 = TrafficSettings(
    models=8286,
    requests=26_798,
    days=24,
    tenants=4244,
    popularity=_mixture(1, 688, (0.525, 1.0, 0.119), (0.196, 2.0, 0.119), (0.194, 3.72, 0.307), (0.0851, 10.2, 0.909)),
    diurnal=Diurnal(1.0, 22.5),
    sessions=Sessions(Lognormal(7.53, 0.124), Lognormal(162, 0.717)),
    bursts=Bursts(0.895, 0.23, Lognormal(379, 1)),
    periodic=Periodic(0.0251, (86_400,), aligned_share=0.0114),
    load_seconds=GENAI_LOAD_SECONDS,
    service_seconds=_mixture(1, 567, (0.436, 19.8, 0.308), (0.564, 28.0, 0.673)),
)
"""The GenAI trace of Alibaba: image requests of people, a model for each tenant and base model. Most models are asked for once or twice."""
