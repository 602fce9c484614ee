"""SageMaker's control plane over HTTP: validation, errors, permissions and the shapes of the answers."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"


def refused(call, code, text=None):
    with pytest.raises(ClientError, match=text) as caught:
        call()
    assert caught.value.response["Error"]["Code"] == code


def model(bench, name="m", **container):
    given = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": "s3://bucket/models/", **container}
    role = bench.service_role("sagemaker.amazonaws.com")
    return {"ModelName": name, "ExecutionRoleArn": role, "PrimaryContainer": given}


def variant(**values):
    return {"VariantName": "AllTraffic", "ModelName": "m", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1, **values}


@pytest.fixture
def sagemaker(bench):
    return bench.client("sagemaker")


@pytest.fixture
def raw(bench):
    return bench.document


class TestShapes:
    def test_models_and_configurations_answer_in_their_shapes(self, bench, raw):
        raw("CreateModel", **model(bench), Tags=[{"Key": "team", "Value": "ml"}])
        described = raw("DescribeModel", ModelName="m")
        assert described["PrimaryContainer"]["Mode"] == "MultiModel"
        assert described["ModelArn"] == "arn:aws:sagemaker:us-east-1:000000000000:model/m"
        raw("CreateEndpointConfig", EndpointConfigName="c", ProductionVariants=[variant()])
        assert raw("DescribeEndpointConfig", EndpointConfigName="c")["ProductionVariants"] == [variant(InitialVariantWeight=1.0)]
        assert raw("ListTags", ResourceArn=described["ModelArn"]) == {"Tags": [{"Key": "team", "Value": "ml"}]}
        raw("AddTags", ResourceArn=described["ModelArn"], Tags=[{"Key": "env", "Value": "dev"}])
        raw("DeleteTags", ResourceArn=described["ModelArn"], TagKeys=["team"])
        assert raw("ListTags", ResourceArn=described["ModelArn"]) == {"Tags": [{"Key": "env", "Value": "dev"}]}
        for operation in ("ListModels", "ListEndpointConfigs", "ListEndpoints"):
            raw(operation)
        raw("DeleteEndpointConfig", EndpointConfigName="c")
        raw("DeleteModel", ModelName="m")

    def test_lists_come_in_pages_and_in_order(self, bench, raw):
        for number in range(5):
            raw("CreateModel", **model(bench, f"m{number}"))
        first = raw("ListModels", SortBy="Name", SortOrder="Ascending", MaxResults=2)
        second = raw("ListModels", SortBy="Name", SortOrder="Ascending", MaxResults=2, NextToken=first["NextToken"])
        assert [item["ModelName"] for item in first["Models"] + second["Models"]] == ["m0", "m1", "m2", "m3"]
        assert [item["ModelName"] for item in raw("ListModels", NameContains="M3")["Models"]] == ["m3"]
        assert raw("ListModels", SortBy="Name")["Models"][0]["ModelName"] == "m4"


class TestValidation:
    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"ModelName": "-m"}, "Member must satisfy regular expression pattern"),
            ({"ModelName": "m" * 64}, "Member must have length less than or equal to 63"),
            ({"ExecutionRoleArn": "arn:aws:iam::000000000000:user/a-user-of-mine"}, "'executionRoleArn' failed to satisfy"),
            ({"PrimaryContainer": {"Mode": "Many"}}, "'primaryContainer.mode' failed to satisfy constraint: Member must satisfy enum"),
            ({"Tags": [{"Key": "a" * 129, "Value": ""}]}, "'tags.1.member.key' failed to satisfy"),
        ],
    )
    def test_bad_values_are_named(self, bench, sagemaker, change, text):
        refused(lambda: sagemaker.create_model(**{**model(bench), **change}), "ValidationException", text)

    def test_missing_members_are_named(self, bench):
        headers = {"X-Amz-Target": "SageMaker.CreateEndpoint", "Content-Type": "application/x-amz-json-1.1"}
        url = bench.cloud.endpoint_url + "/"
        answer = bench.call("POST", url, bench.cloud.admin, body=b"{}", headers=headers, service="sagemaker")
        assert answer.status_code == 400
        assert answer.json()["message"].startswith("2 validation errors detected: Value null at 'endpointName' failed to satisfy")

    @pytest.mark.parametrize("body", [b"[]", b"{", b'{"EndpointName": 1}', b"null"])
    def test_a_body_of_another_type_is_a_serialization_error(self, bench, body):
        headers = {"X-Amz-Target": "SageMaker.DescribeEndpoint", "Content-Type": "application/x-amz-json-1.1"}
        url = bench.cloud.endpoint_url + "/"
        answer = bench.call("POST", url, bench.cloud.admin, body=body, headers=headers, service="sagemaker")
        assert (answer.status_code, answer.json()["__type"]) == (400, "SerializationException")

    @pytest.mark.parametrize(
        ("operation", "body"),
        [
            ("CreateEndpoint", b'{"EndpointName": "e", "EndpointConfigName": "c", "Tags": 5}'),
            ("CreateEndpoint", b'{"EndpointName": "e", "EndpointConfigName": "c", "Tags": [{"Key": "k", "Value": {}}]}'),
            ("CreateEndpoint", b'{"EndpointName": "e", "EndpointConfigName": "c", "Tags": ["k"]}'),
            ("DeleteTags", b'{"ResourceArn": "arn:aws:sagemaker:us-east-1:000000000000:model/m", "TagKeys": 5}'),
        ],
    )
    def test_tags_of_another_type_are_a_serialization_error_before_permissions_read_them(self, bench, operation, body):
        headers = {"X-Amz-Target": f"SageMaker.{operation}", "Content-Type": "application/x-amz-json-1.1"}
        url = bench.cloud.endpoint_url + "/"
        answer = bench.call("POST", url, bench.cloud.admin, body=body, headers=headers, service="sagemaker")
        assert (answer.status_code, answer.json()["__type"]) == (400, "SerializationException")

    def test_members_that_an_operation_does_not_have_play_no_part(self, bench):
        headers = {"X-Amz-Target": "SageMaker.DescribeModel", "Content-Type": "application/x-amz-json-1.1"}
        url = bench.cloud.endpoint_url + "/"
        body = b'{"ModelName": "none", "Tags": 5, "TagKeys": 5}'
        answer = bench.call("POST", url, bench.cloud.admin, body=body, headers=headers, service="sagemaker")
        assert (answer.status_code, answer.json()["__type"]) == (400, "ValidationException")
        assert answer.json()["message"].startswith("Could not find model")

    @pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1])
    def test_a_body_beyond_the_control_planes_limit_names_that_limit(self, bench, size):
        headers = {"X-Amz-Target": "SageMaker.DescribeModel", "Content-Type": "application/x-amz-json-1.1"}
        url = bench.cloud.endpoint_url + "/"
        answer = bench.call("POST", url, bench.cloud.admin, body=b" " * size, headers=headers, service="sagemaker")
        if size == 1 << 20:
            assert (answer.status_code, answer.json()["__type"]) == (400, "SerializationException")
        else:
            expected = (413, "RequestEntityTooLarge", "The body has more than 1048576 bytes.")
            assert (answer.status_code, answer.json()["__type"], answer.json()["message"]) == expected

    def test_an_operation_that_is_not_served_says_so(self, sagemaker):
        refused(sagemaker.list_training_jobs, "UnknownOperationException", "does not serve SageMaker.ListTrainingJobs")

    @pytest.mark.parametrize(
        ("values", "text"),
        [
            ({"ModelName": "other"}, 'Could not find model "arn:aws:sagemaker:us-east-1:000000000000:model/other"'),
            ({"VariantName": "a_b"}, "regular expression"),
            ({"InstanceType": "ml.none"}, "enum value set"),
            ({"ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}}, "not supported with multi-model"),
        ],
    )
    def test_a_bad_variant_is_refused(self, bench, sagemaker, values, text):
        sagemaker.create_model(**model(bench))
        refused(
            lambda: sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant(**values)]),
            "ValidationException",
            text,
        )

    def test_what_does_not_exist_is_not_found(self, sagemaker):
        arn = "arn:aws:sagemaker:us-east-1:000000000000"
        for call, text in (
            (lambda: sagemaker.describe_model(ModelName="x"), f'Could not find model "{arn}:model/x".'),
            (lambda: sagemaker.delete_model(ModelName="x"), f'Could not find model "{arn}:model/x".'),
            (lambda: sagemaker.describe_endpoint(EndpointName="X"), f'Could not find endpoint "{arn}:endpoint/x".'),
            (lambda: sagemaker.delete_endpoint(EndpointName="x"), "Could not find endpoint"),
            (lambda: sagemaker.describe_endpoint_config(EndpointConfigName="x"), "Could not find endpoint configuration"),
            (lambda: sagemaker.create_endpoint(EndpointName="x", EndpointConfigName="x"), "Could not find endpoint configuration"),
            (lambda: sagemaker.list_tags(ResourceArn=f"{arn}:endpoint/x"), "Could not find endpoint"),
        ):
            refused(call, "ValidationException", text)


class TestPermissions:
    def test_a_policy_for_one_model_allows_no_other(self, bench):
        arn = "arn:aws:sagemaker:us-east-1:000000000000:model/mine"
        reader = bench.user({"Effect": "Allow", "Action": "sagemaker:DescribeModel", "Resource": arn})
        client = bench.client("sagemaker", reader)
        refused(lambda: client.describe_model(ModelName="mine"), "ValidationException", "Could not find model")
        refused(
            lambda: client.describe_model(ModelName="other"), "AccessDeniedException", "not authorized to perform: sagemaker:DescribeModel"
        )
        refused(client.list_models, "AccessDeniedException")

    def test_creating_an_endpoint_needs_its_configuration_too(self, bench):
        arn = "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e"
        creator = bench.user({"Effect": "Allow", "Action": "sagemaker:CreateEndpoint", "Resource": arn})
        call = bench.client("sagemaker", creator).create_endpoint
        refused(lambda: call(EndpointName="e", EndpointConfigName="c"), "AccessDeniedException", "endpoint-config/c")

    def test_passing_a_role_needs_pass_role(self, bench):
        creator = bench.user({"Effect": "Allow", "Action": "sagemaker:*", "Resource": "*"})
        given = model(bench)
        refused(lambda: bench.client("sagemaker", creator).create_model(**given), "AccessDeniedException", "iam:PassRole")
        condition = {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
        passer = bench.user(
            {"Effect": "Allow", "Action": "sagemaker:*", "Resource": "*"},
            {"Effect": "Allow", "Action": "iam:PassRole", "Resource": given["ExecutionRoleArn"], "Condition": condition},
        )
        bench.client("sagemaker", passer).create_model(**given)

    def test_a_role_that_does_not_trust_sagemaker_is_refused(self, bench, sagemaker):
        given = {**model(bench), "ExecutionRoleArn": bench.service_role("lambda.amazonaws.com")}
        refused(lambda: sagemaker.create_model(**given), "ValidationException", "Could not assume role")
        missing = "arn:aws:iam::000000000000:role/there-is-none"
        refused(lambda: sagemaker.create_model(**{**given, "ExecutionRoleArn": missing}), "ValidationException", "Could not assume role")

    def test_tags_of_resources_and_requests_decide(self, bench, sagemaker):
        by_tag = {"StringEquals": {"aws:ResourceTag/team": "ml"}}
        reader = bench.user({"Effect": "Allow", "Action": "sagemaker:DescribeModel", "Resource": "*", "Condition": by_tag})
        sagemaker.create_model(**model(bench, "tagged"), Tags=[{"Key": "team", "Value": "ml"}])
        sagemaker.create_model(**model(bench, "plain"))
        client = bench.client("sagemaker", reader)
        client.describe_model(ModelName="tagged")
        refused(lambda: client.describe_model(ModelName="plain"), "AccessDeniedException")
        by_request = {"StringEquals": {"aws:RequestTag/team": "ml"}}
        tagger = bench.client(
            "sagemaker", bench.user({"Effect": "Allow", "Action": "sagemaker:AddTags", "Resource": "*", "Condition": by_request})
        )
        arn = sagemaker.describe_model(ModelName="plain")["ModelArn"]
        refused(lambda: tagger.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "other"}]), "AccessDeniedException")
        tagger.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "ml"}])
