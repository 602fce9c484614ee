"""Refresh ``mme_facts/images.json`` from the pinned ``sagemaker-core`` (``make images``; a test compares the two)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

FRAMEWORKS = ("xgboost",)
_REGION = "us-east-1"


def collect() -> dict[str, object]:
    """Ask ``sagemaker-core`` for every framework and version; returns the content of ``images.json``."""
    from sagemaker.core import image_uris

    frameworks: dict[str, dict[str, object]] = {}
    for framework in FRAMEWORKS:
        config = image_uris.config_for_framework(framework)
        versions = config.get("inference", config)["versions"]
        frameworks[framework] = {}
        for version, entry in versions.items():
            uri = image_uris.retrieve(framework, _REGION, version=version, image_scope="inference", instance_type="ml.m5.large")
            repository, _, tag = uri.partition("/")[2].partition(":")
            if not repository.startswith("sagemaker-"):  # the built-in algorithm before framework images: it cannot serve several models
                continue
            # Regions differ in the publishing account only.
            frameworks[framework][version] = {"repository": repository, "tag": tag, "accounts": dict(sorted(entry["registries"].items()))}
    return {"source": "sagemaker-core", "frameworks": frameworks}


def render() -> str:
    """The text of ``images.json``."""
    return json.dumps(collect(), indent=1) + "\n"


if __name__ == "__main__":
    import mme_facts

    path = Path(mme_facts.__path__[0]) / "images.json"
    path.write_text(render(), "utf-8")
    print(f"wrote {path.name}: {', '.join(FRAMEWORKS)}", file=sys.stderr)
