"""Registering a version and sending its artifact: in one request or in parts, with addresses that are renewed when they end."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO, cast

from mme_cli.errors import CommandError
from mme_cli.onboarding.artifact import ModelFiles
from mme_cli.onboarding_client import ApiError, OnboardingClient, StoppedError
from mme_cli.signed_http import Answer

__all__ = ["Uploaded", "register_and_upload"]

_RENEWALS = 5
"""So often the addresses of one artifact are renewed, at most: each is good for an hour."""
_PARTS_AT_ONCE = 4
_TRANSIENT_STATUSES = frozenset({408, 409, 429, 500, 502, 503, 504})
_ENDED_STATUSES = frozenset({400, 401, 403, 404})
"""The address has ended: its time is over, its signer's session, or the upload that it is a part of."""
_THERE = 412


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A version whose artifact is with the platform.

    Attributes:
        version: its id.
        new: whether this call uploaded it; ``False``: the platform had the artifact already.
    """

    version: str
    new: bool


class _Slice(io.RawIOBase):
    """A part of a file to send: tells how far it is, and breaks off when the program stops."""

    def __init__(self, file: BinaryIO, size: int, stop: Event, sent: Callable[[int], object]) -> None:
        super().__init__()
        self._file, self._left, self._stop, self._tell = file, size, stop, sent
        self.told = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes; raises `StoppedError` when the program stops."""
        if self._stop.is_set():
            raise StoppedError
        chunk = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(chunk)
        self.told += len(chunk)
        self._tell(len(chunk))
        return chunk


def register_and_upload(client: OnboardingClient, files: ModelFiles, sha256: str, sent: Callable[[int], object]) -> Uploaded:
    """Register a version and upload its artifact; what is there already is not sent again.

    Args:
        client: calls the API for the tenant.
        files: the model.
        sha256: digest of the artifact.
        sent: is told how many bytes more were sent; fewer, when some must be sent again.

    Raises:
        CommandError: a call failed for good, or the file changed meanwhile.
        StoppedError: the program stops.
    """
    body = files.registration(sha256)
    for _ in range(_RENEWALS):
        try:
            registered = client.register(files.tenant, files.model, body)
        except ApiError as error:
            if error.problem == "version-exists":
                return Uploaded(str(error.document["value"]), new=False)
            raise
        version, upload = str(registered["version"]), registered["upload"]
        if upload is None:
            sent(body["size_bytes"])
        elif not _send_all(client, files.artifact, body["size_bytes"], upload, sent):
            continue
        if upload is None or upload.get("parts"):
            try:
                client.complete(files.tenant, files.model, version)
            except ApiError as error:
                if error.problem == "upload-incomplete":
                    continue
                raise
        return Uploaded(version, new=True)
    raise CommandError(
        f"the addresses for {files.tenant}/{files.model} ended {_RENEWALS} times before the artifact was uploaded: try again"
    )


def _send_all(client: OnboardingClient, artifact: Path, size: int, upload: Mapping[str, Any], sent: Callable[[int], object]) -> bool:
    """Send what is missing; ``False``: an address has ended."""
    parts = upload.get("parts") or ()
    if not parts:
        return _send(client, artifact, 0, size, upload["method"], upload["url"], upload["headers"], sent)
    before = [part for part in parts if part["uploaded"]]
    missing = [part for part in parts if not part["uploaded"]]
    sent(_bytes(before))

    def send(part: Mapping[str, Any]) -> bool:
        return _send(client, artifact, part["offset"], part["size_bytes"], upload["method"], part["url"], part["headers"], sent)

    with ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
        try:
            there = list(pool.map(send, missing))
        except KeyboardInterrupt:
            client.retries.stop.set()  # else the pool would wait for the parts under way
            raise
    if all(there):
        return True
    sent(-_bytes(before) - _bytes(part for part, is_there in zip(missing, there, strict=True) if is_there))
    return False


def _bytes(parts: Iterable[Mapping[str, Any]]) -> int:
    return sum(part["size_bytes"] for part in parts)


def _send(
    client: OnboardingClient,
    artifact: Path,
    offset: int,
    size: int,
    method: str,
    url: str,
    headers: Mapping[str, str],
    sent: Callable[[int], object],
) -> bool:
    """Send some bytes of the artifact to one address; ``False``: the address has ended."""

    def attempt() -> Answer:
        with artifact.open("rb") as file:
            file.seek(offset)
            body = _Slice(file, size, client.retries.stop, sent)
            try:
                answer = client.http.upload(method, url, cast(BinaryIO, body), headers)
            except BaseException:
                sent(-body.told)
                raise
            if answer.status >= 300:
                sent(-body.told)
            return answer

    try:
        answer = client.retries.run(attempt, lambda answer: answer.status in _TRANSIENT_STATUSES)
    except OSError as error:
        raise CommandError(f"artifact {str(artifact)!r} cannot be read: {error.strerror}") from None
    if answer.status < 300:
        return True
    if answer.status == _THERE:
        # The address takes only this artifact, once: an attempt whose answer was lost has brought it there.
        sent(size)
        return True
    if answer.status in _ENDED_STATUSES and _has_ended(answer):
        return False
    raise CommandError(f"the upload of {str(artifact)!r} answered {answer.status}: {answer.body.decode('utf-8', 'replace')[:300]}")


def _has_ended(answer: Answer) -> bool:
    """Whether another address would do: S3 says so with these codes (Amazon S3 API reference: Error responses)."""
    return any(
        code in answer.body
        for code in (
            b"<Code>AccessDenied<",
            b"<Code>ExpiredToken<",
            b"<Code>RequestTimeTooSkewed<",
            b"<Code>NoSuchUpload<",
            b"InvalidAccessKeyId",
        )
    )
