"""The AWS services that the platform reaches through VPC endpoints, and where their FIPS variants exist."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import cache

from aws_cdk import aws_ec2 as ec2

from mme_constructs.errors import NetworkError
from mme_constructs.stack_of import is_token

__all__ = ["PrivateService", "check_fips_region", "check_names", "fips_services", "interface_services"]


class PrivateService(StrEnum):
    """A service behind a VPC endpoint, by the name that PrivateLink gives it."""

    SAGEMAKER_RUNTIME = "sagemaker.runtime"
    SAGEMAKER_API = "sagemaker.api"
    LOGS = "logs"
    STS = "sts"
    EVENTS = "events"
    EXECUTE_API = "execute-api"
    MONITORING = "monitoring"
    ECR_API = "ecr.api"
    ECR_DOCKER = "ecr.dkr"
    S3 = "s3"
    DYNAMODB = "dynamodb"


@cache
def interface_services() -> Mapping[PrivateService, ec2.InterfaceVpcEndpointAwsService]:
    """Service -> what CDK makes an interface endpoint of; CDK knows the prefix of each partition.

    Asked for when it is needed: it loads all of CDK's EC2, which apps without a private network do not need.
    """
    known = ec2.InterfaceVpcEndpointAwsService
    return {
        PrivateService.SAGEMAKER_RUNTIME: known.SAGEMAKER_RUNTIME,
        PrivateService.SAGEMAKER_API: known.SAGEMAKER_API,
        PrivateService.LOGS: known.CLOUDWATCH_LOGS,
        PrivateService.STS: known.STS,
        PrivateService.EVENTS: known.EVENTBRIDGE,
        PrivateService.EXECUTE_API: known.APIGATEWAY,
        PrivateService.MONITORING: known.CLOUDWATCH_MONITORING,
        PrivateService.ECR_API: known.ECR,
        PrivateService.ECR_DOCKER: known.ECR_DOCKER,
    }


@cache
def fips_services() -> Mapping[PrivateService, ec2.InterfaceVpcEndpointAwsService]:
    """Service -> its FIPS variant."""
    known = ec2.InterfaceVpcEndpointAwsService
    return {
        PrivateService.SAGEMAKER_RUNTIME: known.SAGEMAKER_RUNTIME_FIPS,
        PrivateService.SAGEMAKER_API: known.SAGEMAKER_API_FIPS,
    }


def check_fips_region(region: str) -> None:
    """Refuse FIPS variants where SageMaker has none, if the region is known at synthesis.

    Raises:
        NetworkError: the region is outside the United States.

    Source: AWS, Federal Information Processing Standard (FIPS) 140: endpoints by service (Amazon SageMaker runtime).
    """
    if not is_token(region) and not region.startswith("us-"):
        raise NetworkError(
            "SageMaker's runtime has no FIPS endpoint in this region",
            value=region,
            allowed="regions of the United States, GovCloud included",
            fix="Leave fips out",
        )


def check_names(names: Collection[str]) -> frozenset[PrivateService]:
    """The services of ``names``; raises `NetworkError` for one that the platform does not use."""
    unknown = sorted(set(names) - set(PrivateService))
    if unknown:
        raise NetworkError(
            "The platform reaches no such service", value=unknown[0], allowed=", ".join(PrivateService), fix="Use one of these names"
        )
    return frozenset(PrivateService(name) for name in names)
