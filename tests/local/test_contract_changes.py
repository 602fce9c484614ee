"""A change of what a caller may do counts from the very next request on, though the gateway remembers what policies decided."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from mme_local import Credentials
from tests.local.conftest import allow, document

MINE, OTHERS = "acme/m/v1.tar.gz", "globex/m/v1.tar.gz"
INVOKE = "sagemaker:InvokeEndpoint"


def invoked(bench, credentials, target=MINE, endpoint="none"):
    """Whether a caller may invoke: an endpoint that is not there says so to those who may."""
    with pytest.raises(ClientError) as caught:
        bench.client("sagemaker-runtime", credentials).invoke_endpoint(EndpointName=endpoint, TargetModel=target, Body=b"1")
    code = caught.value.response["Error"]["Code"]
    assert code in ("ValidationError", "AccessDeniedException"), code
    return code == "ValidationError"


def name_of(bench, credentials):
    return bench.cloud.client("sts", credentials).get_caller_identity()["Arn"].rpartition("/")[2]


@pytest.fixture
def user(bench):
    return bench.user(allow(INVOKE, "*"))


@pytest.fixture
def iam(bench):
    return bench.client("iam")


def session(bench, *statements, **options):
    """A new role, a user that may assume it, and a session of the two."""
    broker = bench.user(allow(["sts:AssumeRole", "sts:TagSession"], "*"))
    trusted = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole", "sts:TagSession"]}
    role = bench.role({"Statement": [trusted]}, *statements)
    return role, bench.cloud.assume_role(role, "session", source=broker, **options), broker


def test_a_users_policy_that_is_rewritten_removed_and_put_back(bench, iam, user):
    name = name_of(bench, user)
    assert invoked(bench, user)
    iam.put_user_policy(
        UserName=name, PolicyName="given", PolicyDocument=document(allow(INVOKE, "*", StringLike={"sagemaker:TargetModel": "acme/*"}))
    )
    assert (invoked(bench, user), invoked(bench, user, OTHERS)) == (True, False)
    iam.delete_user_policy(UserName=name, PolicyName="given")
    assert not invoked(bench, user)
    iam.put_user_policy(UserName=name, PolicyName="given", PolicyDocument=document(allow(INVOKE, "*")))
    assert invoked(bench, user)


def test_a_denial_that_is_added(bench, iam, user):
    assert invoked(bench, user)
    deny = {"Effect": "Deny", "Action": INVOKE, "Resource": "*"}
    iam.put_user_policy(UserName=name_of(bench, user), PolicyName="no", PolicyDocument=document(deny))
    assert not invoked(bench, user)


def test_a_managed_policy_that_is_attached_gets_a_new_version_and_is_detached(bench, iam):
    user = bench.user()
    name = name_of(bench, user)
    arn = iam.create_policy(PolicyName=bench.name("policy"), PolicyDocument=document(allow(INVOKE, "*")))["Policy"]["Arn"]
    assert not invoked(bench, user)
    iam.attach_user_policy(UserName=name, PolicyArn=arn)
    assert invoked(bench, user)
    iam.create_policy_version(PolicyArn=arn, PolicyDocument=document(allow("s3:GetObject", "*")), SetAsDefault=True)
    assert not invoked(bench, user)
    iam.create_policy_version(PolicyArn=arn, PolicyDocument=document(allow(INVOKE, "*")), SetAsDefault=True)
    assert invoked(bench, user)
    iam.detach_user_policy(UserName=name, PolicyArn=arn)
    assert not invoked(bench, user)


def test_a_group_that_is_joined_changed_and_left(bench, iam):
    user, group = bench.user(), bench.name("group")
    name = name_of(bench, user)
    iam.create_group(GroupName=group)
    iam.put_group_policy(GroupName=group, PolicyName="given", PolicyDocument=document(allow(INVOKE, "*")))
    assert not invoked(bench, user)
    iam.add_user_to_group(GroupName=group, UserName=name)
    assert invoked(bench, user)
    iam.put_group_policy(GroupName=group, PolicyName="given", PolicyDocument=document(allow("s3:GetObject", "*")))
    assert not invoked(bench, user)
    iam.put_group_policy(GroupName=group, PolicyName="given", PolicyDocument=document(allow(INVOKE, "*")))
    assert invoked(bench, user)
    iam.remove_user_from_group(GroupName=group, UserName=name)
    assert not invoked(bench, user)


def test_a_boundary_that_is_drawn_and_removed(bench, iam, user):
    name = name_of(bench, user)
    narrow = iam.create_policy(PolicyName=bench.name("boundary"), PolicyDocument=document(allow("s3:*", "*")))["Policy"]["Arn"]
    assert invoked(bench, user)
    iam.put_user_permissions_boundary(UserName=name, PermissionsBoundary=narrow)
    assert not invoked(bench, user)
    iam.delete_user_permissions_boundary(UserName=name)
    assert invoked(bench, user)


def test_a_roles_policy_in_a_session_that_is_open(bench, iam):
    role, credentials, _ = session(bench, allow(INVOKE, "*"))
    name = role.rpartition("/")[2]
    assert invoked(bench, credentials)
    iam.put_role_policy(RoleName=name, PolicyName="given", PolicyDocument=document(allow("s3:GetObject", "*")))
    assert not invoked(bench, credentials)
    iam.put_role_policy(RoleName=name, PolicyName="given", PolicyDocument=document(allow(INVOKE, "*")))
    assert invoked(bench, credentials)


def test_sessions_of_one_role_are_told_apart_by_their_tags_and_policies(bench):
    confined = allow(INVOKE, "*", StringLike={"sagemaker:TargetModel": "${aws:PrincipalTag/tenant}/*"})
    role, acme, broker = session(bench, confined, tags={"tenant": "acme"})
    globex = bench.cloud.assume_role(role, "session", tags={"tenant": "globex"}, source=broker)
    untagged = bench.cloud.assume_role(role, "session", source=broker)
    narrowed = bench.client("sts", broker).assume_role(
        RoleArn=role, RoleSessionName="session", Tags=[{"Key": "tenant", "Value": "acme"}], Policy=document(allow("s3:*", "*"))
    )["Credentials"]
    limited = Credentials(narrowed["AccessKeyId"], narrowed["SecretAccessKey"], narrowed["SessionToken"])
    for _ in range(2):
        assert [invoked(bench, caller) for caller in (acme, globex, untagged, limited)] == [True, False, False, False]
        assert [invoked(bench, caller, OTHERS) for caller in (acme, globex, untagged, limited)] == [False, True, False, False]


def test_the_tags_of_a_user(bench, iam):
    user = bench.user(allow(INVOKE, "*", StringLike={"sagemaker:TargetModel": "${aws:PrincipalTag/tenant}/*"}))
    name = name_of(bench, user)
    assert not invoked(bench, user)
    iam.tag_user(UserName=name, Tags=[{"Key": "tenant", "Value": "acme"}])
    assert (invoked(bench, user), invoked(bench, user, OTHERS)) == (True, False)
    iam.tag_user(UserName=name, Tags=[{"Key": "tenant", "Value": "globex"}])
    assert (invoked(bench, user), invoked(bench, user, OTHERS)) == (False, True)
    iam.untag_user(UserName=name, TagKeys=["tenant"])
    assert (invoked(bench, user), invoked(bench, user, OTHERS)) == (False, False)


def test_the_tags_of_a_resource(bench):
    sagemaker = bench.client("sagemaker")
    role = bench.service_role("sagemaker.amazonaws.com")
    container = {"Image": "x/y:1", "Mode": "MultiModel", "ModelDataUrl": "s3://b/models/"}
    arn = sagemaker.create_model(ModelName="tagged", ExecutionRoleArn=role, PrimaryContainer=container)["ModelArn"]
    user = bench.user(allow("sagemaker:DescribeModel", "*", StringEquals={"aws:ResourceTag/team": "ml"}))

    def described():
        headers = {"X-Amz-Target": "SageMaker.DescribeModel", "Content-Type": "application/x-amz-json-1.1"}
        body = json.dumps({"ModelName": "tagged"}).encode()
        answer = bench.call("POST", bench.cloud.endpoint_url + "/", user, body=body, headers=headers, service="sagemaker")
        assert answer.status_code == 200 or answer.json()["__type"] == "AccessDeniedException"
        return answer.status_code == 200

    assert not described()
    sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "ml"}])
    assert described()
    sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "web"}])
    assert not described()


def test_a_key_that_is_put_out_of_use_and_deleted(bench, iam, user):
    name = name_of(bench, user)

    def refused(code):
        with pytest.raises(ClientError) as caught:
            bench.client("sagemaker-runtime", user).invoke_endpoint(EndpointName="none", TargetModel=MINE, Body=b"1")
        return caught.value.response["Error"]["Code"] in code

    assert invoked(bench, user)
    iam.update_access_key(UserName=name, AccessKeyId=user.access_key_id, Status="Inactive")
    assert refused(("InvalidClientTokenId", "UnrecognizedClientException", "InvalidSignatureException"))
    iam.update_access_key(UserName=name, AccessKeyId=user.access_key_id, Status="Active")
    assert invoked(bench, user)
    iam.delete_access_key(UserName=name, AccessKeyId=user.access_key_id)
    assert refused(("InvalidClientTokenId", "UnrecognizedClientException"))


def test_time_that_runs_out(bench):
    until = (datetime.now(UTC) + timedelta(seconds=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    user = bench.user(allow(INVOKE, "*", DateLessThan={"aws:CurrentTime": until}))
    assert invoked(bench, user)
    bench.wait_for(lambda: not invoked(bench, user))
    assert datetime.now(UTC) > datetime.fromisoformat(until)


def test_policies_that_a_stack_gives_and_takes(bench):
    user = bench.user()
    cloudformation = bench.client("cloudformation")

    def deploy(action, waiter, call):
        policy = {"PolicyName": "p", "PolicyDocument": json.loads(document(allow(action, "*"))), "Users": [name_of(bench, user)]}
        template = json.dumps({"Resources": {"P": {"Type": "AWS::IAM::Policy", "Properties": policy}}})
        call(StackName="policies", TemplateBody=template, Capabilities=["CAPABILITY_IAM"])
        cloudformation.get_waiter(waiter).wait(StackName="policies", WaiterConfig={"Delay": 0.1, "MaxAttempts": 200})

    assert not invoked(bench, user)
    deploy(INVOKE, "stack_create_complete", cloudformation.create_stack)
    assert invoked(bench, user)
    deploy("s3:GetObject", "stack_update_complete", cloudformation.update_stack)
    assert not invoked(bench, user)
