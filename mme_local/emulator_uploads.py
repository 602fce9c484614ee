# ruff: noqa: SLF001 - reaching into the pinned emulator is what this module is for
"""Rules of S3's multipart uploads that the emulator lets pass. Part of `mme_local.patches`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

from mme_facts.limits import MULTIPART_PART_BYTES_LEAST

__all__ = ["apply"]


def apply() -> None:
    """Patch the emulator in this process."""
    _refuse_what_s3_does_not_put_together()
    _refuse_copies_into_other_uploads()


def _refuse_what_s3_does_not_put_together() -> None:
    """CompleteMultipartUpload names its parts in ascending order, each with its tag, and all but the last have 5 MiB or more.

    Reason: the emulator sorts the parts, takes any size, and makes an empty object of no parts (Amazon S3 API reference:
    CompleteMultipartUpload, errors EntityTooSmall, InvalidPartOrder, MalformedXML).
    """
    from ministack.services import s3

    complete = s3._complete_multipart_upload

    def checked(bucket: str, key: str, body: bytes, query: Any, headers: Any = None) -> Any:
        upload_id = s3._qp(query, "uploadId")
        upload = s3._multipart_uploads.get(upload_id)
        if upload is not None and (upload["bucket"], upload["key"]) == (bucket, key) and (refusal := _refusal(upload, body)):
            return s3._error(*refusal, 400, f"/{bucket}/{key}")
        return complete(bucket, key, body, query, headers)

    s3._complete_multipart_upload = checked


def _refusal(upload: Any, body: bytes) -> tuple[str, str] | None:
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - the caller's own request, which the emulator parses the same way
        named = [(int(part.findtext("{*}PartNumber") or ""), part.findtext("{*}ETag")) for part in root.iterfind("{*}Part")]
    except (ElementTree.ParseError, ValueError):
        named = []
    if not named or any(tag is None for _number, tag in named):
        return "MalformedXML", "The XML you provided was not well-formed or did not validate against our published schema"
    numbers = [number for number, _tag in named]
    if any(number >= following for number, following in pairwise(numbers)):
        return "InvalidPartOrder", "The list of parts was not in ascending order. Parts must be ordered by part number."
    stored = upload["parts"]
    for number in numbers[:-1]:
        if number in stored and stored[number]["size"] < MULTIPART_PART_BYTES_LEAST:
            return "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size"
    return None


def _refuse_copies_into_other_uploads() -> None:
    """UploadPartCopy goes to the key of its upload.

    Reason: the emulator puts the part into the upload with this id, whatever bucket and key the request names and was authorized for.
    """
    from ministack.services import s3

    copy = s3._upload_part_copy

    def checked(bucket: str, key: str, query: Any, headers: Any) -> Any:
        upload = s3._multipart_uploads.get(s3._qp(query, "uploadId"))
        if upload is not None and (upload["bucket"], upload["key"]) != (bucket, key):
            return s3._error("NoSuchUpload", "The specified multipart upload does not exist.", 404, f"/{bucket}/{key}")
        return copy(bucket, key, query, headers)

    s3._upload_part_copy = checked
