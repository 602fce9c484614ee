# ruff: noqa: SLF001 - reaching into the pinned emulator is what this module is for
"""Every change we make to the AWS emulator's behaviour, each with its reason.

All of them reach into private parts of ministack, so `apply` refuses any version but the one they were written for, and
each is guarded by a contract test in ``tests/local``.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

from mme_local import authorizers, emulator_leading_keys, emulator_limits, emulator_uploads, policy_memory, policy_variables, usage_plans
from mme_local.signatures import parse_signature, signature_holds

__all__ = ["MINISTACK_VERSION", "EmulatorVersionError", "apply", "physical_name", "register_resource_types", "resource_types"]

logger = logging.getLogger(__name__)

MINISTACK_VERSION = "1.5.33"

_HEX_SHA256 = re.compile(r"[0-9a-f]{64}")
_worker_thread_types: set[str] = set()


class EmulatorVersionError(RuntimeError):
    """The installed emulator is not the one that the patches fit."""


def apply() -> None:
    """Patch the emulator in this process; raises `EmulatorVersionError`."""
    installed = metadata.version("ministack")
    if installed != MINISTACK_VERSION:
        raise EmulatorVersionError(
            f"ministack {installed} is installed, but the local cloud's patches fit {MINISTACK_VERSION} only: "
            f"install ministack=={MINISTACK_VERSION}"
        )
    _substitute_policy_variables()
    _remember_policies()
    _check_declared_payload_hash()
    _verify_plain_signatures_quickly()
    _run_our_resource_types_on_worker_threads()
    _render_policy_refusals_as_gateway_responses()
    _check_function_policies()
    authorizers.apply(_function_allows)
    usage_plans.apply()
    emulator_leading_keys.apply()
    emulator_limits.apply()
    emulator_uploads.apply()
    _retry_events_of_rules()
    _authorize_described_repositories()
    _miss_images_that_are_not_there()


def _substitute_policy_variables() -> None:
    """Policy variables in Resource, NotResource and condition values.

    Reason: the evaluator compares ``${aws:PrincipalTag/tenant}`` literally, so every tenant-scoped policy of the
    library would deny everyone (trap 10 of the emulator).
    """
    from ministack.core import iam_evaluator

    first_match = iam_evaluator._first_match
    conditions_met = iam_evaluator._conditions_met

    def resolver(ctx: Any) -> Callable[[str], object]:
        return lambda key: iam_evaluator._resolve_condition_key(key, ctx)

    def first_match_with_variables(ctx: Any, statements: Sequence[Any], effect: str) -> Any:
        for statement in statements:
            if statement.effect != effect:
                continue
            substituted = _with_resources(statement, resolver(ctx))
            if substituted is not None and first_match(ctx, [substituted], effect):
                return statement
        return None

    def conditions_met_with_variables(conditions: Mapping[str, Any], ctx: Any) -> bool:
        return bool(conditions_met(_substituted_conditions(conditions, resolver(ctx)), ctx))

    iam_evaluator._first_match = first_match_with_variables
    iam_evaluator._conditions_met = conditions_met_with_variables
    iam_evaluator.fnmatch_iam_cs = policy_variables.pattern_matches


def _remember_policies() -> None:
    """Parsed policies and what they decided are remembered (`mme_local.policy_memory`).

    Reason: the emulator parses and evaluates all policies of a caller for every request, which is most of an invocation's time.
    """
    from ministack.core import iam_evaluator

    iam_evaluator.parse_policy_document = policy_memory.remember_parsed(iam_evaluator.parse_policy_document)
    iam_evaluator.evaluate = policy_memory.Decisions(iam_evaluator.evaluate)


def _with_resources(statement: Any, resolve: Callable[[str], object]) -> Any:
    """The statement with its resources substituted, or None when an Allow excepts something that cannot be named.

    "All but <unknown>" would allow everything; both NotResource and negated conditions can say that.
    """
    not_resources = policy_variables.substitute_all(statement.not_resources, resolve)
    if statement.effect == "Allow" and (policy_variables.NOTHING in not_resources or _excepts_unknown(statement.conditions, resolve)):
        return None
    resources = policy_variables.substitute_all(statement.resources, resolve)
    return dataclasses.replace(statement, resources=resources, not_resources=not_resources)


def _excepts_unknown(conditions: Mapping[str, Any], resolve: Callable[[str], object]) -> bool:
    return any(
        "not" in operator.lower() and policy_variables.substitute(str(item), resolve) is None
        for operator, block in (conditions or {}).items()
        if isinstance(block, Mapping)
        for value in block.values()
        for item in (value if isinstance(value, list) else [value])
    )


def _substituted_conditions(conditions: Mapping[str, Any], resolve: Callable[[str], object]) -> dict[str, Any]:
    substituted: dict[str, Any] = {}
    for operator, block in (conditions or {}).items():
        if not isinstance(block, Mapping):
            continue
        wildcards = "like" in operator.lower() or "arn" in operator.lower()
        substituted[operator] = {
            key: [
                text if wildcards else policy_variables.literal(text)
                for item in (value if isinstance(value, list) else [value])
                if (text := policy_variables.substitute(str(item), resolve)) is not None
            ]
            for key, value in block.items()
        }
    return substituted


def _check_declared_payload_hash() -> None:
    """The ``x-amz-content-sha256`` header must be the digest of the body.

    Reason: the emulator signs over the header when there is one and never compares it with the body, so a body changed
    on the way would pass as signed.
    """
    from ministack.core import sigv4

    signature_failure = sigv4.header_signature_failure

    def checked(signature: Any, secret: str, method: str, raw_path: str, query: Any, headers: Any, body: bytes, **options: Any) -> Any:
        declared = headers.get("x-amz-content-sha256") or ""
        if _HEX_SHA256.fullmatch(declared) and hashlib.sha256(body).hexdigest() != declared:
            return "SignatureDoesNotMatch", "The x-amz-content-sha256 header is not the SHA-256 of the body that arrived."
        return signature_failure(signature, secret, method, raw_path, query, headers, body, **options)

    sigv4.header_signature_failure = checked


def _verify_plain_signatures_quickly() -> None:
    """Plain signatures are verified by `mme_local.signatures`, and which keys are the root's is remembered.

    Reason: speed. What does not hold there, or is of another kind, goes to the emulator's own code, which says what is wrong with it.
    """
    from ministack.core import iam_evaluator
    from ministack.core.responses import _account_from_sts_session

    authenticate = iam_evaluator.authenticate
    pinned = iam_evaluator._signed_request

    def authenticate_quickly(access_key_id: str, account_id: str) -> Any:
        request = pinned.get()
        if request is None or request.query_params or request.access_key_id != access_key_id:
            return authenticate(access_key_id, account_id)
        signature = parse_signature(request.headers.get("authorization", ""))
        # S3 signs paths as they are and bodies in several ways.
        if signature is None or signature.access_key_id != access_key_id or signature.service == "s3":
            return authenticate(access_key_id, account_id)
        token = request.headers.get("x-amz-security-token", "")
        credential = iam_evaluator.resolve_credential(access_key_id, _account_from_sts_session(access_key_id) or account_id, token)
        if not isinstance(credential, iam_evaluator.ResolvedCredential) or not signature_holds(
            signature, credential.secret_access_key, request.method, request.raw_path, request.headers, request.body, time.time()
        ):
            return authenticate(access_key_id, account_id)
        pinned.set(None)
        iam_evaluator._verified_key.set(access_key_id)
        return credential

    iam_evaluator.authenticate = authenticate_quickly
    # The environment that the answer depends on does not change any more.
    iam_evaluator.is_root_access_key = functools.lru_cache(maxsize=4096)(iam_evaluator.is_root_access_key)


def _run_our_resource_types_on_worker_threads() -> None:
    """CloudFormation provisioners of ours run on threads.

    Reason: the engine runs a provisioner on the event loop unless this private function says otherwise; an endpoint
    that waits for its model servers would freeze the gateway that has to start them.
    """
    from ministack.services.cloudformation import stacks

    original = stacks._runs_on_worker_thread
    stacks._runs_on_worker_thread = lambda resource_type: resource_type in _worker_thread_types or original(resource_type)


def _render_policy_refusals_as_gateway_responses() -> None:
    """A call that the caller's policy does not allow is answered by the API's ``ACCESS_DENIED`` gateway response.

    Reason: the emulator renders other refusals through gateway responses, but answers this one in another protocol, so the
    problem documents of the tenant API would be missing for the most common refusal.
    """
    import ministack.app
    from ministack.core import arn, iam_actions, iam_evaluator, responses, router
    from ministack.services import apigateway_v1

    enforce = ministack.app._enforce_execute_api
    apigateway_v1._AUTHENTICATION_GATEWAY_ERRORS["AccessDenied"] = ("ACCESS_DENIED", "AccessDeniedException")

    def enforce_and_render(
        api_id: str, stage: str, method: str, path: str, headers: Any, query: Any, iam_action: str = "execute-api:Invoke"
    ) -> Any:
        refusal = enforce(api_id, stage, method, path, headers, query, iam_action)
        if refusal is None or refusal[1].get("x-amzn-errortype") != "AccessDeniedException":
            return refusal
        resource = arn.execute_api_arn(router.extract_region(headers, query), responses.get_account_id(), api_id, stage, method, path)
        caller = iam_evaluator.request_caller_arn(headers, query)
        message = iam_actions.identity_denial_message(iam_action, caller, resource, b"explicit deny" in refusal[2])
        error = iam_evaluator.AuthError("AccessDenied", message)
        return apigateway_v1.authentication_error_response(api_id, stage, error, headers, query) or refusal

    ministack.app._enforce_execute_api = enforce_and_render


def _check_function_policies() -> None:
    """API Gateway and EventBridge invoke a function only if its resource policy allows them to.

    Reason: the emulator never asks, so a forgotten ``lambda:InvokeFunction`` permission would show on AWS only.
    """
    from ministack.core import arn, responses
    from ministack.services import apigateway_v1, eventbridge

    invoke_proxy = apigateway_v1._invoke_lambda_proxy_v1
    invoke_target = eventbridge._invoke_target

    async def checked_proxy(
        integration: Any, api_id: str, stage_name: str, stage: Any, resource: Any, request_path: str, method: str, *rest: Any, **scope: Any
    ) -> Any:
        account = scope.get("owner_account_id") or responses.get_account_id()
        region = scope.get("owner_region") or responses.get_region()
        function = apigateway_v1._extract_lambda_ref_from_integration_uri(integration.get("uri", ""))
        source = arn.execute_api_arn(region, account, api_id, stage_name, method, resource.get("path", request_path))
        if not _function_allows(function, "apigateway.amazonaws.com", source, account, region):
            logger.warning("API Gateway may not invoke %s from %s: its resource policy does not allow it", function, source)
            return apigateway_v1._gw_error("API_CONFIGURATION_ERROR", "Internal server error")
        return await invoke_proxy(integration, api_id, stage_name, stage, resource, request_path, method, *rest, **scope)

    def checked_target(target: Any, event: Any, rule: Any, view: Any = None) -> Any:
        function = target.get("Arn", "")
        if ":lambda:" in function:
            account, region = responses.get_account_id(), responses.get_region()
            if not _function_allows(function, "events.amazonaws.com", rule.get("Arn", ""), account, region):
                logger.warning("rule %s may not invoke %s: its resource policy does not allow it", rule.get("Arn"), function)
                return None
        return invoke_target(target, event, rule, view)

    apigateway_v1._invoke_lambda_proxy_v1 = checked_proxy
    eventbridge._invoke_target = checked_target


def _function_allows(reference: str, service: str, source_arn: str, account: str, region: str) -> bool:
    """Whether a function's resource policy lets a service invoke it for a source; an unknown function is left to the caller."""
    from ministack.core import iam_evaluator
    from ministack.services import lambda_svc

    function, config, _name = lambda_svc._get_func_record_for_ref_in_scope(reference, account_id=account, region=region)
    if not function or not config:
        return True
    context = iam_evaluator.EvalContext(
        principal_arn=service,
        principal_type="Service",
        principal_account=account,
        action="lambda:InvokeFunction",
        resource_arn=config["FunctionArn"],
        region=region,
        service_context={"aws:sourcearn": source_arn, "aws:sourceaccount": account},
    )
    decision = iam_evaluator.evaluate_resource_policy(function.get("policy"), context, service=service).decision
    return bool(decision == "Allow")


def _retry_events_of_rules() -> None:
    """A rule's function is invoked as Lambda invokes asynchronously: two retries, then the dead-letter queue.

    Reason: the emulator runs the function once and forgets the event, while it does retry for S3 notifications and Invoke.
    """
    from ministack.services import eventbridge, lambda_svc

    def dispatch(arn: str, payload: str) -> None:
        function, config, name = lambda_svc._get_func_record_for_ref(arn)
        if not function or not config:
            logger.warning("EventBridge: function %s not found", name)
            return
        lambda_svc.invoke_async_with_retry(lambda_svc._execution_record_for_config(function, config), json.loads(payload))

    eventbridge._dispatch_to_lambda = dispatch


def _authorize_described_repositories() -> None:
    """``ecr:DescribeRepositories`` of one repository is authorized on that repository.

    Reason: the emulator authorizes it on ``*``, so the CDK bootstrap's image publishing role, which may describe its own repository
    only, cannot publish an image.
    """
    from ministack.core import iam_actions

    extract = iam_actions.extract_resource_arn

    def extract_with_repositories(
        service: str, method: str, path: str, headers: Any, body: bytes, query_params: Any, region: str, account_id: str
    ) -> str:
        found = str(extract(service, method, path, headers, body, query_params, region, account_id))
        names = iam_actions._safe_json_field(body, "repositoryNames") if service == "ecr" and found == "*" else ""
        if isinstance(names, list) and len(names) == 1:
            return f"arn:aws:ecr:{region}:{account_id}:repository/{names[0]}"
        return found

    iam_actions.extract_resource_arn = extract_with_repositories


def _miss_images_that_are_not_there() -> None:
    """``ecr:DescribeImages`` of an image that is not there fails with ImageNotFoundException.

    Reason: the emulator answers an empty list, which the CDK CLI takes for an image that is published already.
    """
    from ministack.core.responses import error_response_json
    from ministack.services import ecr

    describe = ecr._describe_images

    def describe_or_miss(data: Mapping[str, Any]) -> Any:
        name = data.get("repositoryName", "")
        for wanted in data.get("imageIds") or []:
            if name in ecr._repositories and not ecr._find_image(name, wanted):
                text = f"The image with imageId {json.dumps(wanted)} does not exist within the repository with name '{name}'"
                return error_response_json("ImageNotFoundException", text, 400)
        return describe(data)

    ecr._describe_images = describe_or_miss


def resource_types() -> list[str]:
    """All CloudFormation types that can be provisioned, sorted."""
    from ministack.services.cloudformation import provisioners

    return sorted(provisioners._RESOURCE_HANDLERS)


def register_resource_types(
    types: Mapping[str, Mapping[str, Any]],
    *,
    replacing: Mapping[str, Sequence[str]],
    tagged: Sequence[str],
    waiting: Iterable[str],
    with_logical_id: Sequence[str],
) -> None:
    """Add CloudFormation resource types to the emulator, or put ours in the place of its own.

    Args:
        types: type -> ``create``, ``update`` and ``delete`` callables in the emulator's form.
        replacing: type -> the properties whose change replaces the resource.
        tagged: the types that stack-level tags reach through a ``Tags`` list.
        waiting: the types whose provisioners wait for the event loop, so that they run on threads.
        with_logical_id: the types whose ``update`` takes the logical id, too.
    """
    from ministack.services.cloudformation import provisioners

    provisioners._RESOURCE_HANDLERS.update({name: dict(handler) for name, handler in types.items()})
    for name in with_logical_id:
        provisioners._RESOURCE_HANDLERS[name]["update_with_logical_id"] = True
    provisioners._REPLACING_PROPERTIES.update({name: tuple(properties) for name, properties in replacing.items()})
    provisioners._STACK_TAG_PROPERTY.update(dict.fromkeys(tagged, ("Tags", "list")))
    _worker_thread_types.update(waiting)


def physical_name(stack: str, logical_id: str, characters: int) -> str:
    """CloudFormation's generated name for an unnamed resource; a replacement gets another one."""
    from ministack.services.cloudformation import provisioners

    return str(provisioners._physical_name(stack, logical_id, max_len=characters))
