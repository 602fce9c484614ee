"""Where the onboarding API is and who calls it: the local cloud of this folder, a stack on AWS, or an address."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mme_cli.errors import CommandError, UsageError
from mme_cli.local_state import LocalState
from mme_cli.onboarding_client import OnboardingClient, Retries
from mme_cli.platform import LocalPlatform
from mme_cli.principals import platform_admin, tenant_session
from mme_cli.sessions import LOOPBACK
from mme_cli.signed_http import HttpClient, SignedClient, TokenClient
from mme_local import Credentials

if TYPE_CHECKING:
    import boto3

__all__ = ["TOKEN_VARIABLE", "Connection", "KeptSession", "connect"]

TOKEN_VARIABLE = "MME_API_TOKEN"  # noqa: S105 - its name
"""The environment variable with the token for an API that has an authorizer."""
_RENEW_AFTER_SECONDS = 3000.0
_OUTPUTS = ("ApiUrl", "PlatformAdminRoleArn", "TenantAccessRoleArn")


class KeptSession:
    """Credentials of an assumed role, renewed before their hour is over; may be used by several threads.

    Args:
        assume: opens a session.
        monotonic: clock.
    """

    def __init__(self, assume: Callable[[], Credentials], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._assume, self._monotonic = assume, monotonic
        self._keys: Credentials | None = None
        self._opened = 0.0
        self._lock = Lock()

    def __call__(self) -> Credentials:
        """Credentials that are valid now."""
        with self._lock:
            if self._keys is None or self._monotonic() - self._opened > _RENEW_AFTER_SECONDS:
                self._keys, self._opened = self._assume(), self._monotonic()
            return self._keys


@dataclass(frozen=True, slots=True)
class Connection:
    """A deployed API and who calls it.

    Attributes:
        admin: makes what calls as the platform's administrator, with as many connections.
        tenant: the same for a tenant by its id.
    """

    admin: Callable[[int], HttpClient]
    tenant: Callable[[str, int], HttpClient]

    def as_admin(self, stop: Event | None = None, *, connections: int = 16) -> OnboardingClient:
        """A client that reaches every path."""
        return _client(self.admin(connections), stop)

    def as_tenant(self, tenant: str, stop: Event | None = None, *, connections: int = 16) -> OnboardingClient:
        """A client that reaches the paths of one tenant."""
        return _client(self.tenant(tenant, connections), stop)

    @classmethod
    def signed(
        cls, url: str, region: str, admin: Callable[[], Credentials], tenant: Callable[[str], Callable[[], Credentials]]
    ) -> Connection:
        """An API with IAM authorization.

        Args:
            url: the stage's address.
            region: AWS region.
            admin: credentials of the platform's administrator.
            tenant: credentials that may call the paths of one tenant.
        """
        return cls(
            lambda connections: SignedClient(url, admin, region, connections=connections),
            lambda name, connections: SignedClient(url, tenant(name), region, connections=connections),
        )

    @classmethod
    def with_token(cls, url: str, token: str) -> Connection:
        """An API with an authorizer: the token alone says who calls."""
        return cls(
            lambda connections: TokenClient(url, token, connections=connections),
            lambda _name, connections: TokenClient(url, token, connections=connections),
        )


def _client(http: HttpClient, stop: Event | None) -> OnboardingClient:
    return OnboardingClient(http, Retries() if stop is None else Retries(stop=stop))


def connect(*, stack: str | None = None, api_url: str | None = None, region: str | None = None, profile: str | None = None) -> Connection:
    """Find the API.

    Args:
        stack: name of the CloudFormation stack whose outputs are `ApiUrl`, `PlatformAdminRoleArn` and `TenantAccessRoleArn`; the roles are
            assumed with the credentials of the environment.
        api_url: address of the API's stage, which is called with the token in `TOKEN_VARIABLE`, or, without one, with the AWS credentials
            of the environment as they are.
        region: AWS region. Default: the environment's, or the address's own.
        profile: AWS profile. Default: the environment's.

    Without ``stack`` and ``api_url`` it is the local cloud that runs in this folder.

    Raises:
        UsageError: the address is neither https nor on this machine.
        CommandError: no local cloud runs here, there is no such stack, an output is missing, or there are no credentials.
    """
    if stack is not None and api_url is not None:
        raise CommandError("use either --stack or --api-url")
    if stack is None and api_url is None:
        try:
            state = LocalState.read()
        except CommandError as error:
            raise CommandError(f"{error}; for AWS, pass --stack or --api-url") from None
        return _local(state)
    if api_url is not None:
        _check_address(api_url)
    if api_url is not None and (token := os.environ.get(TOKEN_VARIABLE, "")):
        return Connection.with_token(api_url, token)
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        # boto3 itself looks at AWS_DEFAULT_REGION and the profile only.
        known = region or (None if api_url is None else _region_of(api_url)) or os.environ.get("AWS_REGION") or None
        session = boto3.Session(profile_name=profile, region_name=known)
    except BotoCoreError as error:
        raise CommandError(f"the AWS profile cannot be used: {error}") from None
    if session.region_name is None:
        raise CommandError("the AWS region is unknown: name it with --region, or set AWS_REGION")
    found = session.get_credentials()
    if found is None:
        raise CommandError("there are no AWS credentials: set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use --profile")

    def own() -> Credentials:
        frozen = found.get_frozen_credentials()
        return Credentials(str(frozen.access_key), str(frozen.secret_key), frozen.token)

    if api_url is not None:
        return Connection.signed(api_url, session.region_name, own, lambda _tenant: own)
    assert stack is not None
    outputs = _outputs(session, stack)
    return _with_roles(outputs, session.region_name, lambda keys: _sts(session, keys), own)


def _check_address(api_url: str) -> None:
    """Refuse what would send a token, or a session, readable through the network; raises `UsageError`."""
    parts = urlsplit(api_url)
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)):
        raise UsageError(
            f"--api-url {api_url!r} is not allowed: use https://, or http:// on this machine, such as the stack's output ApiUrl"
        )


def _local(state: LocalState) -> Connection:
    platform = LocalPlatform(state)
    return _with_roles(
        {name: state.output(name) for name in _OUTPUTS}, state.region, lambda keys: platform.client("sts", keys), lambda: state.admin
    )


def _with_roles(outputs: dict[str, str], region: str, sts: Callable[[Credentials], Any], own: Callable[[], Credentials]) -> Connection:
    admin = KeptSession(lambda: platform_admin(sts(own()), outputs["PlatformAdminRoleArn"]))

    def tenant(name: str) -> KeptSession:
        return KeptSession(lambda: tenant_session(sts(admin()), outputs["TenantAccessRoleArn"], name))

    return Connection.signed(outputs["ApiUrl"], region, admin, tenant)


def _outputs(session: boto3.Session, stack: str) -> dict[str, str]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        (described,) = session.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    except (ClientError, BotoCoreError) as error:
        raise CommandError(f"the outputs of stack {stack!r} cannot be read: {error}") from None
    outputs = {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", ())}
    if missing := [name for name in _OUTPUTS if name not in outputs]:
        raise CommandError(f"stack {stack!r} has no output {missing[0]}: name the stack that holds the tenant API, such as MmePlatform")
    return outputs


def _sts(session: boto3.Session, keys: Credentials) -> Any:
    client: Any = session.client
    return client(
        "sts",
        aws_access_key_id=keys.access_key_id,
        aws_secret_access_key=keys.secret_access_key,
        aws_session_token=keys.session_token,
    )


def _region_of(api_url: str) -> str | None:
    """The region in an address of API Gateway, ``https://ID.execute-api.REGION.amazonaws.com/STAGE``."""
    parts = (urlsplit(api_url).hostname or "").split(".")
    return parts[parts.index("execute-api") + 1] if "execute-api" in parts[:-1] else None
