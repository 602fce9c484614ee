"""The two functions of the API behind an authorizer: another tenant's calls are refused before anything is read, and logged."""

from __future__ import annotations

import json

import pytest

from mme_facts.api import OPERATIONS, Function, Role
from mme_facts.environment import Callers, CallerSource
from mme_tenancy.activation import Activator
from mme_tenancy.handlers.invocation import Invocations
from mme_tenancy.handlers.onboarding import Onboarding
from mme_tenancy.invocation import Invoker
from mme_tenancy.invocation_path import InvocationPath, looked_up_in
from mme_tenancy.registration import Registrar
from mme_tenancy.retirement import Retirer
from mme_tenancy.testing import MemoryIdempotencyStore, MemorySigner, ScriptedRuntime

COGNITO = Callers(CallerSource.COGNITO, "custom:tenant", "platform-admin", ("app",))
LAMBDA = Callers(CallerSource.LAMBDA, "tenant", "role")
NAMES = {"result": "0" * 32, "tenant": "globex", "model": "iris", "version": "v1-0123456789ab"}
OF_TENANTS = [operation for operation in OPERATIONS if "{tenant}" in operation.path]


class Unread:
    """A registry that nobody may ask."""

    def __getattr__(self, name):
        def ask(*_arguments, **_options):
            raise AssertionError(f"the registry was asked for {name}")

        return ask


def told(tenant, **more):
    """What API Gateway writes of a caller in either way."""
    claims = {"sub": "ann", "token_use": "id", "aud": "app", "custom:tenant": tenant}
    return {
        COGNITO: {"claims": {**claims, **more.get("claims", {})}},
        LAMBDA: {"principalId": "ann", "tenant": tenant, **more.get("context", {})},
    }


ADMIN = told("", claims={"cognito:groups": "platform-admin"}, context={"role": "platform-admin"})


@pytest.fixture
def call(clock, pool, context):
    """Sends an operation's event for tenant globex; returns the answer's status and document."""

    def call(operation, callers, authorizer, *, registry=None, method=None, **names):
        registry = Unread() if registry is None else registry
        registrar = Registrar(registry, MemorySigner(clock), [pool], clock, lambda: 0.5)
        activator = Activator(registry, [pool], clock, lambda: 0.5)
        invoker = Invoker(ScriptedRuntime(clock=clock), clock, lambda: 0.5)
        path = InvocationPath(looked_up_in(registry), invoker, clock, background=lambda renew: renew())
        retirer = Retirer(registry, clock, lambda: 0.5, grace_seconds=1)
        functions = {
            Function.ONBOARDING: Onboarding(
                registry, registrar, activator, retirer, MemoryIdempotencyStore(), 1000, clock, callers=callers
            ),
            Function.INVOCATION: Invocations(path, clock, callers=callers),
        }
        event = {
            "resource": operation.path,
            "path": operation.path.format(**NAMES | names),
            "httpMethod": method or operation.method,
            "headers": {"Authorization": "Bearer secret", "Content-Type": "application/json"},
            "pathParameters": NAMES | names,
            "requestContext": {"authorizer": authorizer, "identity": {"sourceIp": "198.51.100.7"}, "requestId": "r-1"},
            "body": "{}",
            "isBase64Encoded": False,
        }
        answer = functions[operation.function](event, context)
        return answer["statusCode"], json.loads(answer["body"])

    return call


@pytest.mark.parametrize("callers", [COGNITO, LAMBDA], ids=["cognito", "lambda"])
@pytest.mark.parametrize("operation", OF_TENANTS, ids=lambda operation: operation.id)
class TestEveryCall:
    def test_of_another_tenant_is_refused_before_anything_is_read(self, call, operation, callers):
        for tenant in ("acme", "globex-evil", "globe"):
            status, document = call(operation, callers, told(tenant)[callers])
            assert (status, document["type"]) == (403, "urn:mme:problem:forbidden")
            assert "secret" not in json.dumps(document)

    def test_without_a_verified_caller_is_refused(self, call, operation, callers):
        for authorizer in (None, {}, told("globex")[LAMBDA if callers is COGNITO else COGNITO]):
            assert call(operation, callers, authorizer)[0] == 403

    def test_of_the_administrator_and_of_the_tenant_itself_are_answered(self, call, operation, callers):
        """That is, somebody asks the registry: the body may be wrong, which comes later."""
        for authorizer, allowed in ((ADMIN[callers], True), (told("globex")[callers], Role.TENANT in operation.roles)):
            status, document = call(operation, callers, authorizer)
            assert (document["type"] == "urn:mme:problem:forbidden") is not allowed, document
            assert (status in (400, 404 if operation.id == "get_result" else 500)) is allowed


@pytest.mark.parametrize("callers", [COGNITO, LAMBDA], ids=["cognito", "lambda"])
def test_a_method_that_the_path_does_not_know_is_refused_to_others_too(call, callers):
    get_tenant = next(operation for operation in OPERATIONS if operation.id == "get_tenant")
    assert call(get_tenant, callers, told("acme")[callers], method="PATCH")[0] == 403
    assert call(get_tenant, callers, told("globex")[callers], method="PATCH")[0] == 405


@pytest.mark.parametrize("callers", [COGNITO, LAMBDA], ids=["cognito", "lambda"])
@pytest.mark.parametrize("model", ["ir is", "iris/..", "\u00efris"])
def test_a_name_that_no_path_can_hold_is_refused_to_others_too(call, callers, model):
    get_model = next(operation for operation in OPERATIONS if operation.id == "get_model")
    assert call(get_model, callers, told("acme")[callers], model=model)[0] == 403
    assert call(get_model, callers, None, model=model)[0] == 403
    assert call(get_model, callers, told("globex")[callers], model=model)[0] == 400


@pytest.mark.parametrize("operation_id", ["get_model", "invoke_model"])
def test_the_attempt_is_logged_without_the_token(call, capsys, caplog, operation_id):
    operation = next(operation for operation in OPERATIONS if operation.id == operation_id)
    call(operation, COGNITO, told("acme")[COGNITO])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")] + list(map(vars, caplog.records))
    (refused,) = [line for line in lines if "refused" in line]
    wanted = {"refused": "other-tenant", "caller": "ann", "caller_tenant": "acme", "path_tenant": "globex", "source_ip": "198.51.100.7"}
    assert wanted.items() <= refused.items()
    assert "tenant" not in refused, "the other tenant's figures stay what they are"
    assert "secret" not in repr(lines)
