"""`mme_tenancy.api_keys.ApiKeys` at API Gateway."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from mme_facts.usage_plans import API_TAG, TIER_TAG, key_name
from mme_tenancy.api_keys import ApiKey, KeyGoneError
from mme_tenancy.errors import UnavailableError
from mme_tenancy.tenants import Tier

__all__ = ["GatewayApiKeys"]

_PAGE = 500
_RETRY_AFTER_SECONDS = 2


class GatewayApiKeys:
    """The keys of one API's tenants, and the usage plans of its stage.

    Keys carry the API's id as a tag: the function's rights end there. They are never listed, because a list may show every key's value.
    Plans are found by the stage that they are for and by their tag: their ids cannot be told to the function, because a plan follows its
    stage, and the stage the function.

    Args:
        client: makes the client when it is needed first.
        api_id: the API.
        stage: its stage.
    """

    def __init__(self, client: Callable[[], Any], api_id: str, stage: str) -> None:
        self._make, self._api, self._stage = client, api_id, stage
        self._made: Any = None
        self._plans: Mapping[Tier, str] = {}

    def create(self, tenant: str) -> ApiKey:
        """Make a key for a tenant, in no plan."""
        name = key_name(self._api, tenant)
        key = self._call("create_api_key", name=name, description="One tenant's.", enabled=True, tags={API_TAG: self._api})
        return ApiKey(key["id"], key["value"])

    def value(self, key: str) -> str | None:
        """A key's value; ``None`` if there is no such key."""
        try:
            value: str = self._call("get_api_key", apiKey=key, includeValue=True)["value"]
        except KeyGoneError:
            return None
        return value

    def join(self, key: str, tier: Tier) -> None:
        """Put a key into a tier's plan and out of the others; raises `KeyGoneError`.

        It leaves before it joins, since a key is in one plan of a stage at most: for an instant it is in none, and its calls are refused.
        """
        plans = self._known_plans()
        if self._subscribe(key, plans[tier]):
            return
        for other, plan in plans.items():
            if other is not tier:
                self._quietly("delete_usage_plan_key", usagePlanId=plan, keyId=key)
        if not self._subscribe(key, plans[tier]):
            raise _unavailable()

    def delete(self, key: str) -> None:
        """Delete a key, if it is there."""
        self._quietly("delete_api_key", apiKey=key)

    def _subscribe(self, key: str, plan: str) -> bool:
        """Put a key into a plan; whether it is there now, else it is in another plan of the stage."""
        try:
            self._call("create_usage_plan_key", usagePlanId=plan, keyId=key, keyType="API_KEY")
        except _ConflictError:
            try:
                self._call("get_usage_plan_key", usagePlanId=plan, keyId=key)
            except KeyGoneError:
                return False
        except KeyGoneError:
            if self.value(key) is None:
                raise
            # It is the plan that is gone: a deployment made another one.
            self._plans = {}
            raise _unavailable() from None
        return True

    def _known_plans(self) -> Mapping[Tier, str]:
        if not self._plans:
            found = {
                Tier(plan["tags"][TIER_TAG]): str(plan["id"])
                for plan in self._pages("get_usage_plans")
                if plan.get("tags", {}).get(TIER_TAG) in set(Tier)
                and any((stage["apiId"], stage["stage"]) == (self._api, self._stage) for stage in plan.get("apiStages", ()))
            }
            if found.keys() != set(Tier):
                # A deployment makes the plans after the function.
                raise _unavailable()
            self._plans = found
        return self._plans

    def _pages(self, operation: str, **parameters: Any) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        position: dict[str, str] = {}
        while True:
            page = self._call(operation, limit=_PAGE, **parameters, **position)
            items += page.get("items", [])
            if not page.get("position"):
                return items
            position = {"position": page["position"]}

    def _quietly(self, operation: str, **parameters: Any) -> None:
        with suppress(KeyGoneError):
            self._call(operation, **parameters)

    def _call(self, operation: str, **parameters: Any) -> Any:
        if self._made is None:
            self._made = self._make()
        try:
            return getattr(self._made, operation)(**parameters)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            if code == "NotFoundException":
                raise KeyGoneError from error
            if code == "ConflictException":
                raise _ConflictError from error
            raise _unavailable() from error
        except BotoCoreError as error:
            raise _unavailable() from error


class _ConflictError(Exception):
    """What is asked for is there already."""


def _unavailable() -> UnavailableError:
    text = "API Gateway cannot be asked for the key at the moment: try again"
    return UnavailableError(text, retry_after_seconds=_RETRY_AFTER_SECONDS)
