"""An endpoint inside what a company has already: its bucket, its VPC, its KMS key."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from decisions import DECISIONS

from mme_constructs import EndpointNetwork, ModelArtifactStore, MultiModelContainer, MultiModelEndpoint
from mme_constructs.acknowledge import acknowledge


class ExistingStack(cdk.Stack):
    """Stands for the stacks that are there before."""

    def __init__(self, scope: cdk.App, name: str) -> None:
        super().__init__(scope, name)
        self.key = kms.Key(self, "Key", enable_key_rotation=True, removal_policy=cdk.RemovalPolicy.DESTROY)
        self.bucket = s3.Bucket(
            self,
            "Models",
            encryption_key=self.key,
            enforce_ssl=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            event_bridge_enabled=False,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            max_azs=2,
            nat_gateways=0,
            restrict_default_security_group=False,
            subnet_configuration=[ec2.SubnetConfiguration(name="Private", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)],
        )
        self.vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
        self.vpc.add_flow_log("FlowLog")


app = cdk.App()
existing = ExistingStack(app, "Existing")
stack = cdk.Stack(app, "ImportingMme")
MultiModelEndpoint(
    stack,
    "Endpoint",
    store=ModelArtifactStore(stack, "Store", bucket=existing.bucket, models_prefix="ml/models/"),
    container=MultiModelContainer.from_framework("xgboost", version="1.7-1"),
    network=EndpointNetwork(vpc=existing.vpc, subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)),
    encryption_key=existing.key,
)
acknowledge(existing, DECISIONS)
acknowledge(stack, DECISIONS)
app.synth()
