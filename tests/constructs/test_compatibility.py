from __future__ import annotations

import aws_cdk as cdk
import pytest

from mme_constructs import MultiModelContainer, ServerFamily
from mme_constructs.compatibility import check_container_on_instance
from mme_constructs.errors import CompatibilityError
from mme_facts.instances import family, instance_types, mme_gpu_types

XGBOOST = MultiModelContainer.from_framework("xgboost", version="1.7-1")
XGBOOST_ARM = MultiModelContainer.from_framework("xgboost", version="1.5-1", architecture="arm64")
TRITON = MultiModelContainer.from_framework("triton", version="26.05")
TRITON_CPU = MultiModelContainer.from_framework("triton", version="26.05", processor="cpu")
OWN_TRITON = MultiModelContainer.from_image_uri("444455556666.dkr.ecr.eu-west-1.amazonaws.com/server:v1", server=ServerFamily.TRITON)
OWN_SERVER = MultiModelContainer.from_image_uri("444455556666.dkr.ecr.eu-west-1.amazonaws.com/server:v1")
SINGLE = MultiModelContainer.from_framework("sklearn", version="1.2-1", multi_model=False)


@pytest.mark.parametrize(
    ("container", "instance_type"),
    [
        (XGBOOST, "ml.m5.xlarge"),
        (XGBOOST, "ml.t2.medium"),
        (OWN_SERVER, "ml.c7i.48xlarge"),
        (XGBOOST_ARM, "ml.c7g.large"),
        (TRITON_CPU, "ml.c6i.2xlarge"),
        (OWN_TRITON, "ml.c6i.2xlarge"),
        (OWN_TRITON, "ml.g4dn.xlarge"),
        (SINGLE, "ml.g5.xlarge"),
        *((TRITON, name) for name in mme_gpu_types()),
    ],
)
def test_what_serves_without_a_caution(container, instance_type):
    assert check_container_on_instance(container, instance_type) == ()


@pytest.mark.parametrize(
    ("container", "instance_type", "message"),
    [
        (XGBOOST, "ml.g5.xlarge", "On GPU types only Triton serves multi-model endpoints: got 'xgboost on ml.g5.xlarge'"),
        (OWN_SERVER, "ml.g4dn.xlarge", "got 'another server on ml.g4dn.xlarge'"),
        (TRITON, "ml.g5.12xlarge", "single-GPU types only: got 'ml.g5.12xlarge with 4 GPUs'"),
        (TRITON, "ml.g6.xlarge", "does not document this GPU type"),
        (TRITON, "ml.m5.xlarge", "built for GPUs and the instance type has none"),
        (TRITON_CPU, "ml.g5.xlarge", "leaves the GPU unused"),
        (SINGLE, "ml.p3.8xlarge", "single-GPU types only"),
        (XGBOOST, "ml.m6g.large", "another architecture than ml.m6g.large: got 'x86_64'; allowed: arm64"),
        (XGBOOST_ARM, "ml.m5.large", "got 'arm64'; allowed: x86_64"),
        (XGBOOST, "ml.inf2.xlarge", "Inferentia"),
        (XGBOOST, "ml.trn1.2xlarge", "Trainium"),
        (XGBOOST, "m5.large", "Not an instance type"),
    ],
)
def test_rejects_what_cannot_serve(container, instance_type, message):
    with pytest.raises(CompatibilityError) as caught:
        check_container_on_instance(container, instance_type)
    assert message in str(caught.value)


@pytest.mark.parametrize("instance_type", ["ml.g5.12xlarge", "ml.g6.xlarge"])
def test_an_error_about_gpu_types_names_every_documented_one(instance_type):
    with pytest.raises(CompatibilityError) as caught:
        check_container_on_instance(TRITON, instance_type)
    assert all(name in str(caught.value) for name in mme_gpu_types())


def test_a_newer_single_gpu_type_can_be_tried_with_a_caution():
    tried = [found.name for found in instance_types() if found.gpus == 1 and found.name not in mme_gpu_types()]
    assert {family(name) for name in tried} == {"g6", "g6e", "g7", "g7e", "p5"}
    for name in tried:
        (caution,) = check_container_on_instance(TRITON, name, allow_undocumented_gpu=True)
        assert caution.id == "mme-constructs:undocumented-gpu-type"
        assert name in caution.text


def test_the_override_does_not_reach_several_gpus():
    with pytest.raises(CompatibilityError, match="single-GPU types only"):
        check_container_on_instance(TRITON, "ml.g6.12xlarge", allow_undocumented_gpu=True)


def test_a_type_that_the_catalogue_does_not_know_is_a_caution():
    (caution,) = check_container_on_instance(XGBOOST, "ml.m99.large")
    assert caution.id == "mme-constructs:instance-type-not-in-catalogue"
    assert "ml.m99.large" in caution.text


def test_a_token_is_not_checked(stack):
    assert check_container_on_instance(XGBOOST, cdk.CfnParameter(stack, "Type").value_as_string) == ()


def test_every_type_is_decided_for_every_container():
    for container in (XGBOOST, XGBOOST_ARM, TRITON, TRITON_CPU, OWN_SERVER, SINGLE):
        accepted = {found.name for found in instance_types() if _accepts(container, found.name)}
        assert accepted
        assert all(found.architecture == container.architecture for found in instance_types() if found.name in accepted)


def _accepts(container, name):
    try:
        check_container_on_instance(container, name)
    except CompatibilityError:
        return False
    return True
