"""Helpers of the local cloud's tests: principals, functions, APIs and signed calls."""

from __future__ import annotations

import io
import itertools
import json
import textwrap
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningKeys
from botocore.validate import ParamValidator

from mme_local import Credentials, LocalCloud

Value = TypeVar("Value")

LAMBDA_TRUST = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}]}


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(actions: str | list[str], resources: str | list[str], **condition: Any) -> dict[str, Any]:
    statement = {"Effect": "Allow", "Action": actions, "Resource": resources}
    return {**statement, "Condition": condition} if condition else statement


@dataclass
class Workbench:
    """A cloud with short ways to make what tests need."""

    cloud: LocalCloud
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _clients: dict[Any, Any] = field(default_factory=dict)

    def client(self, service: str, credentials: Credentials | None = None) -> Any:
        key = service, credentials
        if key not in self._clients:
            self._clients[key] = self.cloud.client(service, credentials)
        return self._clients[key]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def name(self, prefix: str) -> str:
        return f"{prefix}-{next(self._numbers)}"

    def user(self, *statements: dict[str, Any]) -> Credentials:
        iam, name = self.client("iam"), self.name("user")
        iam.create_user(UserName=name)
        if statements:
            iam.put_user_policy(UserName=name, PolicyName="given", PolicyDocument=document(*statements))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return Credentials(key["AccessKeyId"], key["SecretAccessKey"])

    def role(self, trust: dict[str, Any], *statements: dict[str, Any]) -> str:
        iam, name = self.client("iam"), self.name("role")
        arn = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", **trust}))["Role"]["Arn"]
        if statements:
            iam.put_role_policy(RoleName=name, PolicyName="given", PolicyDocument=document(*statements))
        return arn

    def service_role(self, service: str, *statements: dict[str, Any]) -> str:
        return self.role({"Statement": [{"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}]}, *statements)

    def bucket(self) -> str:
        name = self.name("bucket")
        self.client("s3").create_bucket(Bucket=name)
        return name

    def function(self, code: str, *statements: dict[str, Any], **options: Any) -> str:
        """Create a function from the text of its module, with ``handler`` in it; returns its ARN."""
        lambda_, name = self.client("lambda"), self.name("function")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("index.py", textwrap.dedent(code))
        logs = allow(["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"], "*")
        created = lambda_.create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=self.role(LAMBDA_TRUST, logs, *statements),
            Handler="index.handler",
            Code={"ZipFile": packed.getvalue()},
            Timeout=30,
            **options,
        )
        lambda_.get_waiter("function_active_v2").wait(FunctionName=name, WaiterConfig={"Delay": 0.1, "MaxAttempts": 100})
        return created["FunctionArn"]

    def invoke(self, function_arn: str, event: Any = None) -> Any:
        answer = self.client("lambda").invoke(FunctionName=function_arn, Payload=json.dumps(event).encode())
        return json.load(answer["Payload"])

    def rest_api(
        self,
        function_arn: str,
        *,
        authorization: str = "AWS_IAM",
        method: str = "ANY",
        authorizer: dict[str, Any] | None = None,
        scopes: Sequence[str] = (),
        policy: str = "",
        key_required: bool = False,
    ) -> str:
        """A REST API that proxies every path to a function with ``binaryMediaTypes */*``; returns the URL of its stage ``v1``."""
        gateway, region = self.client("apigateway"), self.cloud.region
        api = gateway.create_rest_api(name=self.name("api"), binaryMediaTypes=["*/*"], policy=policy)["id"]
        root = gateway.get_resources(restApiId=api)["items"][0]["id"]
        proxy = gateway.create_resource(restApiId=api, parentId=root, pathPart="{proxy+}")["id"]
        authorizing: dict[str, Any] = {
            "authorizationType": authorization,
            "authorizationScopes": list(scopes),
            "apiKeyRequired": key_required,
        }
        if authorizer is not None:
            authorizing["authorizerId"] = gateway.create_authorizer(restApiId=api, name=self.name("authorizer"), **authorizer)["id"]
        gateway.put_method(restApiId=api, resourceId=proxy, httpMethod=method, **authorizing)
        gateway.put_integration(
            restApiId=api,
            resourceId=proxy,
            httpMethod=method,
            type="AWS_PROXY",
            integrationHttpMethod="POST",
            uri=f"arn:aws:apigateway:{region}:lambda:path/2015-03-31/functions/{function_arn}/invocations",
        )
        self.client("lambda").add_permission(
            FunctionName=function_arn,
            StatementId=self.name("api"),
            Action="lambda:InvokeFunction",
            Principal="apigateway.amazonaws.com",
            SourceArn=f"arn:aws:execute-api:{region}:{self.cloud.account}:{api}/*/*",
        )
        gateway.create_deployment(restApiId=api, stageName="v1")
        return f"https://{api}.execute-api.{region}.amazonaws.com/v1"

    def call(
        self,
        method: str,
        url: str,
        credentials: Credentials | None,
        *,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        service: str = "execute-api",
        sent_body: bytes | None = None,
    ) -> httpx.Response:
        """Call with a signature over ``body`` (none without credentials), sending ``sent_body`` if given."""
        local = self.cloud.local_url(url) if ".execute-api." in url else url
        request = AWSRequest(method=method, url=local, data=body, headers=headers or {})
        if credentials is not None:
            keys = SigningKeys(credentials.access_key_id, credentials.secret_access_key, credentials.session_token)
            SigV4Auth(keys, service, self.cloud.region).add_auth(request)
        return httpx.request(method, local, headers=dict(request.headers), content=body if sent_body is None else sent_body, timeout=60)

    def document(self, operation: str, **parameters: Any) -> Any:
        """What a SageMaker operation answers, checked to have botocore's output shape: no more members and no less."""
        headers = {"X-Amz-Target": f"SageMaker.{operation}", "Content-Type": "application/x-amz-json-1.1"}
        body = json.dumps(parameters).encode()
        answer = self.call("POST", self.cloud.endpoint_url + "/", self.cloud.admin, body=body, headers=headers, service="sagemaker")
        assert answer.status_code == 200, answer.text
        shape = self.client("sagemaker").meta.service_model.operation_model(operation).output_shape
        if shape is None:
            assert answer.json() == {}
        else:
            report = ParamValidator().validate(answer.json(), shape)
            assert not report.has_errors(), report.generate_report()
        return answer.json()

    def wait_for(self, probe: Callable[[], Value], seconds: float = 20) -> Value:
        """The first true result of ``probe``; fails after ``seconds``."""
        deadline = time.monotonic() + seconds
        while True:
            if result := probe():
                return result
            assert time.monotonic() < deadline, f"nothing came within {seconds} s"
            time.sleep(0.05)


@pytest.fixture
def bench(local_cloud: LocalCloud) -> Iterator[Workbench]:
    with closing(Workbench(local_cloud)) as workbench:
        yield workbench


@pytest.fixture(scope="module")
def module_bench(module_cloud: LocalCloud) -> Iterator[Workbench]:
    with closing(Workbench(module_cloud)) as workbench:
        yield workbench
