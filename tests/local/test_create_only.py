"""Which changes replace a resource follows the registry schemas that cfn-lint ships."""

from __future__ import annotations

import json

from mme_local.cloudformation.types import REPLACING
from tests.local import create_only


def test_the_data_are_those_of_the_schemas():
    assert json.loads(create_only.FILE.read_text("utf-8")) == create_only.create_only(), "run python -m tests.local.create_only"
    assert create_only.FILE.read_text("utf-8") == create_only.text()


def test_an_endpoint_is_replaced_for_its_name_only_and_its_parts_for_anything():
    assert REPLACING["AWS::SageMaker::Endpoint"] == ["EndpointName"]
    assert "EndpointConfigName" not in REPLACING["AWS::SageMaker::Endpoint"]
    assert {"ProductionVariants", "KmsKeyId"} <= set(REPLACING["AWS::SageMaker::EndpointConfig"])
    assert "Tags" not in REPLACING["AWS::SageMaker::Model"]
    assert REPLACING["AWS::SageMaker::InferenceComponent"] == []
