"""Type-checked only: a user reads traces, generates traffic, fits settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mme_fleet.traffic import (
    AZURE_2019,
    AZURE_2019_TAIL,
    GENAI_2026,
    GENAI_LOAD_SECONDS,
    GENAI_LORA_LOAD_SECONDS,
    AzureSample,
    Bursts,
    Churn,
    Distribution,
    Diurnal,
    GenAiRequests,
    LoadBySize,
    Lognormal,
    Mixture,
    Periodic,
    Popularity,
    Population,
    Sessions,
    Trace,
    TraceFormatError,
    TraceShape,
    TrafficSettings,
    Zipf,
    fit,
    fit_mixture,
    generate,
    read_azure,
    read_genai_loads,
    read_genai_requests,
    shape_of,
)


def settings() -> TrafficSettings:
    popularity: Popularity = Zipf(0.9)
    memory: Distribution = Mixture(((1.0, Lognormal(2e8, 1)), (2.0, Lognormal(1e9, 0.5))))
    return TrafficSettings(
        models=100,
        requests=1000,
        popularity=popularity,
        diurnal=Diurnal(0.5),
        sessions=Sessions(),
        bursts=Bursts(0.1),
        periodic=Periodic(0.1),
        churn=Churn(0.9),
        memory_bytes=memory,
        load_seconds=LoadBySize(),
    )


def simulate(arrivals: Iterable[tuple[float, str]], sizes: dict[str, int], loads: dict[str, float]) -> int:
    return sum(sizes[model] for now, model in arrivals if now > loads[model])


def read(folder: Path) -> Trace:
    try:
        sample: AzureSample = read_azure(folder).tail()
        requests: GenAiRequests = read_genai_requests(folder)
    except TraceFormatError as error:
        raise SystemExit(f"{error.path}, line {error.line}") from error
    fit_mixture(read_genai_loads(folder / "loads.csv"))
    return sample.trace(1) if len(sample) else requests.trace(memory_bytes=1, load_seconds=1.0)


trace: Trace = generate(settings(), seed=1)
population: Population = trace.population
simulate(trace.arrivals(), population.sizes(), population.loads())
busy: Trace = trace.between(0, 3600).only(trace.requests_per_model > 0)
requests_of_tenants: list[int] = population.of_tenants(trace.requests_per_model).tolist()
shape: TraceShape = shape_of(busy)
distance: float = shape.distance(shape_of(generate(fit(read(Path("traces"))), seed=2)))
presets: list[TrafficSettings] = [preset.resized(models=10, requests=100) for preset in (AZURE_2019, AZURE_2019_TAIL, GENAI_2026)]
load_times: list[Mixture] = [GENAI_LOAD_SECONDS, GENAI_LORA_LOAD_SECONDS]
