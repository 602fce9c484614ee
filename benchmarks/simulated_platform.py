"""A registry, an endpoint of simulated servers and the tenants' role on a local cloud: what the invocation path is measured against."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config

from mme_facts.table import PARTITION_KEY, SORT_KEY
from mme_local import LocalCloud, LocalSettings
from mme_tenancy import PathSettings, TenantClient
from mme_tenancy.aws.clients import dynamodb_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.registry import Change
from mme_tenancy.routes import Model, Route
from mme_tenancy.tenants import Quotas, Tenant

__all__ = ["ENDPOINT", "SimulatedPlatform", "simulated_platform", "target_model"]

ENDPOINT = "measured"
_BUCKET, _TABLE, _ROLE = "measured-models", "measured-table", "measured-tenant"
_NOW, _DIGEST = "2026-01-01T00:00:00.000Z", "0123456789ab"
_RATE = Quotas(requests_per_second=1_000_000)


@dataclass(frozen=True, slots=True)
class SimulatedPlatform:
    """Where to invoke.

    Attributes:
        cloud: the local cloud.
        session: the administrator's.
        role_arn: the tenants' role.
        application_role_arn: a role that may invoke every tenant's models.
    """

    cloud: LocalCloud
    session: boto3.Session
    role_arn: str
    application_role_arn: str

    def client(self, log: Callable[[str], object] | None = None, settings: PathSettings | None = None) -> TenantClient:
        """The library, with isolation on; ``log`` takes the log lines."""
        return TenantClient(table_name=_TABLE, session=self.session, tenant_role_arn=self.role_arn, log=log, settings=settings)

    def raw(self, **config: Any) -> Any:
        """boto3's own client, which sends once and signs by a role's session, as ours does and as applications on AWS do.

        To verify a session costs the local cloud more than to verify a user; that is no cost of either client.
        """
        opened = self.session.client("sts").assume_role(RoleArn=self.application_role_arn, RoleSessionName="raw")["Credentials"]
        keys = opened["AccessKeyId"], opened["SecretAccessKey"], opened["SessionToken"]
        make: Any = boto3.Session(*keys, region_name=self.session.region_name).client
        return make("sagemaker-runtime", config=Config(retries={"mode": "standard", "total_max_attempts": 1}, **config))


def target_model(tenant: str, model: str) -> str:
    """The TargetModel of a model of the platform."""
    return f"{tenant}/{model}/v1-{_DIGEST}.tar.gz"


@contextmanager
def simulated_platform(
    models: Mapping[tuple[str, str], Mapping[str, Any]],
    settings: LocalSettings,
    *,
    instances: int = 1,
    quotas: Mapping[str, Quotas] | None = None,
    real: tuple[str, bytes] | None = None,
) -> Iterator[SimulatedPlatform]:
    """A platform for the length of the block; this process's environment leads to it.

    Args:
        models: what each model does, by tenant and model: fields of `mme_local.dataplane.simulated_server.Behaviour`.
        settings: of the local cloud, with servers that are simulated.
        instances: of the endpoint.
        quotas: of single tenants. Default: none limits anybody.
        real: image and artifact of all models, where servers are not simulated: what a model does is then its own. Default: they are.
    """
    image, artifact = ("measured:1", None) if real is None else real
    with LocalCloud(settings=settings) as cloud, _environment(cloud):
        session = boto3.Session()
        _put_artifacts(cloud, {name: _artifact(script) if artifact is None else artifact for name, script in models.items()})
        iam = cloud.client("iam")
        reader = _role(iam, "measured", {"Service": "sagemaker.amazonaws.com"}, ["sts:AssumeRole"], ["s3:GetObject", "s3:ListBucket"])
        own = {"StringLike": {"sagemaker:TargetModel": "${aws:PrincipalTag/tenant}/*"}}
        role = _role(iam, _ROLE, {"AWS": cloud.account}, ["sts:AssumeRole", "sts:TagSession"], ["sagemaker:InvokeEndpoint"], own)
        _serve(cloud, reader, instances, image)
        _register(cloud, session, models, {} if quotas is None else quotas)
        anybodys = {"StringLike": {"sagemaker:TargetModel": "*/*"}}
        application = _role(iam, "measured-application", {"AWS": cloud.account}, ["sts:AssumeRole"], ["sagemaker:InvokeEndpoint"], anybodys)
        yield SimulatedPlatform(cloud, session, role, application)


def _put_artifacts(cloud: LocalCloud, models: Mapping[tuple[str, str], bytes]) -> None:
    s3 = cloud.client("s3")
    s3.create_bucket(Bucket=_BUCKET)
    for (tenant, model), artifact in models.items():
        s3.put_object(Bucket=_BUCKET, Key=f"models/{target_model(tenant, model)}", Body=artifact)


def _serve(cloud: LocalCloud, role_arn: str, instances: int, image: str) -> None:
    sagemaker = cloud.client("sagemaker")
    container = {"Image": image, "Mode": "MultiModel", "ModelDataUrl": f"s3://{_BUCKET}/models/"}
    sagemaker.create_model(ModelName=ENDPOINT, ExecutionRoleArn=role_arn, PrimaryContainer=container)
    variant = {"VariantName": "AllTraffic", "ModelName": ENDPOINT, "InstanceType": "ml.m5.4xlarge", "InitialInstanceCount": instances}
    sagemaker.create_endpoint_config(EndpointConfigName=ENDPOINT, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName=ENDPOINT)
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=ENDPOINT, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


def _register(
    cloud: LocalCloud, session: boto3.Session, models: Mapping[tuple[str, str], Mapping[str, Any]], quotas: Mapping[str, Quotas]
) -> None:
    keys = [{"AttributeName": name, "AttributeType": "S"} for name in (PARTITION_KEY, SORT_KEY)]
    schema = [{"AttributeName": PARTITION_KEY, "KeyType": "HASH"}, {"AttributeName": SORT_KEY, "KeyType": "RANGE"}]
    cloud.client("dynamodb").create_table(TableName=_TABLE, AttributeDefinitions=keys, KeySchema=schema, BillingMode="PAY_PER_REQUEST")
    registry = DynamoRegistry(dynamodb_client(session), _TABLE)
    for tenant in dict.fromkeys(tenant for tenant, _ in models):
        registry.write(Change(None, Tenant(tenant, _NOW, _NOW, quotas=quotas.get(tenant, _RATE))))
    for tenant, model in models:
        route = Route(ENDPOINT, "AllTraffic", f"v1-{_DIGEST}", target_model(tenant, model))
        registry.write(Change(None, Model(tenant, model, 1, _NOW, _NOW, route)))


@contextmanager
def _environment(cloud: LocalCloud) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update({name: value for name, value in cloud.environment().items() if name.startswith("AWS_")})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _role(
    iam: Any, name: str, principal: dict[str, str], trusted: Sequence[str], actions: Sequence[str], condition: dict[str, Any] | None = None
) -> str:
    trust = {"Effect": "Allow", "Principal": principal, "Action": list(trusted)}
    arn: str = iam.create_role(RoleName=name, AssumeRolePolicyDocument=_document(trust))["Role"]["Arn"]
    statement: dict[str, Any] = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    if condition is not None:
        statement["Condition"] = condition
    iam.put_role_policy(RoleName=name, PolicyName="measured", PolicyDocument=_document(statement))
    return arn


def _document(statement: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def _artifact(script: Mapping[str, Any]) -> bytes:
    content, packed = json.dumps(script).encode(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("simulated.json")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
