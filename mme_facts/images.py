"""Image URIs of SageMaker's own containers, from ``images.json`` (refreshed by ``make images``)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

__all__ = ["FrameworkImage", "UnknownImageError", "framework_image", "frameworks", "versions"]


class UnknownImageError(ValueError):
    """No image is known for a framework, version or region; the text names what is."""


@dataclass(frozen=True, slots=True)
class FrameworkImage:
    """One framework version's inference image in all regions.

    Attributes:
        framework: such as ``xgboost``.
        version: such as ``1.7-1``.
        repository: ECR repository name.
        tag: image tag.
        accounts: region -> id of the AWS account that publishes it there.
    """

    framework: str
    version: str
    repository: str
    tag: str
    accounts: Mapping[str, str]

    def account(self, region: str) -> str:
        """The publishing account in ``region``; raises `UnknownImageError`."""
        if region not in self.accounts:
            raise UnknownImageError(
                f"{self.framework} {self.version} is not published in region {region!r}: use one of {', '.join(sorted(self.accounts))}"
            )
        return self.accounts[region]


@cache
def _families() -> Mapping[str, Mapping[str, Mapping[str, object]]]:
    families: Mapping[str, Mapping[str, Mapping[str, object]]] = json.loads(
        resources.files("mme_facts").joinpath("images.json").read_text("utf-8")
    )["frameworks"]
    return families


def frameworks() -> tuple[str, ...]:
    """The frameworks with known images."""
    return tuple(_families())


def versions(framework: str) -> tuple[str, ...]:
    """The known versions of a framework, oldest first; raises `UnknownImageError`."""
    if framework not in _families():
        raise UnknownImageError(f"framework {framework!r} is unknown: use one of {', '.join(frameworks())}")
    return tuple(_families()[framework])


def framework_image(framework: str, version: str) -> FrameworkImage:
    """The image of a framework version; raises `UnknownImageError`."""
    if version not in versions(framework):
        raise UnknownImageError(f"{framework} version {version!r} is unknown: use one of {', '.join(versions(framework))}")
    entry = _families()[framework][version]
    accounts = entry["accounts"]
    assert isinstance(accounts, dict)
    return FrameworkImage(framework, version, str(entry["repository"]), str(entry["tag"]), accounts)
