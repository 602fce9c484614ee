# ruff: noqa: SLF001 - reaching into the pinned emulator is what this module is for
"""API keys and usage plans of REST APIs, where the emulator lets more pass than API Gateway does. Part of `mme_local.patches`.

The emulator itself asks for the key of a method that requires one, and counts each key's requests by its plan's throttle and quota.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

__all__ = ["apply"]

_key: ContextVar[Mapping[str, Any] | None] = ContextVar("api_key", default=None)
"""The key that the request under way was let in by."""


def apply() -> None:
    """Patch the emulator in this process."""
    _name_the_key_to_the_function()
    _count_by_the_methods_own_key()
    _show_values_only_on_request()
    _keep_to_the_types_of_patches()
    _refuse_what_cannot_be_subscribed()
    _know_tags()


def _name_the_key_to_the_function() -> None:
    """The key's id and value stand in the ``identity`` of a proxy event.

    Reason: the emulator leaves both out (Amazon API Gateway, Input format of a Lambda function for proxy integration).
    """
    from ministack.services import apigateway_v1

    check, build = apigateway_v1._check_api_key, apigateway_v1._build_lambda_event_v1

    def checked(*arguments: Any) -> Any:
        error, key = check(*arguments)
        _key.set(key if error is None else None)
        return error, key

    def named(*arguments: Any, **options: Any) -> Any:
        event = build(*arguments, **options)
        if (key := _key.get()) is not None:
            event["requestContext"]["identity"] |= {"apiKey": key["value"], "apiKeyId": key["id"]}
        return event

    apigateway_v1._check_api_key = checked
    apigateway_v1._build_lambda_event_v1 = named


def _count_by_the_methods_own_key() -> None:
    """A method that asks for no key counts for no plan, whatever header is sent.

    Reason: the emulator throttles by any header ``x-api-key``; a plan's limits are for methods that require a key (Amazon API Gateway,
    Usage plans and API keys for REST APIs).
    """
    from ministack.services import apigateway_v1

    throttle = apigateway_v1._check_throttle

    def by_its_own(stage: Any, api_id: Any, stage_name: Any, resource_path: Any, http_method: Any, _key_sent: Any) -> Any:
        return throttle(stage, api_id, stage_name, resource_path, http_method, _key.get())

    apigateway_v1._check_throttle = by_its_own


def _show_values_only_on_request() -> None:
    """GetApiKey and GetApiKeys show values only with ``includeValue`` or ``includeValues``, and filter by ``customerId``.

    Reason: the emulator always shows values, so a caller that forgot to ask would work here only.
    """
    from ministack.services import apigateway_v1

    get_one, get_all, route = apigateway_v1._get_api_key, apigateway_v1._get_api_keys, apigateway_v1.handle_request
    shown: ContextVar[bool] = ContextVar("include_value", default=False)

    def one(key_id: str) -> Any:
        status, headers, body = get_one(key_id)
        return status, headers, body if shown.get() else _without_values(body)

    def every(query: Any) -> Any:
        customer = apigateway_v1._qp(query, "customerId")
        if customer is not None:
            keys = apigateway_v1._api_keys
            named = apigateway_v1._qp(query, "name") or ""
            wanted = [key for key in keys.values() if key.get("customerId") == customer and key["name"].startswith(named)]
            status, headers, body = apigateway_v1._v1_paginated_response(wanted, query)
        else:
            status, headers, body = get_all(query)
        return status, headers, body if apigateway_v1._qp(query, "includeValues") == "true" else _without_values(body)

    async def routed(method: Any, path: Any, headers: Any, body: Any, query: Any) -> Any:
        shown.set(apigateway_v1._qp(query or {}, "includeValue") == "true")
        return await route(method, path, headers, body, query)

    apigateway_v1._get_api_key, apigateway_v1._get_api_keys, apigateway_v1.handle_request = one, every, routed


def _without_values(body: bytes) -> bytes:
    def without(document: Any) -> Any:
        return {name: value for name, value in document.items() if name != "value"}

    document = json.loads(body)
    if "item" in document:
        document["item"] = [without(item) for item in document["item"]]
    return json.dumps(without(document)).encode()


def _keep_to_the_types_of_patches() -> None:
    """``enabled`` of a patched key is true or false.

    Reason: patches carry text, and the emulator keeps it: a key that was switched off by ``"false"`` went on opening doors.
    """
    from ministack.services import apigateway_v1

    update = apigateway_v1._update_api_key

    def updated(key_id: str, data: Mapping[str, Any]) -> Any:
        for operation in data.get("patchOperations", ()):
            if operation.get("path") == "/enabled" and isinstance(operation.get("value"), str):
                operation["value"] = operation["value"].lower() == "true"
        return update(key_id, data)

    apigateway_v1._update_api_key = updated


def _refuse_what_cannot_be_subscribed() -> None:
    """A key that is not there joins no plan, one joins no two plans of the same stage, and a deleted key is in none.

    Reason: the emulator takes any (Amazon API Gateway, Usage plans and API keys for REST APIs: one usage plan for each stage), and keeps
    the key's place in its plans. A second key with the same value is refused, too.
    """
    from ministack.services import apigateway_v1

    subscribe, unsubscribe = apigateway_v1._create_usage_plan_key, apigateway_v1._delete_usage_plan_key
    create, delete = apigateway_v1._create_api_key, apigateway_v1._delete_api_key

    def error(code: str, message: str, status: int) -> Any:
        return apigateway_v1._v1_error(code, message, status)

    def stages(plan_id: str) -> set[tuple[str, str]]:
        plan = apigateway_v1._usage_plans.get(plan_id) or {}
        return {(stage.get("apiId"), stage.get("stage")) for stage in plan.get("apiStages") or ()}

    def subscribed(plan_id: str, data: Mapping[str, Any]) -> Any:
        key_id = data.get("keyId", "")
        if plan_id in apigateway_v1._usage_plans and key_id not in apigateway_v1._api_keys:
            return error("NotFoundException", "Invalid API Key identifier specified", 404)
        for other, keys in apigateway_v1._usage_plan_keys.items():
            if key_id in keys and (other == plan_id or stages(other) & stages(plan_id)):
                return error("ConflictException", f"Usage Plan Key {key_id} is subscribed to a plan of the stage already", 409)
        return subscribe(plan_id, data)

    def unsubscribed(plan_id: str, key_id: str) -> Any:
        if key_id not in (apigateway_v1._usage_plan_keys.get(plan_id) or {}):
            return error("NotFoundException", "Invalid Usage Plan Key identifier specified", 404)
        return unsubscribe(plan_id, key_id)

    def created(data: Mapping[str, Any]) -> Any:
        if data.get("value") and any(key.get("value") == data["value"] for key in apigateway_v1._api_keys.values()):
            return error("ConflictException", "API Key already exists", 409)
        return create(data)

    def deleted(key_id: str) -> Any:
        answer = delete(key_id)
        for keys in apigateway_v1._usage_plan_keys.values():
            keys.pop(key_id, None)
        return answer

    apigateway_v1._create_usage_plan_key, apigateway_v1._delete_usage_plan_key = subscribed, unsubscribed
    apigateway_v1._create_api_key, apigateway_v1._delete_api_key = created, deleted


def _know_tags() -> None:
    """The tags that a request sets, and those of API keys and usage plans, are condition keys of policies.

    Reason: the emulator knows neither for API Gateway, so a policy that asks for a tag would deny (Amazon API Gateway, Using tags to
    control access to API Gateway REST API resources).
    """
    from ministack.core import iam_actions
    from ministack.services import apigateway_v1, tagging

    of_request, of_resource = iam_actions.request_tag_context, tagging.resource_tags

    def set_by(service: str, iam_action: str, body: bytes, params: Any) -> Any:
        if service != "apigateway":
            return of_request(service, iam_action, body, params)
        try:
            document = json.loads(body or b"{}")
        except ValueError:
            return {}
        tags = document.get("tags") if isinstance(document, dict) else None
        if not isinstance(tags, dict) or not tags:
            return {}
        return {f"aws:requesttag/{name}".lower(): str(value) for name, value in tags.items()} | {"aws:TagKeys": list(tags)}

    def held_by(arn: str) -> Any:
        _, _, path = arn.partition("::/")
        kind, _, rest = path.partition("/")
        stores = {"apikeys": apigateway_v1._api_keys, "usageplans": apigateway_v1._usage_plans}
        if not arn.startswith("arn:aws:apigateway:") or kind not in stores:
            return of_resource(arn)
        record = stores[kind].get(rest.partition("/")[0])
        return None if record is None else dict(record.get("tags") or {})

    iam_actions.request_tag_context = set_by
    tagging.resource_tags = held_by
