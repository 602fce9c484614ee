"""How the router decides the hit ratio: the same requests, through four routers, past the loss of a zone."""

import random
from itertools import accumulate

from mme_fleet import (
    Costs,
    FleetSettings,
    InstanceSpec,
    LeastOutstandingRouter,
    LoadCosts,
    LoseZone,
    OneHomeRouter,
    RandomRouter,
    Simulator,
    StickyRouter,
)

GB = 10**9
MODELS = [f"tenant-{number % 50}/model-{number}/v1.tar.gz" for number in range(500)]
ROUTERS = {
    "sticky with spill": StickyRouter,
    "one home": OneHomeRouter,
    "least outstanding": LeastOutstandingRouter,
    "random": lambda: RandomRouter(random.Random(2)),
}


def main() -> None:
    rng = random.Random(1)
    sizes = {model: int(rng.lognormvariate(18.5, 0.8)) for model in MODELS}
    times = accumulate(rng.expovariate(50) for _ in range(30_000))
    asked = rng.choices(MODELS, [1 / rank for rank in range(1, len(MODELS) + 1)], k=30_000)
    requests = list(zip(times, asked, strict=True))

    loads = LoadCosts(
        unpacked_bytes=sizes.__getitem__, download_bytes_per_second=0.2 * GB, load_bytes_per_second=0.5 * GB, load_constant_seconds=0.3
    )
    costs = Costs(
        unpacked_bytes=sizes.__getitem__,
        download_seconds=loads.download_seconds,
        load_seconds=loads.load_seconds,
        service_seconds=lambda _model: 0.02,
    )
    instances = [InstanceSpec(12 * GB, 60 * GB, zone) for zone in ("a", "b", "a", "b")]
    for name, router in ROUTERS.items():
        simulator = Simulator(costs, instances, settings=FleetSettings(load_concurrency=4), router=router)
        results = simulator.run(requests, [(400.0, LoseZone("b", returns_after_seconds=120.0))])
        print(
            f"{name:18} hit ratio {results.hit_ratio:.3f}  loads {results.loads:5}  p99 {results.latency(0.99):6.2f} s  "
            f"errors {dict(results.errors)}"
        )


if __name__ == "__main__":
    main()
