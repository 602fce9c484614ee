"""The GenAI trace of Alibaba: requests for images with their base model and tenant, and the times of model loads.

Format: alibaba/clusterdata, ``cluster-trace-v2026-GenAI``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mme_fleet.traffic.names import target_models, tenant_names
from mme_fleet.traffic.rows import read_rows
from mme_fleet.traffic.trace import Floats, Integers, Population, Trace

__all__ = ["GenAiRequests", "read_genai_loads", "read_genai_requests"]

_DAY = 86_400.0
_REQUESTS = "alibaba_gentd26_requests.csv.gz"
_COLUMNS = ("gmt_create", "predict_status", "exec_time_seconds", "groupId", "checkpoint_model_version_id", "num_lora")


@dataclass(frozen=True, eq=False)
class GenAiRequests:
    """Requests in the order of time, one entry each in every array.

    Attributes:
        seconds: when they came, from midnight before the first.
        duration_seconds: whole days.
        base_models: names of the base models.
        base_model: which one: position in ``base_models``; -1 where the trace names none.
        groups: names of the tenants.
        group: whose request: position in ``groups``.
        loras: LoRA adapters used.
        service_seconds: execution time.
        succeeded: whether the request did.
    """

    seconds: Floats
    duration_seconds: float
    base_models: tuple[str, ...]
    base_model: Integers
    groups: tuple[str, ...]
    group: Integers
    loras: Integers
    service_seconds: Floats
    succeeded: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.seconds)

    def trace(self, *, memory_bytes: int, load_seconds: float) -> Trace:
        """One model for each pair of tenant and base model, as if every tenant had its own copy.

        Requests without a base model are left out. The trace knows neither sizes nor payloads.

        Args:
            memory_bytes: memory of every model.
            load_seconds: load time of every model.
        """
        known = self.base_model >= 0
        pairs, model = np.unique(self.group[known] * len(self.base_models) + self.base_model[known], return_inverse=True)
        tenant = pairs // len(self.base_models)
        service = self.service_seconds[known]
        count = len(pairs)
        population = Population(
            models=target_models(tenant),
            tenants=tenant_names(len(self.groups)),
            tenant=tenant,
            memory_bytes=np.full(count, memory_bytes),
            load_seconds=np.full(count, float(load_seconds)),
            service_seconds=np.bincount(model, weights=service) / np.bincount(model),
            payload_bytes=np.zeros(count, np.int64),
            born=np.zeros(count),
            gone=np.full(count, np.inf),
        )
        return Trace(population, self.seconds[known], model, self.duration_seconds, service_seconds=service)


def read_genai_requests(path: Path) -> GenAiRequests:
    """Read the file of requests (``alibaba_gentd26_requests.csv.gz``, or the folder that has it).

    Raises:
        TraceFormatError: a line is malformed; the text names file and line.
        OSError: the file cannot be read.
    """
    path = path / _REQUESTS if path.is_dir() else path
    times, base_model, group, loras, service, succeeded = [], [], [], [], [], []
    base_models: dict[str, int] = {}
    groups: dict[str, int] = {}
    for row in read_rows(path, _COLUMNS):
        times.append(row.time(0, "gmt_create"))
        succeeded.append(row.text(1, "predict_status") == "SUCCEED")
        service.append(row.number(2, "exec_time_seconds"))
        group.append(groups.setdefault(row.text(3, "groupId"), len(groups)))
        name = row.cells[4]
        base_model.append(base_models.setdefault(name, len(base_models)) if name else -1)
        loras.append(int(row.number(5, "num_lora")))
    midnight = min(times).replace(hour=0, minute=0, second=0, microsecond=0)
    seconds = np.array([(time - midnight).total_seconds() for time in times])
    order = np.argsort(seconds, kind="stable")
    return GenAiRequests(
        seconds=seconds[order],
        duration_seconds=(np.floor(seconds.max() / _DAY) + 1) * _DAY,
        base_models=tuple(base_models),
        base_model=np.array(base_model)[order],
        groups=tuple(groups),
        group=np.array(group)[order],
        loras=np.array(loras)[order],
        service_seconds=np.array(service)[order],
        succeeded=np.array(succeeded)[order],
    )


def read_genai_loads(path: Path) -> Floats:
    """Seconds of every model load in a file of load times (``alibaba_gentd26_base_load_ms.csv.gz``, ``..._lora_load_ms.csv.gz``).

    Raises:
        TraceFormatError: a line is malformed; the text names file and line.
        OSError: the file cannot be read.
    """
    return np.array([row.number(0, "value") for row in read_rows(path, ("value",))]) / 1000
