from __future__ import annotations

import botocore.session
import pytest

from mme_facts.instances import (
    LEFT_OUT,
    InstanceTypeError,
    family,
    has_local_storage,
    instance,
    instance_types,
    is_burstable,
    mme_gpu_types,
)
from mme_facts.metrics import ENDPOINT_METRICS, INSTANCE_NAMESPACE, INVOCATION_NAMESPACE


@pytest.mark.parametrize(
    ("instance_type", "expected"), [("ml.m5.xlarge", "m5"), ("ml.p6-b200.48xlarge", "p6-b200"), ("ml.g4dn.2xlarge", "g4dn")]
)
def test_the_family_is_the_middle_of_the_type(instance_type, expected):
    assert family(instance_type) == expected


@pytest.mark.parametrize("instance_type", ["m5.xlarge", "ml.m5", "ml..xlarge", "ML.m5.xlarge", ""])
def test_rejects_what_is_no_sagemaker_instance_type(instance_type):
    with pytest.raises(InstanceTypeError, match=r"such as 'ml\.m5\.xlarge'"):
        family(instance_type)


@pytest.mark.parametrize(("instance_type", "local"), [("ml.m5.xlarge", False), ("ml.m5d.xlarge", True), ("ml.g5.xlarge", True)])
def test_the_d_families_and_gpu_families_have_local_storage(instance_type, local):
    assert has_local_storage(instance_type) is local


def test_t2_is_burstable_and_m5_is_not():
    assert is_burstable("ml.t2.medium")
    assert not is_burstable("ml.m5.large")


@pytest.fixture(scope="module")
def accepted():
    """The types that CreateEndpointConfig accepts."""
    model = botocore.session.get_session().get_service_model("sagemaker")
    return frozenset(model.shape_for("ProductionVariantInstanceType").enum)


def test_the_catalogue_is_what_sagemaker_accepts_apart_from_what_it_says_it_left_out(accepted):
    assert {found.name for found in instance_types()} | set(LEFT_OUT) == accepted
    assert not {found.name for found in instance_types()} & set(LEFT_OUT)


CPU_FAMILIES = [
    *("t2", "m4", "m5", "m5d", "m6i", "m7i", "m6g", "m6gd", "m8g"),
    *("c4", "c5", "c5d", "c6i", "c7i", "c6in", "c6g", "c6gd", "c6gn", "c7g", "c8g"),
    *("r5", "r5d", "r6i", "r7i", "r6g", "r6gd", "r7gd", "r8g"),
]
MEBIBYTES_PER_VCPU = {"c": 2048, "m": 4096, "r": 8192}


@pytest.mark.parametrize("name", CPU_FAMILIES)
def test_every_cpu_family_of_sagemaker_is_covered_and_follows_its_familys_rules(name):
    types = [found for found in instance_types() if family(found.name) == name]
    assert types
    for found in types:
        assert (found.gpus, found.gpu_memory_mib, found.other_accelerators) == (0, 0, 0)
        assert (found.nvme_gb > 0) is ("d" in name[2:])
        assert found.architecture == ("arm64" if "g" in name[2:] else "x86_64")
        if name not in {"t2", "c4"}:  # sizes of t2 differ in memory only; c4 has 1.875 GiB a vCPU or less
            assert found.memory_mib == found.vcpus * MEBIBYTES_PER_VCPU[name[0]]
        if name[0] != "t" and found.name.partition(f".{name}.")[2].removesuffix("xlarge").isdigit() and name != "c4":
            assert found.vcpus == 4 * int(found.name.partition(f".{name}.")[2].removesuffix("xlarge"))


def test_the_gpu_types_of_the_multi_model_documentation_have_one_gpu_each():
    assert len(mme_gpu_types()) == 12
    assert {family(name) for name in mme_gpu_types()} == {"p2", "p3", "g5", "g4dn"}
    for name in mme_gpu_types():
        assert instance(name).gpus == 1, name


@pytest.mark.parametrize("name", ["g4dn", "g5", "g6", "g6e", "g7", "g7e", "p2", "p3", "p4d", "p4de", "p5", "p5e", "p5en"])
def test_a_gpu_has_the_same_memory_in_every_size_of_its_family(name):
    types = [found for found in instance_types() if family(found.name) == name]
    assert all(found.gpus for found in types)
    assert len({found.gpu_memory_mib / found.gpus for found in types}) == 1


@pytest.mark.parametrize(
    ("name", "vcpus", "memory_mib", "gpus", "gpu_memory_mib", "nvme_gb", "architecture"),
    [
        ("ml.m5.xlarge", 4, 16384, 0, 0, 0, "x86_64"),
        ("ml.c4.8xlarge", 36, 61440, 0, 0, 0, "x86_64"),
        ("ml.r7gd.16xlarge", 64, 524288, 0, 0, 3800, "arm64"),
        ("ml.g4dn.2xlarge", 8, 32768, 1, 16384, 225, "x86_64"),
        ("ml.g5.12xlarge", 48, 196608, 4, 91552, 3800, "x86_64"),
        ("ml.p3.2xlarge", 8, 62464, 1, 16384, 0, "x86_64"),
    ],
)
def test_known_types(name, vcpus, memory_mib, gpus, gpu_memory_mib, nvme_gb, architecture):
    found = instance(name)
    assert (found.vcpus, found.memory_mib, found.gpus, found.gpu_memory_mib) == (vcpus, memory_mib, gpus, gpu_memory_mib)
    assert (found.nvme_gb, found.architecture) == (nvme_gb, architecture)


def test_accelerators_that_are_no_gpus_are_counted_apart():
    assert (instance("ml.inf2.48xlarge").gpus, instance("ml.inf2.48xlarge").other_accelerators) == (0, 12)


@pytest.mark.parametrize(
    ("name", "named"), [("ml.m5.3xlarge", "ml.m5.2xlarge"), ("ml.z9.large", "families c4, c5"), ("m5.large", "such as 'ml.m5.xlarge'")]
)
def test_an_unknown_type_is_refused_with_what_is_known(name, named):
    with pytest.raises(InstanceTypeError) as caught:
        instance(name)
    assert repr(name) in str(caught.value)
    assert named in str(caught.value)


def test_a_type_that_was_left_out_still_has_its_storage_rule():
    assert has_local_storage("ml.p6e-gb200.36xlarge")


def test_every_metric_has_a_namespace_of_sagemaker_and_a_default_statistic():
    for metric in ENDPOINT_METRICS.values():
        assert metric.namespace in {INVOCATION_NAMESPACE, INSTANCE_NAMESPACE}
        assert metric.statistics
        assert metric.unit in {"None", "Microseconds", "Percent"}
