"""The container image that serves an endpoint's models."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import Construct

from mme_constructs.acknowledge import acknowledge_grant
from mme_constructs.errors import ContainerError
from mme_facts import images

__all__ = ["ImageLocation", "MultiModelContainer"]

_ECR_URI = re.compile(
    r"(?P<account>[0-9]{12})\.dkr\.ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.(?P<suffix>[a-z0-9.-]+)/"
    r"(?P<repository>[a-z0-9][a-z0-9._/-]*)(?::[A-Za-z0-9_][A-Za-z0-9_.-]*|@sha256:[0-9a-f]{64})"
)
_PULL = ["ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage"]


@dataclass(frozen=True, slots=True)
class ImageLocation:
    """Where a container's image is, seen from one stack.

    Attributes:
        uri: image URI, possibly with tokens.
        repository_arn: ECR repository that an execution role must be able to pull from.
    """

    uri: str
    repository_arn: str


class _Image(Protocol):
    def locate(self, scope: Construct) -> ImageLocation: ...


@dataclass(frozen=True, slots=True)
class MultiModelContainer:
    """An image with what the model server in it is told. Make one with `from_framework` or `from_image_uri`.

    Attributes:
        image: finds the image for a stack.
        environment: variables of the container; no secrets, every model that it loads can read them.
        framework: the framework of its models, such as ``xgboost``; None if the image does not tell.
    """

    image: _Image
    environment: Mapping[str, str] = field(default_factory=dict)
    framework: str | None = None

    def __post_init__(self) -> None:
        # Amazon SageMaker AI API reference, ContainerDefinition: 100 entries, key and value 1,024 characters each.
        for name, value in self.environment.items():
            if len(name) > 1024 or (not cdk.Token.is_unresolved(value) and len(value) > 1024):
                raise ContainerError(
                    "A variable of the container is too long",
                    value=f"{name}={value}"[:80],
                    allowed="1,024 characters for name and value each",
                    fix="Shorten it",
                )
        if len(self.environment) > 100:
            raise ContainerError(
                "The container has too many variables", value=len(self.environment), allowed="at most 100", fix="Remove some"
            )

    @classmethod
    def from_framework(cls, framework: str, *, version: str, environment: Mapping[str, str] | None = None) -> MultiModelContainer:
        """SageMaker's own image of a framework.

        In a stack with a concrete region the URI is resolved; in an environment-agnostic one it goes through a mapping by region.

        Args:
            framework: such as ``xgboost``.
            version: as SageMaker writes it, such as ``1.7-1``.
            environment: variables of the container. Default: none.

        Raises:
            ContainerError: framework or version is unknown, or (when used) not published in the stack's region.
        """
        try:
            image = images.framework_image(framework, version)
        except images.UnknownImageError as error:
            raise ContainerError(
                "SageMaker publishes no such image",
                value=f"{framework} {version}",
                allowed=str(error).partition(": use ")[2],
                fix="Choose a known one",
            ) from error
        return cls(_FrameworkImage(image), dict(environment or {}), framework)

    @classmethod
    def from_image_uri(
        cls, uri: str, *, repository_arn: str | None = None, environment: Mapping[str, str] | None = None, framework: str | None = None
    ) -> MultiModelContainer:
        """Any image in ECR; it must carry the label ``com.amazonaws.sagemaker.capabilities.multi-models=true``.

        Args:
            uri: with a tag or digest.
            repository_arn: its repository. Default: taken from the URI.
            environment: variables of the container. Default: none.
            framework: the framework of its models. Default: unknown.

        Raises:
            ContainerError: the URI is not one of ECR, or it is a token and ``repository_arn`` is missing.
        """
        if cdk.Token.is_unresolved(uri):
            if repository_arn is None:
                raise ContainerError(
                    "The image's repository cannot be read from a token",
                    value="a token",
                    allowed="a literal URI, or a token with repository_arn",
                    fix="Pass repository_arn",
                )
        elif _ECR_URI.fullmatch(uri) is None:
            raise ContainerError(
                "The image is not in ECR, or has neither tag nor digest",
                value=uri,
                allowed="<account>.dkr.ecr.<region>.<suffix>/<repository>:<tag>, or @sha256:<digest>",
                fix="Push it to ECR in the endpoint's region",
            )
        return cls(_UriImage(uri, repository_arn), dict(environment or {}), framework)

    def locate(self, scope: Construct) -> ImageLocation:
        """The image as ``scope``'s stack refers to it; raises `ContainerError`."""
        return self.image.locate(scope)

    def grant_pull(self, scope: Construct, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` pull from the image's repository, and from no other."""
        acknowledge_grant(grantee, {"*": "ecr:GetAuthorizationToken has no resource (Service Authorization Reference: Amazon ECR)."})
        iam.Grant.add_to_principal(grantee=grantee, actions=["ecr:GetAuthorizationToken"], resource_arns=["*"])
        return iam.Grant.add_to_principal(grantee=grantee, actions=_PULL, resource_arns=[self.locate(scope).repository_arn])


@dataclass(frozen=True, slots=True)
class _FrameworkImage:
    image: images.FrameworkImage

    def locate(self, scope: Construct) -> ImageLocation:
        stack = cdk.Stack.of(scope)
        if cdk.Token.is_unresolved(stack.region):
            account, suffix = self._mapping(stack).find_in_map(cdk.Aws.REGION, "account"), cdk.Aws.URL_SUFFIX
        else:
            account, suffix = self._account(stack.region), _domain_suffix(stack.region)
        return ImageLocation(
            uri=f"{account}.dkr.ecr.{stack.region}.{suffix}/{self.image.repository}:{self.image.tag}",
            repository_arn=stack.format_arn(service="ecr", account=account, resource="repository", resource_name=self.image.repository),
        )

    def _account(self, region: str) -> str:
        try:
            return self.image.account(region)
        except images.UnknownImageError as error:
            raise ContainerError(
                f"SageMaker does not publish {self.image.framework} {self.image.version} in the stack's region",
                value=region,
                allowed=", ".join(sorted(self.image.accounts)),
                fix="Deploy to one of these regions, or push a copy of the image to your ECR and use from_image_uri",
            ) from error

    def _mapping(self, stack: cdk.Stack) -> cdk.CfnMapping:
        name = re.sub(r"[^A-Za-z0-9]", "", f"Images-{self.image.framework}-{self.image.version}".title())
        found = stack.node.try_find_child(name)
        if isinstance(found, cdk.CfnMapping):
            return found
        return cdk.CfnMapping(
            stack, name, mapping={region: {"account": account} for region, account in sorted(self.image.accounts.items())}
        )


@dataclass(frozen=True, slots=True)
class _UriImage:
    uri: str
    repository_arn: str | None

    def locate(self, scope: Construct) -> ImageLocation:
        if self.repository_arn is not None:
            return ImageLocation(self.uri, self.repository_arn)
        match = _ECR_URI.fullmatch(self.uri)
        assert match is not None  # from_image_uri has checked it
        stack = cdk.Stack.of(scope)
        if not cdk.Token.is_unresolved(stack.region) and stack.region != match["region"]:
            raise ContainerError(
                "The image is in another region than the endpoint",
                value=match["region"],
                allowed=stack.region,
                fix="Push or replicate it to the endpoint's region",
            )
        arn = stack.format_arn(
            service="ecr", region=match["region"], account=match["account"], resource="repository", resource_name=match["repository"]
        )
        return ImageLocation(self.uri, arn)


def _domain_suffix(region: str) -> str:
    from aws_cdk.region_info import RegionInfo

    return RegionInfo.get(region).domain_suffix or "amazonaws.com"
