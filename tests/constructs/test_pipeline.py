"""Serial inference pipelines with one multi-model container."""

from __future__ import annotations

import pytest

from mme_constructs import InferencePipeline, ModelArtifactStore, MultiModelContainer, MultiModelEndpoint, PipelineStep
from mme_constructs.errors import PipelineError

MANY = MultiModelContainer.from_framework("xgboost", version="1.7-1", environment={"SAGEMAKER_NUM_MODEL_WORKERS": "2"})
SINGLE = MultiModelContainer.from_framework("scikit-learn", version="1.2-1", multi_model=False)


def _steps(*containers):
    return [PipelineStep(container=container) for container in containers]


def _synthesize(synthesize_stack, pipeline, **props):
    return synthesize_stack(
        lambda stack: MultiModelEndpoint(stack, "Endpoint", store=ModelArtifactStore(stack, "Store"), container=pipeline, **props)
    )


def test_the_containers_stand_in_order_and_one_serves_the_prefix(synthesize_stack):
    pipeline = InferencePipeline([PipelineStep(container=SINGLE, artifact_key="features/v1.tar.gz"), PipelineStep(container=MANY)])
    synthesized = _synthesize(synthesize_stack, pipeline, cache_enabled=False)
    properties = synthesized.only("AWS::SageMaker::Model")["Properties"]
    assert "PrimaryContainer" not in properties
    first, second = properties["Containers"]
    assert (first["Mode"], first["ModelDataUrl"]["Fn::Join"][1][-1]) == ("SingleModel", "/features/v1.tar.gz")
    assert "MultiModelConfig" not in first
    assert (second["Mode"], second["ModelDataUrl"]["Fn::Join"][1][-1]) == ("MultiModel", "/models/")
    assert second["MultiModelConfig"] == {"ModelCacheSetting": "Disabled"}
    assert second["Environment"] == {"SAGEMAKER_NUM_MODEL_WORKERS": "2"}


def test_the_role_pulls_every_image_and_reads_the_one_artifact(synthesize_stack):
    pipeline = InferencePipeline([PipelineStep(container=SINGLE, artifact_key="features/v1.tar.gz"), PipelineStep(container=MANY)])
    policy = str(_synthesize(synthesize_stack, pipeline).only("AWS::IAM::Policy")["Properties"])
    assert "/features/v1.tar.gz" in policy
    assert "repository/sagemaker-xgboost" in policy
    assert "repository/sagemaker-scikit-learn" in policy


def test_a_step_without_artifact_brings_its_model_in_the_image(synthesize_stack):
    synthesized = _synthesize(synthesize_stack, InferencePipeline(_steps(SINGLE, MANY)))
    first, _ = synthesized.only("AWS::SageMaker::Model")["Properties"]["Containers"]
    assert "ModelDataUrl" not in first


@pytest.mark.parametrize(
    ("containers", "text"),
    [
        ([MANY], "got '1 containers'; allowed: 2 to 15"),
        ([MANY, *[SINGLE] * 15], "got '16 containers'"),
        ([SINGLE, SINGLE], "got '0 multi-model containers'"),
        ([MANY, MANY], "got '2 multi-model containers'"),
    ],
)
def test_rejects_pipelines_that_create_model_refuses(containers, text):
    with pytest.raises(PipelineError) as caught:
        InferencePipeline(_steps(*containers))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("container", "key", "text"),
    [(MANY, "models/a.tar.gz", "serves a prefix"), (SINGLE, "features/", "no archive"), (SINGLE, "/features.tar.gz", "no archive")],
)
def test_rejects_artifacts_that_a_step_cannot_load(container, key, text):
    with pytest.raises(PipelineError, match=text):
        PipelineStep(container=container, artifact_key=key)


def test_rejects_variables_that_are_too_large_together():
    large = {f"V{number}": "x" * 1000 for number in range(17)}
    both = [MultiModelContainer.from_framework("xgboost", version="1.7-1", environment=large, multi_model=many) for many in (True, False)]
    with pytest.raises(PipelineError, match=r"allowed: 32,768 bytes"):
        InferencePipeline(_steps(*both))
