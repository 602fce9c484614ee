"""What we rely on in the emulator's IAM, and what our patches add to it: the forbidden call is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
from botocore.exceptions import ClientError

from mme_local import Credentials, LocalCloud, patches

NAMED_TAG = {"StringLike": {"aws:RequestTag/tenant": "?*"}}


def statement(actions, resources, **condition):
    given = {"Effect": "Allow", "Action": actions, "Resource": resources}
    return {**given, "Condition": condition} if condition else given


def trust(principal_arn, actions=("sts:AssumeRole", "sts:TagSession"), condition=None):
    given = {"Effect": "Allow", "Principal": {"AWS": principal_arn}, "Action": list(actions)}
    return {"Statement": [{**given, "Condition": condition} if condition else given]}


def user_arn(bench, credentials):
    return bench.cloud.client("sts", credentials).get_caller_identity()["Arn"]


def refused(call, code="AccessDenied"):
    with pytest.raises(ClientError) as caught:
        call()
    assert caught.value.response["Error"]["Code"] == code
    return caught.value.response["Error"]["Message"]


@pytest.fixture
def broker(bench):
    """Someone who may assume every role."""
    return bench.user(statement(["sts:AssumeRole", "sts:TagSession"], "*"))


@pytest.fixture
def files(bench):
    bucket = bench.bucket()
    for key in ("acme/data", "globex/data", "acme-evil/data", "*"):
        bench.client("s3").put_object(Bucket=bucket, Key=key, Body=key.encode())
    return bucket


def tenant_session(bench, broker, tags, *statements):
    role = bench.role(trust(user_arn(bench, broker)), *statements)
    return bench.cloud.assume_role(role, "tenant", tags=tags, source=broker)


class TestPolicyVariables:
    def test_a_session_tag_in_a_resource_confines_to_the_tenants_own_keys(self, bench, broker, files):
        pattern = f"arn:aws:s3:::{files}/${{aws:PrincipalTag/tenant}}/*"
        acme = tenant_session(bench, broker, {"tenant": "acme"}, statement("s3:GetObject", pattern))
        s3 = bench.client("s3", acme)
        assert s3.get_object(Bucket=files, Key="acme/data")["Body"].read() == b"acme/data"
        refused(lambda: s3.get_object(Bucket=files, Key="globex/data"))
        refused(lambda: s3.get_object(Bucket=files, Key="acme-evil/data"))

    def test_a_session_without_the_tag_reaches_nothing(self, bench, broker, files):
        pattern = f"arn:aws:s3:::{files}/${{aws:PrincipalTag/tenant}}/*"
        nobody = tenant_session(bench, broker, {}, statement("s3:GetObject", pattern))
        for key in ("acme/data", "globex/data"):
            refused(lambda key=key: bench.client("s3", nobody).get_object(Bucket=files, Key=key))

    def test_a_session_tag_in_a_condition_value_confines_target_models(self, bench, broker):
        confined = statement("sagemaker:InvokeEndpoint", "*", StringLike={"sagemaker:TargetModel": ["${aws:PrincipalTag/tenant}/*"]})
        acme = tenant_session(bench, broker, {"tenant": "acme"}, confined)
        runtime = bench.client("sagemaker-runtime", acme)
        own = {"EndpointName": "none", "Body": b"1"}
        assert "not found" in refused(lambda: runtime.invoke_endpoint(**own, TargetModel="acme/m/v1.tar.gz"), "ValidationError")
        for foreign in ({"TargetModel": "globex/m/v1.tar.gz"}, {"TargetModel": "acme-evil/m/v1.tar.gz"}, {}):
            refused(lambda foreign=foreign: runtime.invoke_endpoint(**own, **foreign), "AccessDeniedException")

    def test_an_escaped_wildcard_is_a_character(self, bench, files):
        reader = bench.user(statement("s3:GetObject", f"arn:aws:s3:::{files}/${{*}}"))
        s3 = bench.client("s3", reader)
        assert s3.get_object(Bucket=files, Key="*")["Body"].read() == b"*"
        refused(lambda: s3.get_object(Bucket=files, Key="acme/data"))

    def test_an_allow_with_an_unknown_exception_allows_nothing(self, bench, files):
        by_resource = {"Effect": "Allow", "Action": "s3:GetObject", "NotResource": f"arn:aws:s3:::{files}/${{aws:PrincipalTag/tenant}}/*"}
        by_condition = statement("s3:GetObject", "*", StringNotEquals={"aws:username": "${aws:PrincipalTag/tenant}"})
        for given in (by_resource, by_condition):
            s3 = bench.client("s3", bench.user(given))
            refused(lambda s3=s3: s3.get_object(Bucket=files, Key="acme/data"))

    def test_a_deny_with_an_unknown_exception_denies(self, bench, files):
        deny = {"Effect": "Deny", "Action": "s3:*", "NotResource": f"arn:aws:s3:::{files}/${{aws:PrincipalTag/tenant}}/*"}
        s3 = bench.client("s3", bench.user(statement("s3:*", "*"), deny))
        refused(lambda: s3.get_object(Bucket=files, Key="acme/data"))

    def test_the_emulator_alone_still_needs_the_patch(self):
        program = """
            from ministack.core.iam_evaluator import EvalContext, evaluate, parse_policy_document
            policy = {"Statement": {"Effect": "Allow", "Action": "*", "Resource": "arn:aws:s3:::b/${aws:PrincipalTag/tenant}/*"}}
            ctx = EvalContext("arn", "User", "000000000000", "s3:GetObject", "arn:aws:s3:::b/acme/k", "us-east-1",
                              principal_keys={"aws:principaltag/tenant": "acme"})
            print(evaluate(ctx, [parse_policy_document(policy)]).decision)
        """
        ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == "ImplicitDeny"


class TestTrust:
    def test_only_a_named_principal_assumes_a_role(self, bench, broker):
        role = bench.role(trust(user_arn(bench, broker)))
        other = bench.user(statement(["sts:AssumeRole", "sts:TagSession"], "*"))
        bench.cloud.assume_role(role, "session", source=broker)
        refused(lambda: bench.cloud.assume_role(role, "session", source=other))

    def test_a_trusted_principal_without_permission_does_not(self, bench):
        nobody = bench.user()
        role = bench.role(trust(user_arn(bench, nobody)))
        refused(lambda: bench.cloud.assume_role(role, "session", source=nobody))

    def test_a_required_session_tag_must_be_passed(self, bench, broker):
        role = bench.role(trust(user_arn(bench, broker), condition=NAMED_TAG))
        bench.cloud.assume_role(role, "session", tags={"tenant": "acme"}, source=broker)
        for tags in ({}, {"team": "acme"}, {"tenant": ""}):
            refused(lambda tags=tags: bench.cloud.assume_role(role, "session", tags=tags, source=broker))

    def test_tags_need_tag_session_in_the_trust_policy(self, bench, broker):
        role = bench.role(trust(user_arn(bench, broker), actions=["sts:AssumeRole"]))
        bench.cloud.assume_role(role, "session", source=broker)
        refused(lambda: bench.cloud.assume_role(role, "session", tags={"tenant": "acme"}, source=broker))

    def test_a_role_trusts_a_role_and_not_its_neighbour(self, bench, broker):
        permission = statement(["sts:AssumeRole", "sts:TagSession"], "*")
        first = bench.role(trust(user_arn(bench, broker)), permission)
        second = bench.role(trust(user_arn(bench, broker)), permission)
        target = bench.role(trust(first, condition=NAMED_TAG))
        as_first = bench.cloud.assume_role(first, "session", source=broker)
        as_second = bench.cloud.assume_role(second, "session", source=broker)
        bench.cloud.assume_role(target, "session", tags={"tenant": "acme"}, source=as_first)
        refused(lambda: bench.cloud.assume_role(target, "session", tags={"tenant": "acme"}, source=as_second))


class TestLimitsOfPermissions:
    def test_a_session_policy_narrows_the_role(self, bench, broker, files):
        role = bench.role(trust(user_arn(bench, broker)), statement("s3:GetObject", "*"))
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement("s3:GetObject", f"arn:aws:s3:::{files}/acme/*")]})
        keys = bench.client("sts", broker).assume_role(RoleArn=role, RoleSessionName="session", Policy=policy)["Credentials"]
        s3 = bench.client("s3", Credentials(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"]))
        s3.get_object(Bucket=files, Key="acme/data")
        refused(lambda: s3.get_object(Bucket=files, Key="globex/data"))

    def test_a_permissions_boundary_narrows_a_user(self, bench, files):
        iam, user = bench.client("iam"), bench.user(statement("s3:GetObject", "*"))
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement("s3:GetObject", f"arn:aws:s3:::{files}/acme/*")]})
        boundary = iam.create_policy(PolicyName="boundary", PolicyDocument=document)["Policy"]["Arn"]
        iam.put_user_permissions_boundary(UserName=user_arn(bench, user).rpartition("/")[2], PermissionsBoundary=boundary)
        s3 = bench.client("s3", user)
        s3.get_object(Bucket=files, Key="acme/data")
        refused(lambda: s3.get_object(Bucket=files, Key="globex/data"))


class TestCredentials:
    def test_the_root_key_is_refused_everywhere(self, local_cloud: LocalCloud):
        for key in ("000000000000", "test"):
            root = Credentials(key, "test")
            for service, operation in (
                ("s3", "list_buckets"),
                ("dynamodb", "list_tables"),
                ("sagemaker", "list_models"),
                ("sts", "get_caller_identity"),
            ):
                with pytest.raises(ClientError):
                    getattr(local_cloud.client(service, root), operation)()

    @pytest.mark.parametrize(
        ("service", "operation"),
        [
            ("s3", "list_buckets"),
            ("dynamodb", "list_tables"),
            ("sagemaker", "list_models"),
            ("application-autoscaling", "describe_scalable_targets"),
        ],
    )
    def test_a_wrong_secret_is_refused(self, local_cloud, service, operation):
        wrong = Credentials(local_cloud.admin.access_key_id, "wrong")
        options = {"ServiceNamespace": "sagemaker"} if service == "application-autoscaling" else {}
        with pytest.raises(ClientError, match="signature"):
            getattr(local_cloud.client(service, wrong), operation)(**options)

    def test_a_session_without_its_token_is_refused(self, bench, broker):
        session = tenant_session(bench, broker, {}, statement("*", "*"))
        for token in (None, "another"):
            stolen = Credentials(session.access_key_id, session.secret_access_key, token)
            for service, operation in (("dynamodb", "list_tables"), ("sagemaker", "list_models")):
                with pytest.raises(ClientError, match="security token"):
                    getattr(bench.cloud.client(service, stolen), operation)()

    @pytest.mark.parametrize("authorization", [None, "Bearer x", "Basic eDp5"])
    @pytest.mark.parametrize(
        "target", ["DynamoDB_20120810.ListTables", "SageMaker.ListModels", "AnyScaleFrontendService.DescribeScalableTargets"]
    )
    def test_a_call_without_an_aws_signature_is_refused(self, bench, target, authorization):
        headers = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"}
        if authorization:
            headers["Authorization"] = authorization
        answer = bench.call("POST", bench.cloud.endpoint_url + "/", None, body=b"{}", headers=headers)
        assert answer.status_code in (400, 403)
        assert "oken" in answer.text

    @pytest.mark.parametrize("service", ["dynamodb", "sagemaker"])
    def test_a_changed_body_is_refused(self, bench, service):
        target = {"dynamodb": "DynamoDB_20120810.ListTables", "sagemaker": "SageMaker.ListModels"}[service]
        headers = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.0"}
        url = bench.cloud.endpoint_url + "/"
        assert bench.call("POST", url, bench.cloud.admin, body=b"{}", headers=headers, service=service).status_code == 200
        changed = bench.call("POST", url, bench.cloud.admin, body=b"{}", sent_body=b'{"Limit": 1}', headers=headers, service=service)
        assert changed.status_code in (400, 403)

    def test_a_body_that_is_not_the_declared_one_is_refused(self, bench):
        empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        headers = {
            "X-Amz-Target": "DynamoDB_20120810.ListTables",
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Content-SHA256": empty,
        }
        url = bench.cloud.endpoint_url + "/"
        answer = bench.call("POST", url, bench.cloud.admin, body=b"", sent_body=b'{"Limit": 1}', headers=headers, service="dynamodb")
        assert answer.status_code in (400, 403)
        assert "is not the SHA-256 of the body" in answer.text


def test_the_patches_refuse_another_emulator_version(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda package: "1.5.34")
    with pytest.raises(patches.EmulatorVersionError, match=r"1\.5\.34 is installed"):
        patches.apply()
