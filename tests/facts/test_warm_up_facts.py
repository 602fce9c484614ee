from __future__ import annotations

import json

import pytest

from mme_facts.instances import InstanceTypeError, instance, instance_types, load_slots, models_memory_bytes
from mme_facts.warm_up import WarmUpEndpoint, WarmUpRules, WarmUpSettings

ENDPOINT = WarmUpEndpoint("trees", "trees-endpoint", "AllTraffic", 12 << 30, 4)


def test_rules_come_back_as_they_were_written():
    rules = WarmUpRules(
        (ENDPOINT, WarmUpEndpoint("others", "others-endpoint", "Blue", 1, 1)),
        WarmUpSettings(reserve_share=0.0, seconds=600.0),
        ("acme/churn", "globex/churn"),
        prefetch=True,
    )
    assert WarmUpRules.load(rules.dump()) == rules


@pytest.mark.parametrize(
    ("name", "values"),
    {
        "reserve_share": (-0.1, 0.91),
        "traffic_share": (0, 1.01),
        "least_calls_per_second": (0, -1, float("inf"), float("nan")),
        "in_flight_share": (0, 1.01),
        "seconds": (9, 3601),
    }.items(),
)
def test_limits_out_of_their_range_are_refused_by_name(name, values):
    for value in values:
        with pytest.raises(ValueError, match=f"{name} is "):
            WarmUpSettings(**{name: value})


@pytest.mark.parametrize(
    "members",
    [{"pool": "a/b"}, {"endpoint": ""}, {"variant": ""}, {"memory_bytes": 0}, {"load_slots": 0}],
)
def test_endpoints_that_cannot_be_warmed_are_refused_by_name(members):
    given = {"pool": "trees", "endpoint": "one", "variant": "AllTraffic", "memory_bytes": 1, "load_slots": 1}
    with pytest.raises(ValueError, match=next(iter(members))):
        WarmUpEndpoint(**given | members)


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"endpoints": ()}, "endpoints is empty"),
        ({"endpoints": (ENDPOINT, ENDPOINT)}, "named twice"),
        ({"keep_warm": ("acme",)}, "<tenant>/<model>"),
        ({"keep_warm": ("acme/churn/v1",)}, "churn/v1"),
        ({"keep_warm": ("ACME/churn",)}, "ACME"),
        ({"keep_warm": ("acme/churn", "acme/churn")}, "twice"),
    ],
)
def test_rules_that_cannot_be_are_refused(members, text):
    with pytest.raises(ValueError, match=text):
        WarmUpRules(**{"endpoints": (ENDPOINT,), **members})


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("settings"),
        lambda document: document["settings"].update(more=1),
        lambda document: document["endpoints"][0].pop("load_slots"),
        lambda document: document["endpoints"][0].update(memory_bytes=0),
        lambda document: document.update(endpoints=[]),
    ],
)
def test_what_was_not_written_by_dump_is_not_read(change):
    document = json.loads(WarmUpRules((ENDPOINT,)).dump())
    change(document)
    with pytest.raises((ValueError, TypeError, KeyError)):
        WarmUpRules.load(json.dumps(document))


def test_models_get_most_of_an_instances_memory_and_on_gpus_the_gpus():
    assert models_memory_bytes("ml.m5.xlarge") == 13_107 << 20
    gpu = instance("ml.g5.xlarge")
    assert models_memory_bytes("ml.g5.xlarge") == int(gpu.gpu_memory_mib * 0.8) << 20 != int(gpu.memory_mib * 0.8) << 20


def test_every_type_has_memory_for_models_and_slots_to_load_them():
    for found in instance_types():
        assert models_memory_bytes(found.name) > 0
        assert load_slots(found.name) == max(2, found.vcpus)


def test_a_type_that_nobody_knows_has_neither():
    for fact in (models_memory_bytes, load_slots):
        with pytest.raises(InstanceTypeError):
            fact("ml.m99.xlarge")
