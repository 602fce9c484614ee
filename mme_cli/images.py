"""Refresh ``mme_facts/images.json`` from the pinned ``sagemaker-core`` (``make images``; a test compares the two)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

FRAMEWORKS = ("xgboost",)


def collect() -> dict[str, object]:
    """Ask ``sagemaker-core`` for every framework, version and region; returns the content of ``images.json``."""
    from sagemaker.core import image_uris

    frameworks: dict[str, dict[str, object]] = {}
    for framework in FRAMEWORKS:
        config = image_uris.config_for_framework(framework)
        versions = config.get("inference", config)["versions"]
        frameworks[framework] = {}
        for version, entry in versions.items():
            accounts: dict[str, str] = {}
            names: set[tuple[str, str]] = set()
            for region in sorted(entry["registries"]):
                uri = image_uris.retrieve(framework, region, version=version, image_scope="inference", instance_type="ml.m5.large")
                registry, _, name = uri.partition("/")
                repository, _, tag = name.partition(":")
                accounts[region] = registry.partition(".")[0]
                names.add((repository, tag))
            ((repository, tag),) = names
            if not repository.startswith("sagemaker-"):  # the built-in algorithm before framework images: it cannot serve several models
                continue
            frameworks[framework][version] = {"repository": repository, "tag": tag, "accounts": accounts}
    return {"source": "sagemaker-core", "frameworks": frameworks}


def render() -> str:
    """The text of ``images.json``."""
    return json.dumps(collect(), indent=1) + "\n"


if __name__ == "__main__":
    import mme_facts

    path = Path(mme_facts.__path__[0]) / "images.json"
    path.write_text(render(), "utf-8")
    print(f"wrote {path.name}: {', '.join(FRAMEWORKS)}", file=sys.stderr)
