"""Production variants for A/B tests."""

from __future__ import annotations

import pytest
from aws_cdk import assertions

from mme_constructs import CpuScaling, ModelArtifactStore, MultiModelContainer, MultiModelEndpoint, ProductionVariant
from mme_constructs.errors import EncryptionError, EndpointSettingsError, InstanceCountError, MetricError, VariantError

NEWER = MultiModelContainer.from_framework("xgboost", version="3.0-5")


def _endpoint(stack, *variants, **props):
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    return MultiModelEndpoint(
        stack,
        "Endpoint",
        store=ModelArtifactStore(stack, "Store"),
        container=container,
        endpoint_name="shared",
        variants=[ProductionVariant(**variant) for variant in variants],
        **props,
    )


AB = (
    {"name": "Champion", "weight": 9},
    {"name": "Challenger", "container": NEWER, "instance_type": "ml.c5.2xlarge", "min_instances": 1, "scaling": CpuScaling()},
)


def test_each_variant_takes_what_it_leaves_out_from_the_endpoint(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, *AB, volume_size_gb=100))
    champion, challenger = synthesized.only("AWS::SageMaker::EndpointConfig")["Properties"]["ProductionVariants"]
    keys = ("VariantName", "InstanceType", "InitialInstanceCount", "InitialVariantWeight", "VolumeSizeInGB")
    assert [champion[key] for key in keys] == ["Champion", "ml.m5.xlarge", 2, 9, 100]
    assert [challenger[key] for key in keys] == ["Challenger", "ml.c5.2xlarge", 1, 1, 100]
    assert champion["ModelName"] != challenger["ModelName"]


def test_variants_of_one_container_share_its_model(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, {"name": "A"}, {"name": "B", "weight": 3}))
    one, other = synthesized.only("AWS::SageMaker::EndpointConfig")["Properties"]["ProductionVariants"]
    assert one["ModelName"] == other["ModelName"]
    assert len(synthesized.resources("AWS::SageMaker::Model")) == 1


def test_each_variant_is_auto_scaled_on_its_own(synthesize_stack):
    synthesized = synthesize_stack(lambda stack: _endpoint(stack, *AB))
    targets = [item["Properties"] for item in synthesized.resources("AWS::ApplicationAutoScaling::ScalableTarget").values()]
    assert [(item["ResourceId"]["Fn::Join"][1][-1], item["MinCapacity"], item["MaxCapacity"]) for item in targets] == [
        ("/variant/Champion", 2, 4),
        ("/variant/Challenger", 1, 2),
    ]
    names = {item["Properties"]["PolicyName"] for item in synthesized.resources("AWS::ApplicationAutoScaling::ScalingPolicy").values()}
    assert names == {"InvocationsPerInstance", "CpuUtilization"}


def test_metrics_are_asked_for_by_variant(stack):
    endpoint = _endpoint(stack, *AB)
    assert endpoint.variants == ("Champion", "Challenger")
    assert endpoint.metric("Invocations").dimensions == {"EndpointName": "shared", "VariantName": "Champion"}
    assert endpoint.metric("Invocations", variant="Challenger").dimensions["VariantName"] == "Challenger"
    with pytest.raises(MetricError, match="no such variant: got 'Other'"):
        endpoint.metric("Invocations", variant="Other")


def test_several_variants_carry_a_warning_and_one_does_not(stack):
    _endpoint(stack, *AB)
    assertions.Annotations.from_stack(stack).has_warning("/Test/Endpoint", assertions.Match.string_like_regexp("documents disagree"))


def test_one_variant_carries_no_warning(stack):
    _endpoint(stack)
    assertions.Annotations.from_stack(stack).has_no_warning("*", assertions.Match.any_value())


@pytest.mark.parametrize(
    ("variants", "error", "text"),
    [
        ([{"name": f"V{n}"} for n in range(11)], VariantError, "got 11; allowed: 1 to 10"),
        ([{"name": "A"}, {"name": "A"}], VariantError, "share a name"),
        ([{"name": "A", "weight": 0}, {"name": "B", "weight": 0}], VariantError, "No variant gets requests"),
        ([{"name": "A", "weight": -1}], VariantError, "negative: got -1"),
        ([{"name": "A_B"}], VariantError, "got 'A_B'; allowed: 1 to 63 letters"),
        ([{"name": "A" * 64}], VariantError, "1 to 63 letters"),
        ([{"name": "A", "min_instances": 0}], InstanceCountError, "cannot scale to zero"),
        ([{"name": "A", "instance_type": "ml.g5.xlarge", "volume_size_gb": 10}], EndpointSettingsError, "get no EBS volume"),
    ],
)
def test_rejects_variants_that_are_known_to_fail(stack, variants, error, text):
    with pytest.raises(error) as caught:
        _endpoint(stack, *variants)
    assert text in str(caught.value)


def test_rejects_a_key_if_one_variant_has_local_storage(stack):
    from aws_cdk import aws_kms as kms

    with pytest.raises(EncryptionError, match=r"ml\.m5d\.large"):
        _endpoint(stack, {"name": "A"}, {"name": "B", "instance_type": "ml.m5d.large"}, encryption_key=kms.Key(stack, "Key"))
