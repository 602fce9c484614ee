"""Refresh ``mme_facts/images.json`` from the pinned ``sagemaker-core`` (``make images``; a test compares the two)."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

FRAMEWORKS = {
    "xgboost": "xgboost",
    "sklearn": "sklearn",
    "pytorch": "pytorch",
    "tensorflow": "tensorflow",
    "mxnet": "mxnet",
    "knn": "knn",
    "linear-learner": "linear-learner",
    "randomcutforest": "randomcutforest",
    "triton": "sagemaker-tritonserver",
}
"""Our name -> that of ``sagemaker-core``: the families that AWS lists (Amazon SageMaker AI, Supported algorithms, frameworks, and instances
for multi-model endpoints)."""

_BEFORE_MULTI_MODEL = {"xgboost", "sagemaker-mxnet", "sagemaker-pytorch", "sagemaker-tensorflow", "sagemaker-tensorflow-serving"}
"""Repositories of images from before multi-model endpoints (November 2019): they have no server that loads models on demand."""

_SCOPES = {"x86_64": "inference", "arm64": "inference_graviton"}
_INSTANCES = {("x86_64", "cpu"): "ml.m5.large", ("x86_64", "gpu"): "ml.g5.xlarge", ("arm64", "cpu"): "ml.c7g.large"}
_REGION = "us-east-1"

Row = tuple[str, str, str, str, str, str]
"""Architecture, processor, Python (or ``""``), repository, tag, name of the registry."""


class Collector:
    """Asks ``sagemaker-core`` and gives each distinct set of publishing accounts a name.

    Attributes:
        registries: name -> region -> account.
    """

    def __init__(self) -> None:
        self.registries: dict[str, dict[str, str]] = {}

    def collect(self, framework: str) -> dict[str, object]:
        """Versions and aliases of one of our frameworks."""
        from sagemaker.core import image_uris

        name = FRAMEWORKS[framework]
        config = image_uris.config_for_framework(name)
        aliases: dict[str, set[str]] = {}
        versions: dict[str, list[Row]] = {}
        for architecture, scope in _SCOPES.items():
            scoped = config if "versions" in config and architecture == "x86_64" else config.get(scope, {"versions": {}})
            for version, entry in scoped["versions"].items():
                rows = sorted(self._rows(name, version, architecture, scoped, entry))
                if rows:
                    versions.setdefault(version, []).extend(rows)
            for alias, version in scoped.get("version_aliases", {}).items():
                if version in versions:
                    aliases.setdefault(alias, set()).add(version)
        return {
            "aliases": {alias: _sorted(aliases[alias]) for alias in _sorted(aliases) if alias not in versions},
            "versions": {version: versions[version] for version in _sorted(versions)},
        }

    def _rows(self, name: str, version: str, architecture: str, scoped: Mapping[str, Any], entry: Mapping[str, Any]) -> Iterator[Row]:
        from sagemaker.core import image_uris

        # MXNet 1.4.1 nests one entry per Python, the others list the Pythons of one entry.
        entries = dict.fromkeys(entry.get("py_versions", [""]), entry) if "repository" in entry else entry
        for python, inner in entries.items():
            if inner["repository"] in _BEFORE_MULTI_MODEL:
                continue
            registry = self._registry(inner["registries"])
            for processor in scoped.get("processors") or inner.get("processors") or ["cpu"]:
                uri = image_uris.retrieve(
                    name,
                    _REGION,
                    version=version,
                    py_version=python or None,
                    image_scope=_SCOPES[architecture],
                    instance_type=_INSTANCES[architecture, processor],
                )
                repository, _, tag = uri.partition("/")[2].partition(":")
                yield architecture, processor, python, repository, tag, registry

    def _registry(self, accounts: Mapping[str, str]) -> str:
        accounts = dict(sorted(accounts.items()))
        for name, known in self.registries.items():
            if known == accounts:
                return name
        name = f"registry-{len(self.registries) + 1}"
        self.registries[name] = accounts
        return name


def render() -> str:
    """The text of ``images.json``: one line for each image and each publishing account."""
    from sagemaker.core import image_uris

    # It builds an endpoint resolver for every look-up otherwise: 60 ms each.
    resolver = functools.cache(image_uris.utils._botocore_resolver)  # noqa: SLF001
    with mock.patch.object(image_uris.utils, "_botocore_resolver", resolver):
        collector = Collector()
        frameworks = {framework: collector.collect(framework) for framework in FRAMEWORKS}
    document = {"source": "sagemaker-core", "registries": collector.registries, "frameworks": frameworks}
    text = json.dumps(document, indent=1)
    return re.sub(r"\[\n\s+([^\[\]]*?)\n\s+\]", lambda match: "[" + re.sub(r"\n\s+", " ", match[1]) + "]", text) + "\n"


def _sorted(versions: Iterable[str]) -> list[str]:
    """Oldest first."""
    return sorted(versions, key=lambda version: [int(number) for number in re.findall(r"\d+", version)])


if __name__ == "__main__":
    import mme_facts

    path = Path(mme_facts.__path__[0]) / "images.json"
    path.write_text(render(), "utf-8")
    print(f"wrote {path.name}: {', '.join(FRAMEWORKS)}", file=sys.stderr)
