"""Who calls the API, as API Gateway verified it.

Known only from what API Gateway wrote into the event, and only in the one way that the function is set up for; headers and bodies are
never asked. The standard library only: the invocation function imports it at start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mme_facts.api import Role
from mme_facts.environment import Callers, CallerSource
from mme_facts.grammar import GrammarError, check_tenant_id
from mme_tenancy.errors import ForbiddenError

__all__ = ["Caller", "attempt", "known_caller", "verified_caller"]

_GROUPS = "cognito:groups"
_SHOWN_CHARACTERS = 128


@dataclass(frozen=True, slots=True)
class Caller:
    """A verified caller.

    Attributes:
        name: for the log: the role's session or the user (IAM), the token's subject (Cognito), the authorizer's principal id (Lambda).
        role: what it is; None if IAM has judged the call already, which confines tenants by their policy.
        tenant: whose calls a tenant may make.
    """

    name: str
    role: Role | None
    tenant: str | None = None

    def check(self, roles: frozenset[Role], tenant: str | None) -> None:
        """Refuse a call that is not for this caller.

        Args:
            roles: who may make the call.
            tenant: the tenant in the path, as it came; None if the path has none.

        Raises:
            ForbiddenError: the role is another, or the tenant is.
        """
        if self.role is None:
            return
        if self.role not in roles:
            wanted = " or ".join(sorted(roles))
            raise ForbiddenError(f"this call is for the role {wanted} only, and the caller's is {self.role}", reason="role")
        if self.role is Role.TENANT and tenant is not None and tenant != self.tenant:
            raise ForbiddenError(
                f"the caller is tenant {self.tenant!r}: only paths below /tenants/{self.tenant} are open to it",
                reason="other-tenant",
                field="tenant",
                value=tenant,
                allowed=self.tenant,
            )


def verified_caller(event: Mapping[str, Any], callers: Callers) -> Caller:
    """The caller of a proxy event; raises `ForbiddenError`.

    Args:
        event: API Gateway's proxy event. Of it only ``requestContext`` counts, which callers cannot write.
        callers: how callers are known.

    Sources: Amazon API Gateway, Input format of a Lambda function for proxy integration; Amazon Cognito, Understanding the identity token.
    """
    context = _mapping(event.get("requestContext"))
    if callers.source is CallerSource.IAM:
        return _signer(_mapping(context.get("identity")))
    authorizer = _mapping(context.get("authorizer"))
    if callers.source is CallerSource.COGNITO:
        return _user(_mapping(authorizer.get("claims")), callers)
    return _principal(authorizer, callers, event)


def known_caller(event: Mapping[str, Any], callers: Callers) -> Caller | None:
    """The caller of a proxy event, for the log; None if nobody verified one."""
    try:
        return verified_caller(event, callers)
    except ForbiddenError:
        return None


def attempt(event: Mapping[str, Any], callers: Callers, error: ForbiddenError) -> dict[str, object]:
    """What the log tells of a refused call: who, from where, on whose path and why; never what it was signed or sent with."""
    caller, context = known_caller(event, callers), _mapping(event.get("requestContext"))
    return {
        "refused": error.reason,
        "caller": None if caller is None else caller.name,
        "caller_tenant": None if caller is None else caller.tenant,
        "path_tenant": _shown(_text(_mapping(event.get("pathParameters")), "tenant")),
        "source_ip": _text(_mapping(context.get("identity")), "sourceIp"),
    }


def _signer(identity: Mapping[str, Any]) -> Caller:
    arn = _text(identity, "userArn")
    if not arn:
        raise _unverified("no verified signature")
    return Caller(_shown(arn.split(":", 5)[-1]), None)


def _user(claims: Mapping[str, Any], callers: Callers) -> Caller:
    subject = _text(claims, "sub")
    if not subject:
        raise _unverified("no verified token")
    use, audience = ("access", "client_id") if callers.access_tokens else ("id", "aud")
    if _text(claims, "token_use") != use:
        raise ForbiddenError(f"the token is no {use} token: send that one", reason="token-use")
    if _text(claims, audience) not in callers.clients:
        raise ForbiddenError("the token is for another application", reason="audience")
    if callers.admin in _text(claims, _GROUPS).split(","):
        return Caller(_shown(subject), Role.PLATFORM_ADMIN)
    return Caller(_shown(subject), Role.TENANT, _tenant(claims, callers))


def _principal(authorizer: Mapping[str, Any], callers: Callers, event: Mapping[str, Any]) -> Caller:
    if not authorizer:
        raise _unverified("nothing from the authorizer")
    name, role = _text(authorizer, "principalId"), _text(authorizer, callers.admin)
    # An authorizer that calls its principal by the credential itself would have it logged.
    sent = {part for value in _mapping(event.get("headers")).values() for part in (str(value), str(value).rpartition(" ")[2])}
    name = "(its credential)" if name in sent else _shown(name)
    if role == Role.PLATFORM_ADMIN:
        return Caller(name, Role.PLATFORM_ADMIN)
    if role not in ("", Role.TENANT):
        raise ForbiddenError(f"the caller has a role that is not known here: use {' or '.join(Role)}", reason="role")
    return Caller(name, Role.TENANT, _tenant(authorizer, callers))


def _tenant(verified: Mapping[str, Any], callers: Callers) -> str:
    try:
        return check_tenant_id(_text(verified, callers.tenant))
    except GrammarError as error:
        raise ForbiddenError("the caller belongs to no tenant and is no platform administrator", reason="no-tenant") from error


def _unverified(what: str) -> ForbiddenError:
    return ForbiddenError(f"the call came with {what}", reason="unverified")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) else ""


def _shown(name: str) -> str:
    return name[:_SHOWN_CHARACTERS]
