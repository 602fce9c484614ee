"""A deployed platform on the local cloud, as its operator and its tenants reach it."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

from mme_cli.errors import CommandError
from mme_cli.local_state import LocalState
from mme_cli.principals import platform_admin, tenant_session
from mme_cli.signed_http import SignedClient
from mme_local import Credentials

if TYPE_CHECKING:
    from mypy_boto3_sts import STSClient

__all__ = ["LocalPlatform", "endpoint_status", "local_status"]

_STATUS_TIMEOUT_SECONDS = 10


class LocalPlatform:
    """Clients of the deployed tenant API.

    Args:
        state: the running local cloud with the stacks' outputs.
    """

    def __init__(self, state: LocalState) -> None:
        self.state = state

    @cached_property
    def admin_keys(self) -> Credentials:
        """A session of the platform-admin role."""
        return platform_admin(self._sts(self.state.admin), self.state.output("PlatformAdminRoleArn"))

    def tenant_keys(self, tenant: str) -> Credentials:
        """A session that may call the paths of ``tenant`` only."""
        return tenant_session(self._sts(self.admin_keys), self.state.output("TenantAccessRoleArn"), tenant)

    def admin_client(self) -> SignedClient:
        """Calls the API as the platform's admin."""
        return self._client(self.admin_keys)

    def tenant_client(self, tenant: str) -> SignedClient:
        """Calls the API as a tenant."""
        return self._client(self.tenant_keys(tenant))

    def client(self, service: str, keys: Credentials | None = None) -> Any:
        """A boto3 client of any service; as the cloud's admin user unless other credentials are given."""
        import boto3

        keys = keys or self.state.admin
        session = boto3.Session(keys.access_key_id, keys.secret_access_key, keys.session_token, region_name=self.state.region)
        client: Any = session.client
        return client(service, endpoint_url=self.state.endpoint_url)

    def loads(self) -> int:
        """How many model loads the shared endpoint has done so far."""
        return sum(endpoint_status(self.state)["loads_by_model"].values())

    def _client(self, keys: Credentials) -> SignedClient:
        return SignedClient(self.state.output("ApiUrl"), keys, self.state.region)

    def _sts(self, keys: Credentials) -> STSClient:
        client: STSClient = self.client("sts", keys)
        return client


def endpoint_status(state: LocalState) -> dict[str, Any]:
    """The shared endpoint of the deployed platform in `local_status`; raises `CommandError`."""
    name = state.output("EndpointName")
    found: list[dict[str, Any]] = [endpoint for endpoint in local_status(state)["endpoints"] if endpoint["name"] == name]
    if len(found) != 1:
        raise CommandError(f"the local cloud serves no endpoint {name!r}: run 'mme deploy' again")
    return found[0]


def local_status(state: LocalState) -> dict[str, Any]:
    """Endpoints, instances and resident models of the local cloud; raises `CommandError`."""
    try:
        with urlopen(f"{state.endpoint_url}/_mme/status", timeout=_STATUS_TIMEOUT_SECONDS) as response:  # noqa: S310 - our own loopback address
            document: dict[str, Any] = json.load(response)
    except (URLError, ValueError) as error:
        raise CommandError(f"the local cloud at {state.endpoint_url} does not answer: {error}") from error
    return document
