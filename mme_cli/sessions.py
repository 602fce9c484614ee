"""Whom the commands ask: a local cloud or AWS, with which credentials."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mme_cli.errors import CommandError
from mme_cli.local_state import LocalState

if TYPE_CHECKING:
    import boto3

__all__ = ["LOOPBACK", "Asked", "open_session"]

_ATTEMPTS = 3
_CONNECT_SECONDS, _READ_SECONDS = 5, 20
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Names of this machine."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom a command asks.

    Attributes:
        where: in words, such as ``AWS region eu-central-1``.
        local: whether it is a local cloud.
        state: the local cloud that runs here, if it is that one.
        session: credentials and region.
        endpoint_url: address instead of AWS's own.
    """

    where: str
    local: bool
    state: LocalState | None
    session: boto3.Session
    endpoint_url: str | None

    def client(self, service: str) -> Any:
        """A client of a service; raises `CommandError` where there can be none."""
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, NoRegionError

        config = Config(
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS}, connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS
        )
        make: Any = self.session.client
        try:
            return make(service, endpoint_url=self.endpoint_url, config=config)
        except NoRegionError as error:
            raise CommandError("no AWS region is set: pass --region, or set AWS_REGION") from error
        except (BotoCoreError, ValueError) as error:
            raise CommandError(f"region or address cannot be used: {error}") from error


def open_session(*, endpoint_url: str | None, region: str | None, profile: str | None, aws: bool) -> Asked:
    """Whom to ask: the address that is given, else the local cloud that runs here, else AWS.

    Args:
        endpoint_url: address of a local cloud or proxy.
        region: AWS region; ``None``: the environment's.
        profile: AWS profile; ``None``: the environment's.
        aws: ask AWS although a local cloud runs here.

    Raises:
        CommandError: the profile does not exist.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ProfileNotFound

    state = None if aws or profile is not None else _running()
    if endpoint_url is None and state is not None:
        endpoint_url = state.endpoint_url
    local = endpoint_url is not None and urlsplit(endpoint_url).hostname in LOOPBACK
    ours = state if state is not None and endpoint_url == state.endpoint_url else None
    try:
        if ours is None:
            # AWS_REGION is what the other SDKs, Lambda and our own commands set; boto3 alone reads AWS_DEFAULT_REGION.
            session = boto3.Session(profile_name=profile, region_name=region or os.environ.get("AWS_REGION"))
        else:
            keys = ours.admin
            session = boto3.Session(keys.access_key_id, keys.secret_access_key, keys.session_token, region_name=region or ours.region)
    except ProfileNotFound as error:
        raise CommandError(f"{error}: use a profile of ~/.aws/config") from error
    except (BotoCoreError, ValueError) as error:
        raise CommandError(f"region or address cannot be used: {error}") from error
    where = f"AWS region {session.region_name}" if session.region_name else "AWS"
    if endpoint_url is not None:
        where = f"the local cloud at {endpoint_url}" if local else endpoint_url
    return Asked(where, local, ours, session, endpoint_url)


def _running() -> LocalState | None:
    try:
        return LocalState.read()
    except CommandError:
        return None
