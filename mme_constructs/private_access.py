"""The platform without the internet: a VPC whose only ways out are VPC endpoints of the services it needs."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

import aws_cdk as cdk
import jsii
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct, DependencyGroup, IDependable, IValidation

from mme_constructs.acknowledge import acknowledge
from mme_constructs.errors import EndpointPolicyError, NetworkError
from mme_constructs.private_services import PrivateService, check_fips_region, check_names, fips_services, interface_services
from mme_constructs.stack_of import stack_of
from mme_constructs.tenant_function import FunctionSettings
from mme_facts.grammar import TENANT_TAG

if TYPE_CHECKING:
    from mme_constructs.artifact_store import ModelArtifactStore
    from mme_constructs.tenant_registry import TenantRegistry

__all__ = ["InvokableEndpoint", "PrivateAccess"]

_HTTPS = 443
_CIDR = "10.0.0.0/16"
_SUBNET_MASK = 20
_IMAGES = frozenset({PrivateService.ECR_API, PrivateService.ECR_DOCKER})
_PULL = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetAuthorizationToken", "ecr:GetDownloadUrlForLayer"]
_ACCOUNT_ONLY = {
    PrivateService.SAGEMAKER_API: ["sagemaker:*"],
    PrivateService.LOGS: ["logs:*"],
    PrivateService.MONITORING: ["cloudwatch:*"],
    PrivateService.ECR_API: _PULL,
    PrivateService.ECR_DOCKER: _PULL,
}
"""Services whose endpoint policy admits this account's principals to these actions on every resource: their own policies decide which."""


class InvokableEndpoint(Protocol):
    """A SageMaker endpoint, shared or dedicated."""

    @property
    def endpoint_arn(self) -> str:
        """Its ARN."""


class PrivateAccess(Construct):
    """A VPC without internet access and the endpoints through which the platform's services are reached from it.

    Interface endpoints, with private DNS, in one subnet of every zone: SageMaker's runtime and API, CloudWatch and its Logs, STS,
    EventBridge, ``execute-api`` and, if images are pulled through the VPC, ECR's two. Gateway endpoints: S3, and DynamoDB if there is a
    registry. Their security group admits HTTPS from the named clients and nothing else.

    What the endpoint policies admit:

    - runtime: invoking the endpoints named with `allow_invoke`, nothing else; at least one must be named (FIPS endpoints take no policy).
    - S3: reading, writing and listing objects of the store's bucket; reading the bucket that ECR serves image layers from, because an image
      is pulled in part from S3. Nothing else is fetched through the VPC: Lambda loads code by itself, and assets of the CDK move at
      deployment only.
    - DynamoDB: reading and writing items of the registry's table and its indexes.
    - ECR: pulling images. STS: this account's roles. EventBridge: putting events on this account's buses. ``execute-api``: this account's
      APIs. CloudWatch, its Logs and SageMaker's API: everything that the caller's own policy allows. All of these for principals of this
      account only, so that nobody carries data out with another account's credentials.

    With an ``execute-api`` endpoint and private DNS, the VPC no longer reaches *public* REST APIs of the region by their default names.
    Clients must lie in the endpoints' zones: names may not resolve in others, `add_client` checks it. Flow logs are the stack's decision:
    ``access.vpc.add_flow_log("FlowLog")``. The default security group of the VPC is used by nobody and left as it comes: restricting it
    would need a custom resource. In China the stack's region must be known at synthesis, since endpoints have other names there.

    Everything that refers to each other (a bucket restricted to this VPC, a private API, endpoints in the VPC) belongs in one stack, or in
    stacks above this one.

    Args:
        scope: the parent.
        id: the id below the parent.
        store: the artifacts that S3's endpoint admits.
        registry: the table that DynamoDB's endpoint admits. Default: no endpoint for DynamoDB.
        vpc: a VPC that exists, with DNS support and DNS host names on. Default: one of its own with isolated subnets only.
        subnets: the subnets of ``vpc``, in at least two zones, whose route tables get the gateway endpoints. Default: its isolated ones.
        zones: how many Availability Zones a VPC of its own spans, 2 to 6, or their names. Default 2. Not for a given VPC.
        cidr: IPv4 range of a VPC of its own, with 4,096 addresses for each zone. Default ``10.0.0.0/16``. Not for a given VPC.
        pull_images: whether container images come through the VPC, as they do for endpoints placed in it. Default: yes.
        fips: whether SageMaker's endpoints are the FIPS variants. They take no endpoint policy; functions placed here are told their name.
            Default: no.
        already_there: services whose endpoints the given VPC has; they are neither made nor given policies. Default: none.

    Raises:
        NetworkError: fewer than two zones, too few addresses, no usable subnet, settings of a new VPC for a given one, an unknown
            service, or FIPS where SageMaker has none.

    Sources: Amazon SageMaker AI, Connect to SageMaker AI Within your VPC; Give SageMaker AI hosted endpoints access to resources in your
    Amazon VPC; Amazon ECR, Amazon ECR interface VPC endpoints; Amazon API Gateway, Private REST APIs.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        store: ModelArtifactStore,
        registry: TenantRegistry | None = None,
        vpc: ec2.IVpc | None = None,
        subnets: ec2.SubnetSelection | None = None,
        zones: int | Sequence[str] | None = None,
        cidr: str | None = None,
        pull_images: bool = True,
        fips: bool = False,
        already_there: Collection[str] = (),
    ) -> None:
        stack = stack_of(scope)
        there = check_names(already_there)
        names = _zone_names(2 if zones is None else zones)
        _check_range(_CIDR if cidr is None else cidr, len(names))
        if fips:
            check_fips_region(stack.region)
        if vpc is not None and (zones is not None or cidr is not None):
            raise NetworkError(
                "A VPC that is given keeps its zones and addresses",
                value=zones if cidr is None else cidr,
                allowed="vpc, or zones and cidr",
                fix="Leave zones and cidr out; choose with subnets",
            )
        if vpc is None and subnets is not None:
            raise NetworkError("Subnets belong to a VPC", value=None, allowed="a VPC for them", fix="Pass vpc, or leave subnets out")
        chosen = () if vpc is None else _choose(stack, vpc, subnets)
        if not {PrivateService.S3, PrivateService.DYNAMODB} <= there:
            _check_route_tables(chosen)
        super().__init__(scope, id)
        self.takes_policy = not fips and PrivateService.SAGEMAKER_RUNTIME not in there
        """Whether `allow_invoke` can be called, and must be at least once: not with FIPS, nor with an endpoint that was there."""
        self._fips = fips
        self._invocations = 0
        self.vpc = self._build_vpc(names, _CIDR if cidr is None else cidr) if vpc is None else vpc
        """The VPC."""
        self.subnets: tuple[ec2.ISubnet, ...] = chosen or tuple(self.vpc.isolated_subnets)
        """The subnets of its clients."""
        self._zones = frozenset(_text(stack, subnet.availability_zone) for subnet in self.subnets)
        self.security_group = ec2.SecurityGroup(
            self, "Endpoints", vpc=self.vpc, allow_all_outbound=False, description="VPC endpoints: HTTPS from named clients only"
        )
        """The group of the interface endpoints."""
        self.interfaces = self._build_interfaces(there, pull_images=pull_images)
        """Service -> the interface endpoint made for it."""
        self.store, self.registry = store, registry
        self.s3 = None if PrivateService.S3 in there else self._build_s3(store, pull_images=pull_images)
        """S3's gateway endpoint, if it was made here."""
        self.dynamodb = None if registry is None or PrivateService.DYNAMODB in there else self._build_dynamodb(registry)
        """DynamoDB's gateway endpoint, if it was made here."""
        self.clients = ec2.SecurityGroup(
            self,
            "Clients",
            vpc=self.vpc,
            allow_all_outbound=False,
            description="Clients of the platform: nothing comes in, HTTPS goes out to the VPC endpoints",
        )
        """A group for whatever is placed here: it reaches the endpoints, and nothing reaches it."""
        self.clients.add_egress_rule(
            ec2.Peer.any_ipv4(), ec2.Port.tcp(_HTTPS), "HTTPS: the VPC has routes to its endpoints, S3 and DynamoDB only"
        )
        self.add_client(self.clients, subnets=self.subnets)
        self.node.add_validation(_Check(self._unmet))

    @property
    def subnet_selection(self) -> ec2.SubnetSelection:
        """`subnets`, as other constructs take them."""
        return ec2.SubnetSelection(subnets=list(self.subnets))

    @property
    def execute_api(self) -> ec2.InterfaceVpcEndpoint | None:
        """The endpoint of private APIs, for `TenantApi`'s ``private_endpoint``, if it was made here."""
        return self.interfaces.get(PrivateService.EXECUTE_API)

    @property
    def downloads(self) -> IDependable:
        """What must be there before a SageMaker endpoint placed here starts: its images and artifacts come this way.

        Such as ``endpoint.node.add_dependency(access.downloads)``.
        """
        needed = [self.interfaces.get(service) for service in sorted(_IMAGES | {PrivateService.LOGS})]
        return DependencyGroup(*(endpoint for endpoint in (*needed, self.s3) if endpoint is not None))

    def add_client(self, client: ec2.IConnectable, *, subnets: Sequence[ec2.ISubnet]) -> None:
        """Let a client reach the interface endpoints.

        Args:
            client: whatever has a security group in the VPC: a function, a service, an instance.
            subnets: where it runs.

        Raises:
            NetworkError: a subnet lies in a zone without an endpoint, where the runtime's name may not resolve (Amazon SageMaker AI,
                Connect to SageMaker AI Within your VPC). Zones that are unknown at synthesis are not compared with known ones.
        """
        stack = stack_of(self)
        for subnet in subnets:
            zone = _text(stack, subnet.availability_zone)
            comparable = _is_known(zone) == all(_is_known(known) for known in self._zones)
            if comparable and zone not in self._zones:
                raise NetworkError(
                    "A client runs in a zone without an endpoint of SageMaker's runtime",
                    value=zone,
                    allowed=", ".join(sorted(self._zones)),
                    fix="Move the client, or add a subnet of the zone",
                )
        client.connections.allow_to(
            ec2.Connections(security_groups=[self.security_group]), ec2.Port.tcp(_HTTPS), "HTTPS to the VPC endpoints"
        )

    def allow_invoke(self, endpoint: InvokableEndpoint, *, components: bool = False) -> None:
        """Let clients invoke an endpoint through the runtime's VPC endpoint, within what their own policies allow.

        Args:
            endpoint: a shared or a dedicated endpoint.
            components: whether it hosts inference components: then components of this account that carry a ``tenant`` tag may be invoked.

        Raises:
            EndpointPolicyError: the VPC endpoint is a FIPS variant, which takes no policy, or was there before.

        Source: Amazon SageMaker AI, Connect to SageMaker AI Within your VPC (endpoint policies; none on FIPS runtime endpoints).
        """
        if self._fips:
            raise EndpointPolicyError(
                "The FIPS endpoint of SageMaker's runtime takes no endpoint policy",
                value="fips=True",
                allowed="allow_invoke without fips, or fips without allow_invoke",
                fix="Leave allow_invoke out, the callers' own policies confine them; or leave fips out",
            )
        if not self.takes_policy:
            raise EndpointPolicyError(
                "The VPC endpoint of SageMaker's runtime was there before and keeps its policy",
                value=str(PrivateService.SAGEMAKER_RUNTIME),
                allowed="an endpoint made here",
                fix="Take it out of already_there, or add the statement where it is defined",
            )
        self._invocations += 1
        runtime = self.interfaces[PrivateService.SAGEMAKER_RUNTIME]
        runtime.add_to_policy(_anyone(["sagemaker:InvokeEndpoint"], [endpoint.endpoint_arn]))
        if components:
            every = stack_of(self).format_arn(service="sagemaker", resource="inference-component", resource_name="*")
            tagged = {"StringLike": {f"aws:ResourceTag/{TENANT_TAG}": "?*"}}
            streams = "sagemaker:InvokeEndpointWithResponseStream"
            runtime.add_to_policy(_anyone([streams], [endpoint.endpoint_arn]))
            # A statement on components names their endpoint too, the required resource of these actions (Service Authorization Reference).
            runtime.add_to_policy(_anyone(["sagemaker:InvokeEndpoint", streams], [endpoint.endpoint_arn, every], tagged))

    def allow_tokens(self) -> None:
        """Let calls with tokens, which no principal of the account signs, through to this account's private APIs: their authorizers judge.

        Raises:
            EndpointPolicyError: the VPC endpoint of private APIs was there before.
        """
        if self.execute_api is None:
            raise EndpointPolicyError(
                "The VPC endpoint of private APIs was there before and keeps its policy",
                value=str(PrivateService.EXECUTE_API),
                allowed="an endpoint made here",
                fix="Take it out of already_there, or add the statement where it is defined",
            )
        self.execute_api.add_to_policy(_anyone(["execute-api:Invoke"], [stack_of(self).format_arn(service="execute-api", resource="*")]))

    def function_settings(self, settings: FunctionSettings | None = None) -> FunctionSettings:
        """``settings`` of a function that is placed here, in the clients' security group.

        Args:
            settings: size and limits. Default: `FunctionSettings` as it stands.
        """
        settings = FunctionSettings() if settings is None else settings
        environment = dict(settings.environment)
        if self._fips:
            stack = stack_of(self)
            for name, host in (("SAGEMAKER_RUNTIME", "runtime-fips"), ("SAGEMAKER", "api-fips")):
                environment[f"AWS_ENDPOINT_URL_{name}"] = f"https://{host}.sagemaker.{stack.region}.{stack.url_suffix}"
        return dataclasses.replace(
            settings, vpc=self.vpc, subnets=self.subnet_selection, security_groups=(self.clients,), environment=environment
        )

    def _unmet(self) -> list[str]:
        if self._invocations or not self.takes_policy:
            return []
        error = EndpointPolicyError(
            "Nothing may be invoked through the VPC endpoint of SageMaker's runtime",
            value=0,
            allowed="one endpoint or more",
            fix="Call allow_invoke with each of the platform's endpoints",
        )
        return [str(error)]

    def _build_vpc(self, zones: Sequence[str], cidr: str) -> ec2.Vpc:
        vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(cidr),
            availability_zones=list(zones),
            nat_gateways=0,
            create_internet_gateway=False,
            restrict_default_security_group=False,
            subnet_configuration=[
                ec2.SubnetConfiguration(name="Private", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=_SUBNET_MASK)
            ],
        )
        unused = "Nothing joins the default group, and the VPC has no way in; closing it would take a custom resource with a role."
        acknowledge(vpc, {"NIST.800.53.R5-VPCDefaultSecurityGroupClosed": unused})
        return vpc

    def _build_interfaces(self, there: Collection[PrivateService], *, pull_images: bool) -> dict[PrivateService, ec2.InterfaceVpcEndpoint]:
        endpoints: dict[PrivateService, ec2.InterfaceVpcEndpoint] = {}
        stack = stack_of(self)
        one_per_zone = {_text(stack, subnet.availability_zone): subnet for subnet in reversed(self.subnets)}
        for service, interface in interface_services().items():
            if service in there or (service in _IMAGES and not pull_images):
                continue
            endpoint = ec2.InterfaceVpcEndpoint(
                self,
                "".join(part.capitalize() for part in service.replace("-", ".").split(".")),
                vpc=self.vpc,
                service=fips_services().get(service, interface) if self._fips else interface,
                subnets=ec2.SubnetSelection(subnets=[one_per_zone[zone] for zone in sorted(one_per_zone)]),
                security_groups=[self.security_group],
                private_dns_enabled=True,
                open=False,
            )
            for statement in () if self._fips and service in fips_services() else self._statements(service):
                endpoint.add_to_policy(statement)
            endpoints[service] = endpoint
        return endpoints

    def _statements(self, service: PrivateService) -> list[iam.PolicyStatement]:
        stack = stack_of(self)
        if service is PrivateService.SAGEMAKER_RUNTIME:
            return []
        own = {"StringEquals": {"aws:PrincipalAccount": stack.account}}
        if service is PrivateService.EXECUTE_API:
            apis = stack.format_arn(service="execute-api", resource="*")
            return [_anyone(["execute-api:Invoke"], [apis], own)]
        if service is PrivateService.EVENTS:
            return [_anyone(["events:PutEvents"], [stack.format_arn(service="events", resource="event-bus", resource_name="*")], own)]
        if service is PrivateService.STS:
            roles = stack.format_arn(service="iam", region="", resource="role", resource_name="*")
            return [
                _anyone(["sts:GetCallerIdentity"], ["*"], own),
                _anyone(["sts:AssumeRole", "sts:SetSourceIdentity", "sts:TagSession"], [roles], own),
                _anyone(["sts:AssumeRoleWithSAML", "sts:AssumeRoleWithWebIdentity"], [roles]),  # calls without a signature
            ]
        return [_anyone(_ACCOUNT_ONLY[service], ["*"], own)]

    def _build_s3(self, store: ModelArtifactStore, *, pull_images: bool) -> ec2.GatewayVpcEndpoint:
        endpoint = self._gateway("S3", ec2.GatewayVpcEndpointAwsService.S3)
        bucket = store.bucket
        endpoint.add_to_policy(_anyone(["s3:ListBucket"], [bucket.bucket_arn]))
        endpoint.add_to_policy(
            _anyone(
                ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:ListMultipartUploadParts", "s3:PutObject"],
                [bucket.arn_for_objects("*")],
            )
        )
        if pull_images:
            stack = stack_of(self)
            layers = stack.format_arn(
                service="s3", region="", account="", resource=f"prod-{stack.region}-starport-layer-bucket", resource_name="*"
            )
            endpoint.add_to_policy(_anyone(["s3:GetObject"], [layers]))
        return endpoint

    def _build_dynamodb(self, registry: TenantRegistry) -> ec2.GatewayVpcEndpoint:
        endpoint = self._gateway("DynamoDb", ec2.GatewayVpcEndpointAwsService.DYNAMODB)
        endpoint.add_to_policy(
            _anyone(
                [
                    "dynamodb:BatchGetItem",
                    "dynamodb:BatchWriteItem",
                    "dynamodb:ConditionCheckItem",
                    "dynamodb:DeleteItem",
                    "dynamodb:GetItem",
                    "dynamodb:PutItem",
                    "dynamodb:Query",
                    "dynamodb:UpdateItem",
                ],
                [registry.table.table_arn, f"{registry.table.table_arn}/index/*"],
            )
        )
        return endpoint

    def _gateway(self, id: str, service: ec2.IGatewayVpcEndpointService) -> ec2.GatewayVpcEndpoint:  # noqa: A002 - CDK's name for it
        return ec2.GatewayVpcEndpoint(self, id, vpc=self.vpc, service=service, subnets=[self.subnet_selection])


@jsii.implements(IValidation)
class _Check:
    def __init__(self, check: Callable[[], list[str]]) -> None:
        self._check = check

    def validate(self) -> list[str]:
        return self._check()


def _anyone(actions: Sequence[str], resources: Sequence[str], conditions: dict[str, dict[str, str]] | None = None) -> iam.PolicyStatement:
    """A statement of an endpoint policy. It names no principal: it bounds what callers' own policies allow, and grants nothing."""
    return iam.PolicyStatement(
        principals=[iam.AnyPrincipal()], actions=list(actions), resources=list(resources), conditions=dict(conditions or {})
    )


def _zone_names(zones: int | Sequence[str]) -> list[str]:
    names = [cdk.Fn.select(index, cdk.Fn.get_azs()) for index in range(zones)] if isinstance(zones, int) else list(zones)
    if not 2 <= len(set(names)) <= 6 or len(set(names)) < len(names):
        raise NetworkError(
            "The platform needs two Availability Zones or more",
            value=zones,
            allowed="2 to 6, or as many names, each once",
            fix="Use 2, so that the loss of a zone leaves one",
        )
    return names


def _check_range(cidr: str, zones: int) -> None:
    widest = 16  # the largest VPC (Amazon VPC, VPC CIDR blocks)
    narrowest = _SUBNET_MASK - (zones - 1).bit_length()
    try:
        fits = widest <= ipaddress.IPv4Network(cidr).prefixlen <= narrowest
    except ValueError:
        fits = False
    if not fits:
        raise NetworkError(
            f"The range has no room for {zones} subnets of 4,096 addresses, or is none",
            value=cidr,
            allowed=f"an IPv4 range from /{widest} to /{narrowest}",
            fix=f"Use a range such as {_CIDR}",
        )


def _choose(stack: cdk.Stack, vpc: ec2.IVpc, selection: ec2.SubnetSelection | None) -> tuple[ec2.ISubnet, ...]:
    if selection is None:
        subnets = list(vpc.isolated_subnets)
    else:
        subnets = vpc.select_subnets(
            availability_zones=selection.availability_zones,
            one_per_az=selection.one_per_az,
            subnet_filters=selection.subnet_filters,
            subnet_group_name=selection.subnet_group_name,
            subnets=selection.subnets,
            subnet_type=selection.subnet_type,
        ).subnets
    zones = {_text(stack, subnet.availability_zone) for subnet in subnets}
    if len(zones) < 2:
        raise NetworkError(
            "The platform needs two Availability Zones or more",
            value=f"{len(subnets)} subnets in {len(zones)} zones",
            allowed="subnets in at least two zones",
            fix="Select more subnets; without a selection only isolated ones count",
        )
    return tuple(subnets)


def _check_route_tables(subnets: Sequence[ec2.ISubnet]) -> None:
    for subnet in subnets:
        try:
            known = bool(subnet.route_table.route_table_id)
        except RuntimeError:  # CDK leaves it undefined, which does not cross into Python
            known = False
        if not known:
            raise NetworkError(
                "A gateway endpoint belongs to route tables, and the route table of this subnet is not known",
                value=subnet.node.path,
                allowed="subnets with their route tables",
                fix="Name the route tables where the VPC is imported, or say in already_there that s3 and dynamodb have endpoints",
            )


def _text(stack: cdk.Stack, zone: str) -> str:
    resolved = stack.resolve(zone)
    return resolved if isinstance(resolved, str) else json.dumps(resolved, sort_keys=True)


def _is_known(zone: str) -> bool:
    return not zone.startswith("{")
