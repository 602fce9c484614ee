"""How often AWS was called: every signed request to the gateway, by service and operation, and every execution of a function."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

__all__ = ["CallCounts", "operation_of"]

_S3_PARTS = {"PUT": "UploadPart", "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload", "GET": "ListParts"}
_S3_OBJECTS = {"PUT": "PutObject", "GET": "GetObject", "HEAD": "HeadObject", "DELETE": "DeleteObject", "POST": "PostObject"}
_S3_BUCKETS = {"PUT": "CreateBucket", "GET": "ListObjects", "HEAD": "HeadBucket", "DELETE": "DeleteBucket", "POST": "PostBucket"}


def operation_of(service: str, method: str, path: str, headers: Mapping[str, str], query: Mapping[str, object]) -> str:
    """The name of the operation that a request calls, as its service's API has it where the request tells it; else the method.

    Args:
        service: of the signature's scope.
        method: HTTP method.
        path: decoded path, with the bucket in it for S3.
        headers: by lower-case name.
        query: parameters.
    """
    if target := headers.get("x-amz-target", ""):
        return target.rpartition(".")[2]
    if service == "s3":
        return _s3_operation(method, path, headers, query)
    if service == "sagemaker":
        return "InvokeEndpointWithResponseStream" if path.endswith("-response-stream") else "InvokeEndpoint"
    return method


def _s3_operation(method: str, path: str, headers: Mapping[str, str], query: Mapping[str, object]) -> str:
    copies = "Copy" if "x-amz-copy-source" in headers else ""
    if "uploads" in query:
        return "CreateMultipartUpload" if method == "POST" else "ListMultipartUploads"
    if "uploadId" in query and method in _S3_PARTS:
        return _S3_PARTS[method] + copies
    if "list-type" in query:
        return "ListObjectsV2"
    if method == "POST" and "delete" in query:
        return "DeleteObjects"
    if copies:
        return "CopyObject"
    # A name with an account's port is an address in the path style, as the local cloud is reached: bucket, then key.
    names = _S3_OBJECTS if path.strip("/").partition("/")[2] else _S3_BUCKETS
    return names.get(method, method)


class CallCounts:
    """Counts calls, also from other threads. Calls of a service's own sessions are kept apart: the account's code did not make them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[bool, str, str]] = Counter()

    def add(self, service: str, operation: str, *, by_service: bool = False) -> None:
        """Count one call; ``by_service``: SageMaker made it with an execution role."""
        with self._lock:
            self._counts[by_service, service, operation] += 1

    def clear(self) -> None:
        """Begin at nothing."""
        with self._lock:
            self._counts.clear()

    def document(self) -> dict[str, dict[str, dict[str, int]]]:
        """``{"calls": {service: {operation: count}}, "by_services": the same}``."""
        with self._lock:
            counted = sorted(self._counts.items())
        document: dict[str, dict[str, dict[str, int]]] = {"calls": {}, "by_services": {}}
        for (by_service, service, operation), count in counted:
            document["by_services" if by_service else "calls"].setdefault(service, {})[operation] = count
        return document
