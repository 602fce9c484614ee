"""A stand-in for ``docker`` that the CDK CLI calls (``CDK_DOCKER``): nothing is built and no image runs.

It knows the commands of the CLI's asset publishing and no others: ``login``, ``inspect``, ``build``, ``tag`` and ``push``. A build
records the build context and the Dockerfile's labels (`mme_local.images`); a push makes the image known to the local cloud's ECR.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from mme_local.images import HANDLER_LABEL, ImageError, ImageStore

__all__ = ["IMAGES_VARIABLE", "main"]

IMAGES_VARIABLE = "MME_LOCAL_IMAGES"
"""Environment variable with the folder of the images."""

_MEDIA_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
_FAILED, _USAGE = 1, 125


class _UsageError(Exception):
    """The command line is not one that the CDK CLI writes."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(message)


def main(arguments: Sequence[str]) -> int:
    """Run one command; returns the exit status of Docker: 0, 1 (failed) or 125 (not understood)."""
    store = ImageStore(Path(os.environ[IMAGES_VARIABLE]))
    parser = _Parser("docker", allow_abbrev=False)
    parser.add_argument("--config")
    commands = parser.add_subparsers(dest="command", required=True)
    login = commands.add_parser("login", allow_abbrev=False)
    login.add_argument("--username")
    login.add_argument("--password-stdin", action="store_true")
    login.add_argument("registry")
    commands.add_parser("inspect").add_argument("reference")
    tag = commands.add_parser("tag")
    tag.add_argument("source")
    tag.add_argument("target")
    commands.add_parser("push").add_argument("reference")
    _add_build_options(commands.add_parser("build", allow_abbrev=False))
    try:
        given, unknown = parser.parse_known_args(arguments)
        if unknown:
            raise _UsageError(f"unknown arguments {' '.join(unknown)}")
    except _UsageError as error:
        _say(f"{error}; it knows what the CDK CLI needs to publish an asset: login, inspect, build, tag, push")
        return _USAGE
    handlers: dict[str, Callable[[argparse.Namespace, ImageStore], None]] = {
        "login": _login,
        "inspect": _inspect,
        "build": _build,
        "tag": lambda given, store: store.tag(given.source, given.target),
        "push": _push,
    }
    try:
        handlers[given.command](given, store)
    except ImageError as error:
        _say(str(error))
        return _FAILED
    return 0


def _add_build_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tag", "-t", required=True)
    parser.add_argument("--file", "-f", default="Dockerfile")
    parser.add_argument("--build-arg", action="append", default=[])
    parser.add_argument("--target")
    parser.add_argument("--platform", default="")
    for ignored in ("--build-context", "--secret", "--ssh", "--network", "--output", "--cache-from", "--cache-to"):
        parser.add_argument(ignored, action="append")
    parser.add_argument("--no-cache", action="store_true")
    parser.add_argument("context", type=Path)


def _login(_given: argparse.Namespace, _store: ImageStore) -> None:
    sys.stdin.read()  # the password: a push signs its own request


def _inspect(given: argparse.Namespace, store: ImageStore) -> None:
    image = store.find(given.reference)
    print(json.dumps([{"Id": image.digest, "Config": {"Labels": dict(image.labels)}}]))  # noqa: T201 - its output


def _build(given: argparse.Namespace, store: ImageStore) -> None:
    arguments = dict(item.partition("=")[::2] for item in given.build_arg)
    image = store.build(given.context, given.tag, dockerfile=given.file, arguments=arguments, target=given.target, platform=given.platform)
    served = f"{image.labels[HANDLER_LABEL]} of the build context stands in for it" if image.handler else "endpoints of it serve nothing"
    _say(f"nothing is built: the local cloud has no container engine. {given.tag} is recorded; {served}")


def _push(given: argparse.Namespace, store: ImageStore) -> None:
    import botocore.session
    from botocore.exceptions import BotoCoreError, ClientError

    image = store.find(given.reference)
    repository, separator, tag = given.reference.partition("/")[2].rpartition(":")
    if not separator:
        raise ImageError(f"{given.reference} is not HOST/REPOSITORY:TAG")
    manifest = json.dumps({"schemaVersion": 2, "mediaType": _MEDIA_TYPE, "config": {"digest": image.digest}, "layers": []})
    try:
        client: Any = botocore.session.Session().create_client("ecr")
        client.put_image(repositoryName=repository, imageTag=tag, imageManifest=manifest)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ImageAlreadyExistsException":
            raise ImageError(f"{given.reference} cannot be pushed: {error}") from error
    except BotoCoreError as error:
        raise ImageError(f"{given.reference} cannot be pushed: {error}") from error
    store.push(given.reference, f"sha256:{hashlib.sha256(manifest.encode()).hexdigest()}")


def _say(text: str) -> None:
    print(f"docker stand-in of the local cloud: {text}", file=sys.stderr)  # noqa: T201 - its output


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
