"""Image URIs of SageMaker's own containers, from ``images.json`` (refreshed by ``make images``)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, cast

from mme_facts.instances import Architecture

__all__ = [
    "FrameworkImage",
    "Processor",
    "UnknownImageError",
    "canonical_name",
    "framework_image",
    "frameworks",
    "is_multi_model_image",
    "repositories",
    "versions",
]

Processor = Literal["cpu", "gpu"]

_ALIASES = {"scikit-learn": "sklearn"}


class UnknownImageError(ValueError):
    """No image is known for a framework, version, variant or region.

    Attributes:
        value: what was asked for.
        allowed: what is known, in words.
    """

    def __init__(self, what: str, *, value: str, allowed: str) -> None:
        """Build the text of what is unknown, the value and what is known."""
        self.value, self.allowed = value, allowed
        super().__init__(f"{what} {value!r} is unknown: use {allowed}")


@dataclass(frozen=True, slots=True)
class FrameworkImage:
    """One framework version's inference image in all regions.

    Attributes:
        framework: such as ``xgboost``.
        version: such as ``1.7-1``.
        repository: ECR repository name.
        tag: image tag.
        accounts: region -> id of the AWS account that publishes it there.
        architecture: of its machine code.
        processor: ``cpu``, or ``gpu`` if it needs one.
        python: such as ``py312``; empty if the tag does not tell.
    """

    framework: str
    version: str
    repository: str
    tag: str
    accounts: Mapping[str, str]
    architecture: Architecture = "x86_64"
    processor: Processor = "cpu"
    python: str = ""

    def account(self, region: str) -> str:
        """The publishing account in ``region``; raises `UnknownImageError`."""
        if region not in self.accounts:
            allowed = f"one of {', '.join(sorted(self.accounts))}"
            raise UnknownImageError(f"{self.framework} {self.version} in region", value=region, allowed=allowed)
        return self.accounts[region]


@cache
def _document() -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads(resources.files("mme_facts").joinpath("images.json").read_text("utf-8"))
    return document


def frameworks() -> tuple[str, ...]:
    """The frameworks with known images: every family that AWS lists for multi-model endpoints."""
    return tuple(_document()["frameworks"])


def repositories() -> tuple[tuple[str, str], ...]:
    """Framework and ECR repository name of all known images."""
    found = {
        (framework, row[3]): None
        for framework, entry in _document()["frameworks"].items()
        for rows in entry["versions"].values()
        for row in rows
    }
    return tuple(found)


def is_multi_model_image(uri: str) -> bool:
    """Whether an image, such as the base of a Dockerfile, is one of SageMaker's that serve multi-model endpoints and say so by label.

    The GPU images of frameworks other than Triton are not (Amazon SageMaker AI, supported algorithms, frameworks and instances for
    multi-model endpoints).

    Args:
        uri: image URI, with a tag or a digest or without.
    """
    name, _, tag = uri.partition("@")[0].rpartition("/")[2].partition(":")
    return any(name == repository and (framework == "triton" or "-gpu" not in tag) for framework, repository in repositories())


def canonical_name(framework: str) -> str:
    """Our name of a framework: ``sklearn`` for ``scikit-learn``; raises `UnknownImageError`."""
    name = _ALIASES.get(framework, framework)
    if name not in _document()["frameworks"]:
        raise UnknownImageError("framework", value=framework, allowed=f"one of {', '.join(frameworks())}")
    return name


def versions(framework: str) -> tuple[str, ...]:
    """The known versions of a framework, oldest first, without short forms such as ``2.6``; raises `UnknownImageError`."""
    return tuple(_document()["frameworks"][canonical_name(framework)]["versions"])


def framework_image(
    framework: str,
    version: str,
    *,
    architecture: Architecture = "x86_64",
    processor: Processor | None = None,
    python: str | None = None,
) -> FrameworkImage:
    """The image of a framework version.

    Args:
        framework: one of `frameworks`, or ``scikit-learn``.
        version: as SageMaker writes it; a short form such as ``2.6`` gives the newest version that it stands for.
        architecture: of the instances. Default ``x86_64``.
        processor: ``cpu`` or ``gpu``. Default ``cpu``; for Triton ``gpu``.
        python: such as ``py312``. Default: the newest that the version has.

    Raises:
        UnknownImageError: there is no such framework or version, or the version has no such variant.
    """
    name = canonical_name(framework)
    wanted: Processor = processor or ("gpu" if name == "triton" else "cpu")
    variants = _variants(name, version)
    found = [
        image
        for image in variants
        if image.architecture == architecture and image.processor == wanted and (python is None or image.python == python)
    ]
    if not found:
        known = ", ".join(sorted({" ".join(filter(None, (image.architecture, image.processor, image.python))) for image in variants}))
        value = " ".join(filter(None, (architecture, wanted, python)))
        raise UnknownImageError(f"{name} {version} for", value=value, allowed=f"one of {known}")
    return max(found, key=lambda image: _numbers(image.version) + _numbers(image.python))


def _variants(name: str, version: str) -> list[FrameworkImage]:
    entry = _document()["frameworks"][name]
    resolved = [version] if version in entry["versions"] else entry["aliases"].get(version, [])
    if not resolved:
        raise UnknownImageError(f"{name} version", value=version, allowed=f"one of {', '.join(versions(name))}")
    registries = _document()["registries"]
    return [
        FrameworkImage(
            name, full, repository, tag, registries[registry], cast(Architecture, architecture), cast(Processor, processor), python
        )
        for full in resolved
        for architecture, processor, python, repository, tag, registry in entry["versions"][full]
    ]


def _numbers(text: str) -> list[int]:
    """Digits to sort by: Python 3.10 (``py310``) after 3.9 (``py39``), and both after ``py3`` and ``py2``."""
    return [int(number) for number in re.findall(r"\d+", text)]
