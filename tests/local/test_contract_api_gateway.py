"""What we rely on in the emulator's API Gateway and Lambda: signed calls, binary bodies, roles, asynchronous invocations."""

from __future__ import annotations

import base64
import json
import socket

import pytest

from mme_facts.limits import API_GATEWAY_BODY_BYTES, LAMBDA_EVENT_BYTES, api_binary_body_bytes

ECHO = """
    import base64, json
    def handler(event, context):
        body = base64.b64decode(event["body"]) if event.get("isBase64Encoded") else (event.get("body") or "").encode()
        if event["path"].endswith("/binary"):
            return {"statusCode": 200, "headers": {"Content-Type": "application/octet-stream"}, "isBase64Encoded": True,
                    "body": base64.b64encode(body[::-1]).decode()}
        return {"statusCode": 200, "headers": {"Content-Type": "application/json"},
                "body": json.dumps({"path": event["path"], "encoded": event["isBase64Encoded"],
                                    "caller": event["requestContext"]["identity"].get("userArn")})}
"""


def invoke_permission(bench, url, path):
    api = url.partition("://")[2].partition(".")[0]
    return {
        "Effect": "Allow",
        "Action": "execute-api:Invoke",
        "Resource": f"arn:aws:execute-api:{bench.cloud.region}:{bench.cloud.account}:{api}/v1/{path}",
    }


@pytest.fixture
def api(bench):
    return bench.rest_api(bench.function(ECHO))


class TestSignedCalls:
    def test_an_allowed_caller_gets_an_answer(self, bench, api):
        caller = bench.user(invoke_permission(bench, api, "GET/tenants/acme/*"))
        answer = bench.call("GET", f"{api}/tenants/acme/models", caller)
        assert answer.status_code == 200
        assert answer.json()["path"] == "/tenants/acme/models"
        assert ":user/" in answer.json()["caller"]

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("GET", "tenants/globex/models"),
            ("GET", "tenants/acme-evil/models"),
            ("POST", "tenants/acme/models"),
            ("GET", "tenants/acme/../globex/models"),
            ("GET", "tenants//acme/models"),
        ],
    )
    def test_another_path_or_method_is_refused(self, bench, api, method, path):
        caller = bench.user(invoke_permission(bench, api, "GET/tenants/acme/*"))
        assert bench.call(method, f"{api}/{path}", caller).status_code == 403

    def test_a_session_tag_confines_to_the_tenants_paths(self, bench, api):
        broker = bench.user({"Effect": "Allow", "Action": ["sts:AssumeRole", "sts:TagSession"], "Resource": "*"})
        me = bench.cloud.client("sts", broker).get_caller_identity()["Arn"]
        trust = {"Effect": "Allow", "Principal": {"AWS": me}, "Action": ["sts:AssumeRole", "sts:TagSession"]}
        role = bench.role({"Statement": [trust]}, invoke_permission(bench, api, "*/tenants/${aws:PrincipalTag/tenant}/*"))
        acme = bench.cloud.assume_role(role, "acme", tags={"tenant": "acme"}, source=broker)
        assert bench.call("GET", f"{api}/tenants/acme/models", acme).status_code == 200
        assert bench.call("GET", f"{api}/tenants/globex/models", acme).status_code == 403
        nobody = bench.cloud.assume_role(role, "nobody", source=broker)
        assert bench.call("GET", f"{api}/tenants/acme/models", nobody).status_code == 403

    def test_an_unsigned_call_is_refused(self, bench, api):
        for headers in ({}, {"Authorization": "Bearer x"}, {"Authorization": "AWS4-HMAC-SHA256 nonsense"}):
            answer = bench.call("GET", f"{api}/tenants/acme/models", None, headers=headers)
            assert answer.status_code == 403, headers

    def test_a_badly_signed_call_is_refused(self, bench, api):
        admin = bench.cloud.admin
        wrong = type(admin)(admin.access_key_id, "wrong")
        assert bench.call("GET", f"{api}/tenants/acme/models", wrong).status_code == 403
        assert bench.call("POST", f"{api}/tenants/acme/models", admin, body=b"one", sent_body=b"two").status_code == 403
        assert bench.call("GET", f"{api}/tenants/acme/models", type(admin)("000000000000", "test")).status_code == 403

    def test_a_policy_for_another_stage_does_not_allow(self, bench, api):
        permission = invoke_permission(bench, api, "*")
        caller = bench.user({**permission, "Resource": permission["Resource"].replace("/v1/", "/v2/")})
        assert bench.call("GET", f"{api}/tenants/acme/models", caller).status_code == 403


class TestBinaryBodies:
    def test_bytes_reach_the_function_and_come_back_unchanged(self, bench, api):
        body = bytes(range(256)) * 20
        answer = bench.call("POST", f"{api}/binary", bench.cloud.admin, body=body, headers={"Content-Type": "application/x-binary"})
        assert answer.status_code == 200
        assert answer.content == body[::-1]
        assert answer.headers["content-type"] == "application/octet-stream"

    def test_an_answer_to_a_call_that_accepts_nothing_in_particular_stays_in_base64(self, bench, api):
        answer = bench.call("POST", f"{api}/binary", bench.cloud.admin, body=b"abc", headers={"Accept": ""})
        assert (answer.status_code, base64.b64decode(answer.content)) == (200, b"cba")

    def test_every_body_arrives_in_base64_with_the_binary_type_of_everything(self, bench, api):
        answer = bench.call("POST", f"{api}/text", bench.cloud.admin, body=b"1,2,3", headers={"Content-Type": "text/csv"})
        assert answer.json()["encoded"] is True


class TestLimits:
    ANSWERS = """
        import json, time
        def handler(event, context):
            wish = event["queryStringParameters"] or {}
            time.sleep(float(wish.get("seconds", 0)))
            return {"statusCode": 200, "body": "x" * int(wish.get("size", 1))}
    """

    def test_an_event_beyond_the_limit_of_lambda_is_too_large(self, bench):
        api = bench.rest_api(bench.function(self.ANSWERS))
        fits, too_large = api_binary_body_bytes(), LAMBDA_EVENT_BYTES * 3 // 4
        headers = {"Content-Type": "application/octet-stream"}
        assert bench.call("POST", f"{api}/a", bench.cloud.admin, body=b"x" * fits, headers=headers).status_code == 200
        assert bench.call("POST", f"{api}/a", bench.cloud.admin, body=b"x" * too_large, headers=headers).status_code == 413

    def test_an_answer_beyond_the_limit_of_lambda_fails(self, bench):
        api = bench.rest_api(bench.function(self.ANSWERS))
        assert bench.call("GET", f"{api}/a?size={LAMBDA_EVENT_BYTES - 1000}", bench.cloud.admin).status_code == 200
        assert bench.call("GET", f"{api}/a?size={LAMBDA_EVENT_BYTES}", bench.cloud.admin).status_code in (502, 504)

    def test_a_function_that_outlasts_the_integrations_timeout_is_not_waited_for(self, bench):
        api = bench.rest_api(bench.function(self.ANSWERS))
        assert bench.call("GET", f"{api}/a", bench.cloud.admin).status_code == 200  # the function is warm from here on
        api_id = api.partition("://")[2].partition(".")[0]
        gateway = bench.client("apigateway")
        (proxy,) = [item for item in gateway.get_resources(restApiId=api_id)["items"] if item["path"] == "/{proxy+}"]
        change = [{"op": "replace", "path": "/timeoutInMillis", "value": "1000"}]
        gateway.update_integration(restApiId=api_id, resourceId=proxy["id"], httpMethod="ANY", patchOperations=change)
        gateway.create_deployment(restApiId=api_id, stageName="v1")
        assert bench.call("GET", f"{api}/a?seconds=0", bench.cloud.admin).status_code == 200
        assert bench.call("GET", f"{api}/a?seconds=3", bench.cloud.admin).status_code == 504


class TestLimitsOfOtherIntegrations:
    @pytest.fixture
    def integrated(self, bench):
        """Makes a REST API of one resource with an integration of a kind; returns its URL."""

        def make(kind, **settings):
            gateway = bench.client("apigateway")
            api = gateway.create_rest_api(name=bench.name("api"), binaryMediaTypes=["*/*"])["id"]
            root = gateway.get_resources(restApiId=api)["items"][0]["id"]
            where = {
                "restApiId": api,
                "resourceId": gateway.create_resource(restApiId=api, parentId=root, pathPart="a")["id"],
                "httpMethod": "POST",
            }
            gateway.put_method(**where, authorizationType="AWS_IAM")
            gateway.put_integration(**where, type=kind, integrationHttpMethod="POST", **settings)
            gateway.put_method_response(**where, statusCode="200")
            gateway.put_integration_response(**where, statusCode="200")
            gateway.create_deployment(restApiId=api, stageName="v1")
            return f"https://{api}.execute-api.{bench.cloud.region}.amazonaws.com/v1/a"

        return make

    def test_a_body_may_have_10_mb_and_no_byte_more(self, bench, integrated):
        url = integrated("MOCK", requestTemplates={"application/json": '{"statusCode": 200}'})
        assert bench.call("POST", url, bench.cloud.admin, body=b"x" * API_GATEWAY_BODY_BYTES).status_code == 200
        refused = bench.call("POST", url, bench.cloud.admin, body=b"x" * (API_GATEWAY_BODY_BYTES + 1))
        assert (refused.status_code, refused.json()["message"]) == (413, "HTTP content length exceeded 10485760 bytes.")

    def test_a_caller_who_may_not_call_hears_of_that_and_not_of_the_size(self, bench, integrated):
        url = integrated("MOCK", requestTemplates={"application/json": '{"statusCode": 200}'})
        assert bench.call("POST", url, bench.user(), body=b"x" * (API_GATEWAY_BODY_BYTES + 1)).status_code == 403

    def test_a_server_that_does_not_answer_is_not_waited_for(self, bench, integrated):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = integrated("HTTP_PROXY", uri=f"http://127.0.0.1:{silent.getsockname()[1]}/", timeoutInMillis=1000)
            refused = bench.call("POST", url, bench.cloud.admin, body=b"1")
        assert (refused.status_code, refused.json()["message"]) == (504, "Endpoint request timed out")


def test_a_gateway_response_replaces_the_body_of_a_refusal(bench, api):
    api_id = api.partition("://")[2].partition(".")[0]
    template = '{"type":"urn:mme:problem:forbidden","status":403,"detail":$context.error.messageString}'
    gateway = bench.client("apigateway")
    for kind in ("MISSING_AUTHENTICATION_TOKEN", "ACCESS_DENIED", "DEFAULT_4XX"):
        gateway.put_gateway_response(
            restApiId=api_id,
            responseType=kind,
            statusCode="403",
            responseTemplates={"application/json": template},
            responseParameters={"gatewayresponse.header.Content-Type": "'application/problem+json'"},
        )
    gateway.create_deployment(restApiId=api_id, stageName="v1")
    for caller in (None, bench.user()):
        answer = bench.call("GET", f"{api}/tenants/acme", caller)
        assert answer.status_code == 403
        assert json.loads(answer.text)["type"] == "urn:mme:problem:forbidden"
        assert answer.headers["content-type"] == "application/problem+json"


class TestFailuresOfFunctions:
    FAILS = """
        def handler(event, context):
            how = event["queryStringParameters"]["how"]
            if how == "raise":
                raise RuntimeError("a secret of the function")
            answers = {"text": "plain", "number": 7, "list": [1], "nothing": None, "shapeless": {"body": "x"}}
            return answers[how] if how in answers else {"statusCode": 201}
    """
    CUSTOMIZED = '{"type":"urn:mme:problem:internal-error","status":500,"detail":$context.error.messageString}'

    def test_a_function_that_fails_or_answers_no_proxy_answer_is_an_internal_server_error(self, bench):
        api = bench.rest_api(bench.function(self.FAILS))
        assert bench.call("GET", f"{api}/a?how=right", bench.cloud.admin).status_code == 201
        for how in ("raise", "text", "number", "list", "nothing", "shapeless"):
            answer = bench.call("GET", f"{api}/a?how={how}", bench.cloud.admin)
            assert (answer.status_code, answer.json()) == (502, {"message": "Internal server error"}), how

    def test_the_gateway_response_of_5xx_replaces_it(self, bench):
        api = bench.rest_api(bench.function(self.FAILS))
        gateway, api_id = bench.client("apigateway"), api.partition("://")[2].partition(".")[0]
        gateway.put_gateway_response(
            restApiId=api_id, responseType="DEFAULT_5XX", statusCode="500", responseTemplates={"application/json": self.CUSTOMIZED}
        )
        gateway.create_deployment(restApiId=api_id, stageName="v1")
        answer = bench.call("GET", f"{api}/a?how=raise", bench.cloud.admin)
        assert (answer.status_code, answer.json()["type"]) == (500, "urn:mme:problem:internal-error")


def test_a_stage_that_throttles_answers_429(bench, api):
    gateway, api_id = bench.client("apigateway"), api.partition("://")[2].partition(".")[0]
    slow = [{"op": "replace", "path": f"/*/*/throttling/{name}", "value": "1"} for name in ("rateLimit", "burstLimit")]
    assert bench.call("GET", f"{api}/a", bench.cloud.admin).status_code == 200
    gateway.update_stage(restApiId=api_id, stageName="v1", patchOperations=slow)
    statuses = {bench.call("GET", f"{api}/a", bench.cloud.admin).status_code for _ in range(5)}
    assert statuses == {200, 429}


def test_an_integration_that_takes_no_other_media_type_answers_415(bench):
    gateway = bench.client("apigateway")
    api_id = gateway.create_rest_api(name=bench.name("api"))["id"]
    root = gateway.get_resources(restApiId=api_id)["items"][0]["id"]
    where = {"restApiId": api_id, "resourceId": root, "httpMethod": "POST"}
    gateway.put_method(**where, authorizationType="AWS_IAM")
    templates = {"application/json": '{"statusCode": 200}'}
    gateway.put_integration(**where, type="MOCK", passthroughBehavior="NEVER", requestTemplates=templates)
    gateway.put_method_response(**where, statusCode="200")
    gateway.put_integration_response(**where, statusCode="200")
    gateway.create_deployment(restApiId=api_id, stageName="v1")
    url = f"https://{api_id}.execute-api.{bench.cloud.region}.amazonaws.com/v1/"
    for media_type, status in (("application/json", 200), ("text/csv", 415)):
        answer = bench.call("POST", url, bench.cloud.admin, body=b"{}", headers={"Content-Type": media_type})
        assert answer.status_code == status, answer.text


def test_an_unknown_path_or_method_is_answered_like_an_unsigned_call(bench):
    api = bench.rest_api(bench.function(ECHO), method="GET")
    answer = bench.call("POST", f"{api}/a", bench.cloud.admin)
    assert (answer.status_code, answer.json()) == (403, {"message": "Missing Authentication Token"})
    assert bench.call("GET", api, bench.cloud.admin).status_code == 403
    stage = bench.call("GET", api.replace("/v1", "/v2") + "/a", bench.cloud.admin)
    assert (stage.status_code, stage.json()) == (403, {"message": "Forbidden"})


def test_an_api_without_permission_cannot_invoke_the_function(bench, api):
    functions = bench.client("lambda")
    name = functions.list_functions()["Functions"][0]["FunctionName"]
    policy = json.loads(functions.get_policy(FunctionName=name)["Policy"])
    functions.remove_permission(FunctionName=name, StatementId=policy["Statement"][0]["Sid"])
    assert bench.call("GET", f"{api}/tenants/acme", bench.cloud.admin).status_code == 500


class TestFunctionRoles:
    CODE = """
        import boto3
        from botocore.exceptions import ClientError
        def handler(event, context):
            outcomes = {"caller": boto3.client("sts").get_caller_identity()["Arn"]}
            for service, operation in (("dynamodb", "list_tables"), ("s3", "list_buckets"), ("sagemaker", "list_models")):
                try:
                    getattr(boto3.client(service), operation)()
                    outcomes[service] = "allowed"
                except ClientError as error:
                    outcomes[service] = error.response["Error"]["Code"]
            return outcomes
    """

    def test_a_function_does_what_its_role_grants_and_nothing_else(self, bench):
        function = bench.function(self.CODE, {"Effect": "Allow", "Action": "dynamodb:ListTables", "Resource": "*"})
        outcomes = bench.invoke(function)
        assert ":assumed-role/role-" in outcomes.pop("caller")
        assert outcomes == {"dynamodb": "allowed", "s3": "AccessDenied", "sagemaker": "AccessDeniedException"}

    def test_a_function_has_neither_the_administrators_keys_nor_the_gateways_orders(self, bench):
        function = bench.function("import os\ndef handler(event, context):\n    return dict(os.environ)")
        environment = json.dumps(bench.invoke(function))
        assert bench.cloud.admin.secret_access_key not in environment
        assert bench.cloud.admin.access_key_id not in environment

    def test_a_caller_without_permission_cannot_invoke(self, bench):
        function = bench.function("def handler(event, context):\n    return 1")
        with pytest.raises(Exception, match="AccessDenied"):
            bench.client("lambda", bench.user()).invoke(FunctionName=function)


class TestAsynchronousInvocations:
    FAILS = """
        import boto3, os
        def handler(event, context):
            boto3.client("s3").put_object(Bucket=os.environ["BUCKET"], Key=f"attempts/{context.aws_request_id}-{__import__('time').time()}")
            raise RuntimeError("on purpose")
    """

    def test_a_failing_function_is_tried_again_and_its_event_lands_in_the_dead_letter_queue(self, bench):
        bucket = bench.bucket()
        queues = bench.client("sqs")
        queue = queues.create_queue(QueueName="dead")["QueueUrl"]
        queue_arn = queues.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        function = bench.function(
            self.FAILS,
            {"Effect": "Allow", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{bucket}/*"},
            {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": queue_arn},
            Environment={"Variables": {"BUCKET": bucket}},
            DeadLetterConfig={"TargetArn": queue_arn},
        )
        bench.client("lambda").invoke(FunctionName=function, InvocationType="Event", Payload=b'{"n": 1}')
        messages = bench.wait_for(lambda: queues.receive_message(QueueUrl=queue, WaitTimeSeconds=1).get("Messages"), seconds=60)
        attempts = bench.client("s3").list_objects_v2(Bucket=bucket)["KeyCount"]
        assert json.loads(messages[0]["Body"])["requestPayload"] == {"n": 1}
        assert attempts == 3
