from __future__ import annotations

import pytest

from mme_facts.instances import InstanceTypeError, family, has_local_storage, is_burstable
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


def test_every_metric_has_a_namespace_of_sagemaker_and_a_default_statistic():
    for metric in ENDPOINT_METRICS.values():
        assert metric.namespace in {INVOCATION_NAMESPACE, INSTANCE_NAMESPACE}
        assert metric.statistics
        assert metric.unit in {"None", "Microseconds", "Percent"}
