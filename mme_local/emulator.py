# ruff: noqa: SLF001 - reaching into the pinned emulator is what this module is for
"""What our services use of the AWS emulator: the request's identity, permissions, roles and users.

The emulator verifies signatures and evaluates IAM policies for its own services; ours go through the same code, so that
a principal is the same everywhere. Call `mme_local.patches.apply` first.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any
from urllib.parse import parse_qs

from mme_local.credentials import Credentials
from mme_local.events import Event
from mme_local.settings import ACCOUNT, REGION
from mme_local.signatures import parse_signature

__all__ = [
    "AccessDeniedError",
    "BodyTooLargeError",
    "Request",
    "assume_service_role",
    "authorize",
    "claimed_access_key_id",
    "create_admin",
    "deliver_event",
    "is_root_key",
    "is_service_session",
    "read_request",
    "reset_state",
]

Receive = Callable[[], Awaitable[Any]]

_ADMIN_USER = "mme-admin"
_SESSION_SECONDS = 3600
_service_keys: set[str] = set()


class AccessDeniedError(Exception):
    """The request is not authenticated or not allowed.

    Attributes:
        code: AWS error code.
        message: AWS-like text.
        authenticated: whether the caller is known (then a policy refused, else the credentials).
    """

    def __init__(self, code: str, message: str, *, authenticated: bool) -> None:
        super().__init__(message)
        self.code, self.message, self.authenticated = code, message, authenticated


class BodyTooLargeError(Exception):
    """The request's body exceeds what its service takes."""


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request to one of our services, with its claimed credentials pinned for `authorize`.

    Attributes:
        method: HTTP method.
        path: decoded path.
        headers: by lower-case name.
        body: as it arrived.
        access_key_id: claimed key, empty when there is none.
        region: of the signature's scope.
        query: its parameters.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    access_key_id: str
    region: str
    query: Mapping[str, list[str]] = field(default_factory=dict)


class _Emulator:
    """The parts of the emulator that every request needs, imported once."""

    def __init__(self) -> None:
        from ministack.app import _request_account_scope
        from ministack.core import iam_actions, iam_evaluator, responses
        from ministack.core.router import extract_access_key_id, extract_region
        from ministack.services import iam

        self.iam_actions, self.iam_evaluator, self.responses, self._iam = iam_actions, iam_evaluator, responses, iam
        self.extract_access_key_id, self.extract_region = extract_access_key_id, extract_region
        self._account_scope = _request_account_scope

    def pin_account(self, access_key_id: str) -> None:
        """Set the account of this task's request."""
        if self._iam._access_keys.get_scoped(ACCOUNT, None, access_key_id) is not None:
            self.responses._request_account_id.set(ACCOUNT)
        else:
            self.responses.set_request_account_id(self._account_scope(access_key_id) if access_key_id else "")

    def pin_signature(self, access_key_id: str, method: str, raw_path: str, headers: Mapping[str, str], body: bytes) -> None:
        """What ``pin_signed_request`` and ``pin_signed_body`` come to for a plain signature without a query."""
        evaluator = self.iam_evaluator
        evaluator._verified_key.set("")
        evaluator._anonymous.set(False)
        evaluator._signed_request.set(evaluator.SignedRequest(access_key_id, method, raw_path, {}, headers, body))


@cache
def _emulator() -> _Emulator:
    return _Emulator()


@lru_cache(maxsize=4096)
def is_root_key(access_key_id: str) -> bool:
    """Whether the emulator would take this key for the account's root without checking its signature."""
    from ministack.core import iam_evaluator

    return bool(access_key_id) and bool(iam_evaluator.is_root_access_key(access_key_id))


def is_service_session(access_key_id: str) -> bool:
    """Whether the key is of a session that `assume_service_role` opened."""
    return access_key_id in _service_keys


def claimed_access_key_id(headers: Mapping[str, str], query: Mapping[str, list[str]]) -> str:
    """The access key a request names in its header or query, or an empty string."""
    return str(_emulator().extract_access_key_id(headers, query))


async def read_request(scope: Mapping[str, Any], receive: Receive, *, body_limit_bytes: int) -> Request:
    """Read a request of one of our services and pin its signature in this task's context, as the emulator does.

    Raises:
        BodyTooLargeError: the body is longer than ``body_limit_bytes``.
    """
    emulator = _emulator()
    headers, repeated = decode_headers(scope["headers"])
    raw_path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
    client = (scope.get("client") or ("127.0.0.1",))[0]
    emulator.responses.set_request_client_ip(client)
    emulator.iam_evaluator.pin_request_origin(client, scope.get("scheme") == "https")
    query_string = scope.get("query_string", b"")
    signature = None if query_string or repeated else parse_signature(headers.get("authorization", ""))
    if signature is not None:
        access_key_id, region, query = signature.access_key_id, signature.region, {}
    else:
        query = parse_qs(query_string.decode(), keep_blank_values=True)
        access_key_id, region = claimed_access_key_id(headers, query), str(emulator.extract_region(headers, query))
        emulator.iam_evaluator.pin_signed_request(scope["method"], raw_path, query, scope["headers"])
    emulator.pin_account(access_key_id)
    emulator.responses.set_request_region(region)
    body = await _read_body(receive, body_limit_bytes)
    if signature is not None:
        emulator.pin_signature(access_key_id, scope["method"], raw_path, headers, body)
    else:
        emulator.iam_evaluator.pin_signed_body(body)
    return Request(scope["method"], scope["path"], headers, body, access_key_id, region, query)


def decode_headers(raw: Iterable[tuple[bytes, bytes]]) -> tuple[dict[str, str], bool]:
    """Headers by lower-case name, and whether one of them came twice: its values are then joined."""
    headers: dict[str, str] = {}
    repeated = False
    for name, value in raw:
        key = name.decode("latin-1").lower()
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.decode("latin-1")
        if key in headers:
            headers[key] = f"{headers[key]}, {text}"
            repeated = True
        else:
            headers[key] = text
    return headers, repeated


async def _read_body(receive: Receive, limit_bytes: int) -> bytes:
    message = await receive()
    first: bytes = message.get("body", b"")
    if not message.get("more_body", False) and len(first) <= limit_bytes:
        return first
    body = bytearray(first)
    while len(body) <= limit_bytes:
        if message["type"] != "http.request" or not message.get("more_body", False):
            return bytes(body)
        message = await receive()
        body += message.get("body", b"")
    raise BodyTooLargeError


def authorize(request: Request, action: str, resource_arn: str, context: Mapping[str, Any] | None = None) -> None:
    """Check the signature of ``request`` (once) and that its principal may do ``action`` on ``resource_arn``.

    Args:
        request: from `read_request`, in the same task.
        action: such as ``sagemaker:InvokeEndpoint``.
        resource_arn: ARN, or ``*`` for actions without resources.
        context: further condition keys of the request, such as ``sagemaker:TargetModel``.

    Raises:
        AccessDeniedError: not authenticated, or not allowed.
    """
    emulator = _emulator()
    iam_evaluator, iam_actions = emulator.iam_evaluator, emulator.iam_actions
    service = action.partition(":")[0]
    denied = iam_evaluator.enforce(request.access_key_id, action, service, request.region, resource_arn, dict(context or {}))
    if denied is None:
        return
    if isinstance(denied, iam_evaluator.AuthError):
        code, _status, message = iam_actions._auth_failure(service, denied.code, denied.message, dict(request.headers))
        raise AccessDeniedError(code, message, authenticated=False)
    message = iam_actions.identity_denial_message(action, denied.principal_arn, resource_arn, denied.decision == "Deny")
    raise AccessDeniedError("AccessDeniedException", message, authenticated=True)


def assume_service_role(role_arn: str, service_principal: str, session_name: str) -> Credentials:
    """Open a session of a role for one of our services, as AWS does for an endpoint's execution role.

    The session lasts an hour.

    Raises:
        AccessDeniedError: no such role, or its trust policy does not name the service.
    """
    from ministack.services import iam, sts

    account = role_arn.split(":")[4] if role_arn.count(":") >= 5 else ""
    name = role_arn.rsplit("/", 1)[-1]
    role = iam._roles.get_scoped(account, None, name)
    if role is None or not _trusts_service(role.get("AssumeRolePolicyDocument"), service_principal, role_arn, account):
        raise AccessDeniedError(
            "ValidationException",
            f"Could not assume role {role_arn}. Please ensure that the role exists and allows principal "
            f"'{service_principal}' to assume the role.",
            authenticated=False,
        )
    keys = Credentials("ASIA" + Credentials.generate().access_key_id[4:], secrets.token_urlsafe(30), secrets.token_urlsafe(60))
    _service_keys.add(keys.access_key_id)
    sts.register_session(
        keys.access_key_id,
        {
            "Arn": f"arn:aws:sts::{account}:assumed-role/{name}/{session_name}",
            "UserId": f"{role.get('RoleId', name)}:{session_name}",
            "SecretAccessKey": keys.secret_access_key,
            "SessionToken": keys.session_token,
            "Expiration": time.time() + _SESSION_SECONDS,
            "AccountId": account,
            "PrincipalType": "AssumedRole",
        },
    )
    return keys


def _trusts_service(document: str | Mapping[str, Any] | None, service_principal: str, role_arn: str, account: str) -> bool:
    from ministack.core import iam_evaluator

    policy = json.loads(document) if isinstance(document, str) else (document or {})
    statements = policy.get("Statement", [])
    # The evaluator knows no service callers (it lets the account's root pass instead), so pick the statements that
    # name the service and evaluate their actions and conditions for it.
    naming = [
        {**statement, "Principal": "*"}
        for statement in (statements if isinstance(statements, list) else [statements])
        if iam_evaluator._service_principal_matches(statement.get("Principal"), service_principal)
    ]
    context = iam_evaluator.EvalContext(
        principal_arn=service_principal,
        principal_type="Service",
        principal_account=account,
        action="sts:AssumeRole",
        resource_arn=role_arn,
        region="",
        service_context={"aws:sourceaccount": account},
    )
    return bool(iam_evaluator.evaluate_trust_policy({"Statement": naming}, service_principal, context))


def create_admin(credentials: Credentials) -> None:
    """Create the administrator: a real IAM user with these keys and the managed policy AdministratorAccess."""
    from ministack.core.responses import request_scope
    from ministack.services import iam

    with request_scope(ACCOUNT, REGION):
        for answer in (
            iam._create_user({"UserName": [_ADMIN_USER]}),
            iam._create_access_key({"UserName": [_ADMIN_USER]}),
            iam._attach_user_policy({"UserName": [_ADMIN_USER], "PolicyArn": ["arn:aws:iam::aws:policy/AdministratorAccess"]}),
        ):
            if answer[0] != 200:
                raise RuntimeError(f"the emulator refused to create the administrator: {answer[2]!r}")
        (generated,) = [key for key, record in iam._access_keys.items() if record["UserName"] == _ADMIN_USER]
        record = iam._access_keys.pop(generated)
        iam._access_keys[credentials.access_key_id] = {
            **record,
            "AccessKeyId": credentials.access_key_id,
            "SecretAccessKey": credentials.secret_access_key,
        }


def deliver_event(event: Event) -> None:
    """Put an event of an AWS service on the default bus: rules that match it call their targets."""
    from ministack.core.responses import request_scope
    from ministack.services import eventbridge

    record = {
        "EventId": event.event_id,
        "Source": event.source,
        "DetailType": event.detail_type,
        "Detail": json.dumps(event.detail),
        "EventBusName": "default",
        "Time": int(event.time),
        "Resources": list(event.resources),
        "Account": ACCOUNT,
        "Region": REGION,
    }
    with request_scope(ACCOUNT, REGION):
        # PutEvents refuses sources of AWS, and gives the event the real time.
        eventbridge._events_log_list().append(record)
        eventbridge._dispatch_event(record)
        eventbridge._archive_event(record)


def reset_state() -> None:
    """Forget the state of all of the emulator's services, users and roles included. Blocking."""
    import ministack.app

    ministack.app._reset_all_state()
