"""A fleet under one home routing whose work takes no time is an LRU of bytes on every instance: the comparison of both.

`replay_lru` is written for this alone: it shares no code with the product and knows no instances, only the names of homes.
"""

import random
from itertools import accumulate

from mme_fleet import Costs, HashRing, InstanceSpec, OneHomeRouter, Simulator

MODELS, INSTANCES = 10_000, 8
MIB = 1024 * 1024


def replay_lru(requests, sizes, home_of, capacity):
    """Hits, loads and evictions of each home, and the requests refused because the model is larger than a whole cache."""
    caches = {home: {} for home in home_of.values()}  # model -> bytes; insertion order is the order of use, oldest first
    free = dict.fromkeys(caches, capacity)
    counts = {home: [0, 0, 0] for home in caches}
    refused = 0
    for model in requests:
        home = home_of[model]
        cache, count = caches[home], counts[home]
        if model in cache:
            cache[model] = cache.pop(model)
            count[0] += 1
        elif sizes[model] > capacity:
            refused += 1
        else:
            while free[home] < sizes[model]:
                oldest = next(iter(cache))
                free[home] += cache.pop(oldest)
                count[2] += 1
            cache[model] = sizes[model]
            free[home] -= sizes[model]
            count[1] += 1
    return counts, refused


def traffic(seed: int, count: int) -> tuple[list[str], dict[str, int]]:
    """Requests by Zipf's law whose favourites drift, and mixed sizes, a few of them larger than an instance."""
    rng = random.Random(seed)
    models = [f"tenant-{number % 300}/model-{number}/v1.tar.gz" for number in range(MODELS)]
    sizes = {model: int(min(4096.0, max(1.0, rng.lognormvariate(4, 1.2))) * MIB) + rng.randrange(MIB) for model in models}
    sizes |= dict.fromkeys(rng.sample(models, 20), 32 * 1024 * MIB)
    weights = list(accumulate(1 / (rank + 1) ** 0.9 for rank in range(MODELS)))
    ranks = rng.choices(range(MODELS), cum_weights=weights, k=count)
    return [models[(rank + number // 500) % MODELS] for number, rank in enumerate(ranks)], sizes


def check(seed: int, count: int) -> None:
    """The fleet counts on every instance what the LRU counts."""
    requests, sizes = traffic(seed, count)
    capacity = sum(sizes.values()) // (INSTANCES * 12)
    simulator = Simulator(Costs(unpacked_bytes=sizes.__getitem__), [InstanceSpec(capacity, 10**18)] * INSTANCES, router=OneHomeRouter)
    results = simulator.run((number * 0.001, model) for number, model in enumerate(requests))
    snapshot = simulator.snapshot()

    ring = HashRing([instance.instance for instance in snapshot.instances])
    expected, refused = replay_lru(requests, sizes, {model: ring.home(model) for model in sizes}, capacity)
    # All requests that were forwarded to an instance but did not wait for a load, one a load, were hits.
    found = {entry.instance: [entry.requests - entry.loads, entry.loads, entry.evictions] for entry in snapshot.instances}
    assert found == expected
    totals = [sum(counts) for counts in zip(*expected.values(), strict=True)]
    assert [results.hits, results.loads, results.unloads] == totals
    assert [snapshot.hits, snapshot.cold_loads, snapshot.evictions] == totals
    assert results.errors == {("ModelError", 507): refused}
    assert all(total > count // 100 for total in totals), "too little happened to tell anything"
    assert refused > 0
