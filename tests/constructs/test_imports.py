"""What importing costs: names load on first use."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import mme_constructs
from mme_local.toolchain import node


def _modules_after(code: str, **environment: str) -> set[str]:
    script = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"JSII_NODE": str(node())} | environment,
    )
    return set(json.loads(result.stdout.splitlines()[-1]))


def test_importing_the_package_loads_neither_cdk_nor_boto3():
    modules = _modules_after("import mme_constructs")
    assert {"boto3", "botocore", "aws_cdk", "jsii", "aws_lambda_powertools"} & modules == set()
    assert [name for name in modules if name.startswith("mme_constructs.")] == []


def test_one_construct_loads_only_the_services_it_uses():
    modules = _modules_after("from mme_constructs import TenantRegistry")
    assert "mme_constructs.tenant_registry" in modules
    assert {"aws_cdk.aws_dynamodb", "aws_cdk.aws_iam"} <= modules
    assert {"aws_cdk.aws_sagemaker", "aws_cdk.aws_apigateway", "aws_cdk.aws_lambda", "boto3", "cdk_nag"} & modules == set()
    assert {"mme_constructs.tenant_api", "mme_constructs.multi_model_endpoint"} & modules == set()


def test_using_every_construct_loads_no_boto3_and_no_run_time_of_the_functions(flags):
    modules = _modules_after(
        "import aws_cdk, mme_constructs\n"
        "for name in dir(mme_constructs): getattr(mme_constructs, name)\n"
        "from stacks.reference import build\n"
        "build(aws_cdk.App())",
        CDK_CONTEXT_JSON=json.dumps(flags),
    )
    assert {"boto3", "botocore", "mme_tenancy", "aws_lambda_powertools", "sagemaker"} & modules == set()


@pytest.mark.parametrize("name", dir(mme_constructs))
def test_every_exported_name_exists(name):
    assert getattr(mme_constructs, name).__name__ == name


def test_type_checkers_see_the_names_that_load_lazily():
    import ast
    from pathlib import Path

    tree = ast.parse(Path(mme_constructs.__file__).read_text("utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    assert sorted(alias.name for statement in block.body for alias in statement.names) == dir(mme_constructs)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Elsewhere"):
        _ = mme_constructs.Elsewhere
