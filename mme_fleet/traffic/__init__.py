"""Multi-tenant load: real traces, read, and a generator fitted to them. Needs numpy (the extra ``planner``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mme_facts.lazy import attach

if TYPE_CHECKING:
    from mme_fleet.traffic.azure import AzureSample, read_azure
    from mme_fleet.traffic.distributions import Distribution, LoadBySize, Lognormal, Mixture, Popularity, Zipf
    from mme_fleet.traffic.fitting import fit, fit_mixture
    from mme_fleet.traffic.genai import GenAiRequests, read_genai_loads, read_genai_requests
    from mme_fleet.traffic.generator import generate
    from mme_fleet.traffic.presets import AZURE_2019, AZURE_2019_TAIL, GENAI_2026, GENAI_LOAD_SECONDS, GENAI_LORA_LOAD_SECONDS
    from mme_fleet.traffic.rows import TraceFormatError
    from mme_fleet.traffic.settings import Bursts, Churn, Diurnal, Periodic, Sessions, TrafficSettings
    from mme_fleet.traffic.shape import TraceShape, shape_of
    from mme_fleet.traffic.trace import Population, Trace

__all__ = [
    "AZURE_2019",
    "AZURE_2019_TAIL",
    "GENAI_2026",
    "GENAI_LOAD_SECONDS",
    "GENAI_LORA_LOAD_SECONDS",
    "AzureSample",
    "Bursts",
    "Churn",
    "Distribution",
    "Diurnal",
    "GenAiRequests",
    "LoadBySize",
    "Lognormal",
    "Mixture",
    "Periodic",
    "Popularity",
    "Population",
    "Sessions",
    "Trace",
    "TraceFormatError",
    "TraceShape",
    "TrafficSettings",
    "Zipf",
    "fit",
    "fit_mixture",
    "generate",
    "read_azure",
    "read_genai_loads",
    "read_genai_requests",
    "shape_of",
]

_EXPORTS = {
    **dict.fromkeys(("AzureSample", "read_azure"), "azure"),
    **dict.fromkeys(("Distribution", "LoadBySize", "Lognormal", "Mixture", "Popularity", "Zipf"), "distributions"),
    **dict.fromkeys(("fit", "fit_mixture"), "fitting"),
    **dict.fromkeys(("GenAiRequests", "read_genai_loads", "read_genai_requests"), "genai"),
    "generate": "generator",
    **dict.fromkeys(("AZURE_2019", "AZURE_2019_TAIL", "GENAI_2026", "GENAI_LOAD_SECONDS", "GENAI_LORA_LOAD_SECONDS"), "presets"),
    "TraceFormatError": "rows",
    **dict.fromkeys(("Bursts", "Churn", "Diurnal", "Periodic", "Sessions", "TrafficSettings"), "settings"),
    **dict.fromkeys(("TraceShape", "shape_of"), "shape"),
    **dict.fromkeys(("Population", "Trace"), "trace"),
}
__getattr__, __dir__ = attach(__name__, _EXPORTS)
