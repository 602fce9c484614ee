"""Where a container's image comes from: SageMaker's own, a URI, a repository of the app, or a Dockerfile."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import aws_cdk as cdk
from constructs import Construct

from mme_constructs.errors import ContainerError
from mme_constructs.stack_of import is_token, stack_of
from mme_facts import images
from mme_facts.instances import Architecture

if TYPE_CHECKING:
    from aws_cdk import aws_ecr as ecr

__all__ = ["AssetImage", "FrameworkImageSource", "ImageLocation", "ImageSource", "RepositoryImage", "UriImage"]

_ECR_URI = re.compile(
    r"(?P<account>[0-9]{12})\.dkr\.ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.(?P<suffix>[a-z0-9.-]+)/"
    r"(?P<repository>[a-z0-9][a-z0-9._/-]*)(?::[A-Za-z0-9_][A-Za-z0-9_.-]*|@sha256:[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True)
class ImageLocation:
    """Where a container's image is, seen from one stack.

    Attributes:
        uri: image URI, possibly with tokens.
        repository_arn: ECR repository that an execution role must be able to pull from.
    """

    uri: str
    repository_arn: str


class ImageSource(Protocol):
    """Finds an image for a stack."""

    def locate(self, scope: Construct) -> ImageLocation:
        """The image as ``scope``'s stack refers to it; raises `ContainerError`."""


@dataclass(frozen=True, slots=True)
class FrameworkImageSource:
    """An image that SageMaker publishes in an account of its own for each region."""

    image: images.FrameworkImage

    def locate(self, scope: Construct) -> ImageLocation:
        """The URI in the stack's region, or through a mapping by region."""
        stack = stack_of(scope)
        if is_token(stack.region):
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
        variant = "" if self.image.architecture == "x86_64" else self.image.architecture
        name = re.sub(r"[^A-Za-z0-9]", "", f"Images-{self.image.framework}-{self.image.version}-{variant}".title())
        found = stack.node.try_find_child(name)
        if isinstance(found, cdk.CfnMapping):
            return found
        return cdk.CfnMapping(
            stack, name, mapping={region: {"account": account} for region, account in sorted(self.image.accounts.items())}
        )


@dataclass(frozen=True, slots=True)
class UriImage:
    """An image in ECR by its URI.

    Attributes:
        uri: literal with a tag or digest, or a token.
        repository_arn: its repository; needed for a token.

    Raises:
        ContainerError: the URI is not one of ECR, or a token's repository is missing.
    """

    uri: str
    repository_arn: str | None

    def __post_init__(self) -> None:
        if is_token(self.uri):
            if self.repository_arn is None:
                raise ContainerError(
                    "The image's repository cannot be read from a token",
                    value="a token",
                    allowed="a literal URI, or a token with repository_arn",
                    fix="Pass repository_arn",
                )
        elif _ECR_URI.fullmatch(self.uri) is None:
            raise ContainerError(
                "The image is not in ECR, or has neither tag nor digest",
                value=self.uri,
                allowed="<account>.dkr.ecr.<region>.<suffix>/<repository>:<tag>, or @sha256:<digest>",
                fix="Push it to ECR in the endpoint's region",
            )

    def locate(self, scope: Construct) -> ImageLocation:
        """The URI as it is, if it is in the stack's region."""
        if self.repository_arn is not None:
            return ImageLocation(self.uri, self.repository_arn)
        match = _ECR_URI.fullmatch(self.uri)
        assert match is not None  # checked when it was made
        stack = stack_of(scope)
        _check_region(stack, match["region"])
        arn = stack.format_arn(
            service="ecr", region=match["region"], account=match["account"], resource="repository", resource_name=match["repository"]
        )
        return ImageLocation(self.uri, arn)


@dataclass(frozen=True, slots=True)
class RepositoryImage:
    """An image of a repository that the app owns or imports.

    Attributes:
        repository: in the endpoint's region.
        tag: tag or ``sha256:...``.

    Raises:
        ContainerError: the tag is empty.
    """

    repository: ecr.IRepository
    tag: str

    def __post_init__(self) -> None:
        if not self.tag:
            raise ContainerError("The image has no tag", value=self.tag, allowed="a tag or sha256:<digest>", fix="Pass the tag to serve")

    def locate(self, scope: Construct) -> ImageLocation:
        """The repository's URI with the tag, if it is in the stack's region."""
        _check_region(stack_of(scope), self.repository.env.region)
        return ImageLocation(self.repository.repository_uri_for_tag_or_digest(self.tag), self.repository.repository_arn)


@dataclass(frozen=True, slots=True)
class AssetImage:
    """An image that ``cdk deploy`` builds from a folder.

    Attributes:
        directory: the build context.
        file: the Dockerfile in it.
        target: stage to build; None is the last.
        build_args: arguments of the build.
        exclude: patterns of files that are not sent to the build.
        architecture: what the image is built for.
    """

    directory: str
    file: str
    target: str | None
    build_args: tuple[tuple[str, str], ...]
    exclude: tuple[str, ...]
    architecture: Architecture

    def locate(self, scope: Construct) -> ImageLocation:
        """The asset's image; a stack has one asset however often it is used."""
        from aws_cdk import aws_ecr_assets as ecr_assets

        stack = stack_of(scope)
        # From the content, not the path: the same on every machine.
        content = [cdk.FileSystem.fingerprint(self.directory), self.file, self.target, self.build_args, self.exclude, self.architecture]
        name = f"ServingImage{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:8]}"
        found = stack.node.try_find_child(name)
        if not isinstance(found, ecr_assets.DockerImageAsset):
            platform = ecr_assets.Platform.LINUX_ARM64 if self.architecture == "arm64" else ecr_assets.Platform.LINUX_AMD64
            found = ecr_assets.DockerImageAsset(
                stack,
                name,
                directory=self.directory,
                file=self.file,
                target=self.target,
                build_args=dict(self.build_args) or None,
                exclude=list(self.exclude) or None,
                platform=platform,
            )
        return ImageLocation(found.image_uri, found.repository.repository_arn)


def _check_region(stack: cdk.Stack, region: str) -> None:
    if not is_token(stack.region) and not is_token(region) and stack.region != region:
        raise ContainerError(
            "The image is in another region than the endpoint",
            value=region,
            allowed=stack.region,
            fix="Push or replicate it to the endpoint's region",
        )


def _domain_suffix(region: str) -> str:
    from aws_cdk.region_info import RegionInfo

    return RegionInfo.get(region).domain_suffix or "amazonaws.com"
