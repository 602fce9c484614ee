"""Constants of a fleet."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FleetSettings"]


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Constants of a fleet. The defaults of all but the first three limit nothing.

    Attributes:
        model_overhead_bytes: memory that one worker of a loaded model takes on top of its unpacked artifact.
        load_wait_seconds: how long a request waits to be forwarded. When the time is up it gets ModelNotReadyException while
            the load goes on, or, if the model is in memory and all its workers are busy, the error of an answer that took too long.
        load_attempts: how often a load that ends out of memory is tried in all.
        load_concurrency: loads that an instance does at once; ``None`` for any number. A load counts from its download, or
            from its turn if the artifact lies on disk, until the model is in memory; the others keep their order.
        cache_enabled: `ModelCacheSetting`. With ``False`` a model is unloaded and its artifact removed from disk once no
            request for it is left on the instance.
        uncached_load_factor: with ``cache_enabled`` off, ``load_concurrency`` counts so many times. AWS raises it by a factor of
            the number of vCPUs (Developer Guide: "Multi-model endpoints").
        workers_per_model: worker processes of a loaded model: each takes the overhead and serves one request at a time.
        workers_share_artifact: the workers share one copy of the unpacked artifact (multi-model-server's ``preload_model``,
            which SageMaker's XGBoost image sets); with ``False`` each has its own.
        model_queue_size: requests of one model that an instance holds beyond those that its workers serve; one more gets the
            container's 503. ``None``: the fleet forwards at once, and the model server queues and refuses by itself.
    """

    model_overhead_bytes: int = 0
    load_wait_seconds: float = 60.0
    load_attempts: int = 3
    load_concurrency: int | None = None
    cache_enabled: bool = True
    uncached_load_factor: int = 1
    workers_per_model: int = 1
    workers_share_artifact: bool = True
    model_queue_size: int | None = None

    def __post_init__(self) -> None:
        for name in ("model_overhead_bytes", "load_wait_seconds", "model_queue_size"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} is {value}: use 0 or more")
        for name in ("load_attempts", "load_concurrency", "uncached_load_factor", "workers_per_model"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: use 1 or more")

    def memory_bytes(self, unpacked_bytes: int) -> int:
        """Memory that a model takes from the start of its load on.

        Args:
            unpacked_bytes: of its artifact.
        """
        copies = 1 if self.workers_share_artifact else self.workers_per_model
        return copies * unpacked_bytes + self.workers_per_model * self.model_overhead_bytes

    @property
    def loads_at_once(self) -> int | None:
        """Loads that an instance does at once, the cache setting considered; ``None`` for any number."""
        if self.load_concurrency is None or self.cache_enabled:
            return self.load_concurrency
        return self.load_concurrency * self.uncached_load_factor
