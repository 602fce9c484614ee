"""Container images of the local cloud: records of what the Docker stand-in was given. Nothing is built."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mme_facts.dockerfile import BIND_TO_PORT_LABEL, MULTI_MODEL_LABEL, DockerfileError, DockerfileImage, read_dockerfile
from mme_facts.images import is_multi_model_image

__all__ = ["HANDLER_LABEL", "Image", "ImageError", "ImageStore", "images_folder"]

HANDLER_LABEL = "mme.local.handler"
"""Label of a Dockerfile: the handler in the build context that the local data plane serves instead of the image."""

_HANDLER = re.compile(r"(?P<file>[\w./-]+\.py):(?P<function>\w+)")


class ImageError(ValueError):
    """An image cannot be recorded or found; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Image:
    """A recorded image.

    Attributes:
        digest: ``sha256:...`` of what it was made from.
        labels: those of its Dockerfile, and SageMaker's of a multi-model image of SageMaker's that it starts from.
        handler: absolute ``file.py:function`` of the handler that stands in for it, if its Dockerfile names one.
    """

    digest: str
    labels: Mapping[str, str]
    handler: str | None = None


def images_folder(directory: Path) -> Path:
    """Where the images of a cloud with this folder are recorded (`mme_local.toolchain.cdk_environment`)."""
    return directory / "cdk" / "images"


class ImageStore:
    """Images by reference, in a folder that the stand-in writes and the gateway reads.

    Args:
        folder: made when something is recorded.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def build(
        self,
        context: Path,
        tag: str,
        *,
        dockerfile: str = "Dockerfile",
        arguments: Mapping[str, str] | None = None,
        target: str | None = None,
        platform: str = "",
    ) -> Image:
        """Record a build context under a tag.

        Args:
            context: the folder; it is copied.
            tag: local reference.
            dockerfile: path of the Dockerfile, relative to ``context`` or absolute.
            arguments: build arguments.
            target: the stage to stop at; the last one by default.
            platform: only recorded.

        Raises:
            ImageError: the Dockerfile is missing or unreadable, or names a handler that is not in the context.
        """
        try:
            labels = _labels(read_dockerfile((context / dockerfile).read_text("utf-8"), arguments=arguments, target=target))
        except OSError as error:
            raise ImageError(f"the Dockerfile {context / dockerfile} cannot be read ({error.strerror})") from error
        except (DockerfileError, UnicodeDecodeError) as error:
            raise ImageError(f"the Dockerfile {context / dockerfile} is not sound: {error}") from error
        _check_handler(labels.get(HANDLER_LABEL), context)
        digest = _digest(context, [dockerfile, target or "", platform, json.dumps(labels, sort_keys=True)])
        self._folder.mkdir(parents=True, exist_ok=True)
        place = self._place(digest)
        if not place.exists():
            made = Path(tempfile.mkdtemp(prefix="new-", dir=self._folder))
            shutil.copytree(context, made / "context", symlinks=True)
            (made / "image.json").write_text(json.dumps({"digest": digest, "labels": labels, "platform": platform}), "utf-8")
            try:
                made.rename(place)
            except OSError:  # another build of the same was faster
                shutil.rmtree(made)
        self._point(tag, digest)
        return self._image(digest)

    def tag(self, source: str, name: str) -> None:
        """Give an image another reference; raises `ImageError`."""
        self._point(name, self.find(source).digest)

    def find(self, reference: str) -> Image:
        """A local image by reference; raises `ImageError`."""
        digest = self._read(_key(reference, pushed=False))
        if digest is None:
            raise ImageError(f"there is no image {reference}: build it first")
        return self._image(digest)

    def push(self, reference: str, registry_digest: str) -> None:
        """Note that a registry holds an image; raises `ImageError`.

        Args:
            reference: ``host/repository:tag``.
            registry_digest: the registry's digest of the manifest.
        """
        digest = self.find(reference).digest
        for name in (reference, f"{reference.rpartition(':')[0]}@{registry_digest}"):
            self._write(_key(name, pushed=True), digest)

    def pushed(self, uri: str) -> Image | None:
        """The image behind the URI of a model's container, ``None`` if it was not pushed from here."""
        digest = self._read(_key(uri, pushed=True))
        return None if digest is None else self._image(digest)

    def _point(self, reference: str, digest: str) -> None:
        self._write(_key(reference, pushed=False), digest)

    def _place(self, digest: str) -> Path:
        return self._folder / digest.rpartition(":")[2]

    def _image(self, digest: str) -> Image:
        place = self._place(digest)
        labels: dict[str, str] = json.loads((place / "image.json").read_text("utf-8"))["labels"]
        handler = labels.get(HANDLER_LABEL)
        return Image(digest, labels, f"{place.resolve() / 'context' / handler}" if handler is not None else None)

    def _read(self, key: str) -> str | None:
        try:
            return (self._folder / key).read_text("utf-8")
        except OSError:
            return None

    def _write(self, key: str, digest: str) -> None:
        with tempfile.NamedTemporaryFile("w", dir=self._folder, delete=False, encoding="utf-8") as file:
            file.write(digest)
        Path(file.name).replace(self._folder / key)


def _key(reference: str, *, pushed: bool) -> str:
    """File name of a reference. A registry's host does not matter: there is one."""
    name = reference.split("/", 1)[1] if pushed and "/" in reference else reference
    return f"{'pushed' if pushed else 'local'}-{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _labels(image: DockerfileImage) -> dict[str, str]:
    """What is known of the labels."""
    inherited = (MULTI_MODEL_LABEL, BIND_TO_PORT_LABEL) if is_multi_model_image(image.base) else ()
    return {**dict.fromkeys(inherited, "true"), **image.labels}


def _check_handler(handler: str | None, context: Path) -> None:
    if handler is None:
        return
    match = _HANDLER.fullmatch(handler)
    if match is None or ".." in Path(match["file"]).parts or Path(match["file"]).is_absolute():
        raise ImageError(f"label {HANDLER_LABEL} is {handler!r}: use a file of the build context and its function, handler.py:handle")
    if not (context / match["file"]).is_file():
        raise ImageError(f"label {HANDLER_LABEL} names {match['file']!r}, which is not in the build context {context}")


def _digest(context: Path, further: list[str]) -> str:
    digest = hashlib.sha256("\0".join(further).encode())
    for path in sorted(context.rglob("*")):
        digest.update(f"\0{path.relative_to(context)}\0".encode())
        if path.is_symlink():
            digest.update(str(path.readlink()).encode())
        elif path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"
