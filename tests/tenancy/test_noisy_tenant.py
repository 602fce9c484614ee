"""A tenant at ten times its quota for a minute, on models that are cold: what the others see of it, on the simulated fleet."""

from __future__ import annotations

import random
from heapq import merge
from itertools import accumulate

import pytest

from mme_fleet.results import quantile
from mme_tenancy.errors import ModelLoadingError, ThrottledError
from mme_tenancy.tenants import Quotas
from tests.tenancy.virtual_traffic import ANY_NUMBER, World

WARM_UP, MINUTE = 60.0, 60.0
OTHERS_PER_SECOND, QUOTA = 60.0, 5
OTHERS = [(f"t{tenant:02}", f"m{model}") for tenant in range(60) for model in range(4)]
UNLIMITED = Quotas(requests_per_second=ANY_NUMBER, in_flight=ANY_NUMBER, cold_loads=ANY_NUMBER)
PROCESS, LAMBDA = None, 1
"""Requests that a process of an application takes at a time, and a container of the function."""
FAIR = Quotas(requests_per_second=QUOTA)


def calls(rate, begin, end, choose, seed):
    """Calls at random times."""
    chance, at = random.Random(seed), begin
    while (at := at + chance.expovariate(rate)) < end:
        yield (at, *choose(chance))


def others():
    weights = list(accumulate(1 / rank for rank in range(1, len(OTHERS) + 1)))
    models = random.Random(1).sample(OTHERS, len(OTHERS))
    return calls(OTHERS_PER_SECOND, 0.0, WARM_UP + MINUTE, lambda chance: chance.choices(models, cum_weights=weights)[0], 2)


def noise():
    return calls(10 * QUOTA, WARM_UP, WARM_UP + MINUTE, lambda chance: ("noisy", f"m{chance.randrange(500)}"), 3)


def minute(each, *, quotas=FAIR, plan=False, noisy=True):
    """What the noisy tenant and the others saw in the minute."""
    world = World({tenant: Quotas() for tenant, _ in OTHERS} | {"noisy": quotas}, each=each, plan=plan)
    seen = world.run(merge(others(), noise()) if noisy else others(), counted_from=WARM_UP, noisy="noisy")
    assert not seen[False].refused
    return seen[True], seen[False]


@pytest.fixture(scope="module")
def alone():
    """What the others see without the noisy tenant."""
    return minute(PROCESS, noisy=False)[1]


def rises(seen, alone):
    """Of the p99, as a ratio, and of the cold-load ratio, as a difference."""
    return quantile(seen.seconds, 0.99) / quantile(alone.seconds, 0.99) - 1, seen.cold_ratio - alone.cold_ratio


@pytest.mark.parametrize(("each", "plan"), [(PROCESS, False), (LAMBDA, True)])
def test_the_others_hardly_notice_a_noisy_tenant(alone, each, plan):
    noisy, seen = minute(each, plan=plan)
    p99, cold = rises(seen, alone)
    assert p99 <= 0.10
    assert cold <= 0.01
    # It gets what it may have, on models that are mostly cold, and hears 429 or 503 to the rest.
    assert QUOTA * MINUTE * 0.9 <= len(noisy.seconds) <= QUOTA * (MINUTE + 1)
    assert noisy.cold > len(noisy.seconds) / 2
    assert set(noisy.refused) <= {ThrottledError, ModelLoadingError}


def test_without_limits_the_others_suffer(alone):
    noisy, seen = minute(PROCESS, quotas=UNLIMITED)
    p99, cold = rises(seen, alone)
    assert not noisy.refused
    assert p99 > 1
    assert cold > 0.05


def test_limits_of_single_containers_hold_nobody_when_each_takes_one_request_at_a_time(alone):
    # Why the API needs usage plans: docs/decisions/0033. The calls spread, and no container sees enough of them.
    noisy, seen = minute(LAMBDA)
    p99, cold = rises(seen, alone)
    assert sum(noisy.refused.values()) < 0.01 * len(noisy.seconds)
    assert p99 > 1
    assert cold > 0.05
