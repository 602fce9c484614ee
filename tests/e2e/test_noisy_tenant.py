"""A noisy tenant beside others on real model servers: what tests/tenancy/test_noisy_tenant.py bounds on the simulated fleet is reported.

Two instances of the real multi-model server hold eight models each; every load starts processes. So the load of this machine is in the
figures, and only what does not depend on it is asserted.
"""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from benchmarks.simulated_platform import simulated_platform
from mme_fleet.results import quantile
from mme_local import LocalSettings
from mme_local.dataplane import DataPlaneSettings
from mme_tenancy import TenancyError
from mme_tenancy.tenants import Quotas

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
MODELS_PER_INSTANCE = 8
OTHERS = [(f"quiet-{tenant}", f"m{model}") for tenant in range(4) for model in range(2)]
OTHERS_PER_SECOND, QUOTA, NOISY_MODELS = 10.0, 1, 40
NOISY = {"limited": Quotas(requests_per_second=QUOTA), "unlimited": Quotas(requests_per_second=10**6, in_flight=10**4, cold_loads=1000)}
ALONE_SECONDS, NOISY_SECONDS, UNLIMITED_SECONDS = 20.0, 60.0, 15.0


@dataclass
class Seen:
    """What callers of one kind saw."""

    seconds: list = field(default_factory=list)
    cold: int = 0
    errors: Counter = field(default_factory=Counter)

    @property
    def cold_ratio(self):
        return self.cold / max(len(self.seconds), 1)

    def __str__(self):
        p50, p99 = (quantile(self.seconds, share) * 1000 for share in (0.5, 0.99)) if self.seconds else (0.0, 0.0)
        errors = ", ".join(f"{count} x {name}" for name, count in self.errors.items()) or "no errors"
        return f"{len(self.seconds)} answers, p50 {p50:.0f} ms, p99 {p99:.0f} ms, {self.cold_ratio:.1%} cold, {errors}"


@pytest.fixture(scope="module")
def platform(demo_models):
    folder, (demo, *_) = demo_models
    plane = DataPlaneSettings()
    model_bytes = plane.model_overhead_bytes + 4 * 2**20
    # A request for a model that is not in memory is told so at once: then its caller knows that it was cold.
    plane = DataPlaneSettings(instance_memory_bytes=MODELS_PER_INSTANCE * model_bytes, load_wait_seconds=0.05, load_concurrency=2)
    noisy = [(tenant, f"m{number}") for tenant in NOISY for number in range(NOISY_MODELS)]
    real = (IMAGE, (folder / demo.artifact).read_bytes())
    models = {name: {} for name in OTHERS + noisy}
    with simulated_platform(models, LocalSettings(data_plane=plane), instances=2, quotas=NOISY, real=real) as platform:
        yield platform, demo.rows[0].encode()


def run(client, row, seconds, noisy=None):
    """Calls of the others, and of the noisy tenant at ten times its quota, each from a thread of its own at its time."""
    chance, calls = random.Random(5), []
    for rate, names in ((OTHERS_PER_SECOND, OTHERS), (10 * QUOTA, [(noisy, f"m{number}") for number in range(NOISY_MODELS)])):
        at = chance.expovariate(rate)
        while names[0][0] is not None and at < seconds:
            calls.append((at, *chance.choice(names)))
            at += chance.expovariate(rate)
    seen, lock, began = {True: Seen(), False: Seen()}, threading.Lock(), time.monotonic()

    def call(tenant, model):
        mine, came = seen[tenant == noisy], time.monotonic()
        try:
            answer = client.invoke(tenant, model, row, content_type="text/csv", timeout_seconds=25)
        except TenancyError as error:
            with lock:
                mine.errors[type(error).__name__] += 1
        else:
            with lock:
                mine.seconds.append(time.monotonic() - came)
                mine.cold += answer.cold

    threads = []
    for at, tenant, model in sorted(calls):
        time.sleep(max(began + at - time.monotonic(), 0))
        threads.append(threading.Thread(target=call, args=(tenant, model)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return seen[True], seen[False]


def test_the_others_go_on_while_a_tenant_is_held_to_its_quota(platform, tell):
    platform, row = platform
    with platform.client() as client:
        for tenant, model in OTHERS:
            client.invoke(tenant, model, row, content_type="text/csv")
        _, alone = run(client, row, ALONE_SECONDS)
        limited, beside = run(client, row, NOISY_SECONDS, "limited")
        unlimited, suffering = run(client, row, UNLIMITED_SECONDS, "unlimited")
    tell(f"the others alone: {alone}")
    tell(f"beside a tenant at ten times its quota, limited: {beside}")
    tell(f"  the tenant: {limited}")
    tell(f"beside one that nothing limits: {suffering}")
    tell(f"  the tenant: {unlimited}")
    assert not alone.errors
    assert not beside.errors
    assert alone.cold == 0
    assert limited.errors["ThrottledError"] > 5 * len(limited.seconds)
    assert 0 < len(limited.seconds) <= QUOTA * (NOISY_SECONDS + 1)
    assert unlimited.errors["ThrottledError"] == 0
    assert beside.cold_ratio < suffering.cold_ratio
