"""Artifacts of an endpoint, read from the emulator's S3 over HTTP with the model's execution role."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, BinaryIO

from mme_local.credentials import Credentials
from mme_local.dataplane.interface import ArtifactDenied, ArtifactMissing
from mme_local.emulator import AccessDeniedError

__all__ = ["RoleArtifacts"]

_RENEW_AFTER_SECONDS = 3000.0
_CHUNK_BYTES = 1 << 20


class RoleArtifacts:
    """An `mme_local.dataplane.ArtifactSource` that acts as an execution role: IAM decides what it can read.

    Args:
        endpoint_url: of the gateway.
        region: AWS region.
        bucket: bucket of the artifacts.
        assume: opens an hour's session of the role; raises `AccessDeniedError` when it cannot.
    """

    def __init__(self, endpoint_url: str, region: str, bucket: str, assume: Callable[[], Credentials]) -> None:
        self._endpoint_url, self._region, self._bucket, self._assume = endpoint_url, region, bucket, assume
        self._client: Any = None
        self._opened = 0.0

    def fetch(self, key: str, destination: BinaryIO) -> int:
        """Copy an object to ``destination``; returns its size in bytes. Blocking.

        Raises:
            ArtifactMissing: no such object.
            ArtifactDenied: the role may not read it.
        """
        from botocore.exceptions import ClientError

        try:
            body = self._s3().get_object(Bucket=self._bucket, Key=key)["Body"]
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            text = f"bucket: {self._bucket}, key: {key}: {error.response['Error'].get('Message', error)}"
            if status == 404:
                raise ArtifactMissing(text) from error
            if status in (401, 403):
                raise ArtifactDenied(text) from error
            raise
        size = 0
        for chunk in body.iter_chunks(_CHUNK_BYTES):
            size += destination.write(chunk)
        return size

    def _s3(self) -> Any:
        if self._client is None or time.monotonic() - self._opened > _RENEW_AFTER_SECONDS:
            import botocore.session
            from botocore.config import Config

            try:
                keys = self._assume()
            except AccessDeniedError as error:
                raise ArtifactDenied(error.message) from error
            self._client = botocore.session.Session().create_client(
                "s3",
                region_name=self._region,
                endpoint_url=self._endpoint_url,
                aws_access_key_id=keys.access_key_id,
                aws_secret_access_key=keys.secret_access_key,
                aws_session_token=keys.session_token,
                config=Config(retries={"mode": "standard"}, s3={"addressing_style": "path"}),
            )
            self._opened = time.monotonic()
        return self._client
