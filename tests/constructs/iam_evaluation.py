"""Decisions of an IAM evaluator about policies as CDK synthesized them.

The evaluator is the local cloud's: the emulator's with the policy variables that the local cloud adds. It runs in a process of its own,
as the emulator keeps globals and is never imported into the test process. One process decides all requests of a call.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Request", "decide", "resolved"]

_PROGRAM = """
import json, sys
from mme_local import patches
patches.apply()
from ministack.core.iam_evaluator import EvalContext, evaluate, evaluate_resource_policy, parse_policy_document

def decide(identity, resource_policy, request):
    keys = {name.lower(): value for name, value in request["keys"].items()}
    context = EvalContext(
        principal_arn=request["principal"],
        principal_type="AssumedRole",
        principal_account=request["account"],
        action=request["action"],
        resource_arn=request["resource"],
        region="eu-central-1",
        secure_transport=True,
        service_context={name: value for name, value in keys.items() if not name.startswith("aws:principal")},
        principal_keys={name: value for name, value in keys.items() if name.startswith("aws:principal")},
    )
    if resource_policy is not None and evaluate_resource_policy(resource_policy, context).decision == "Deny":
        return False
    return evaluate(context, [parse_policy_document(identity)]).decision == "Allow"

given = json.load(sys.stdin)
print(json.dumps([decide(given["identity"], given["resource_policy"], request) for request in given["requests"]]))
"""


@dataclass(frozen=True, slots=True)
class Request:
    """One authorization request.

    Attributes:
        action: such as ``s3:PutObject``.
        resource: the ARN it is for.
        keys: condition keys that the request carries; a session's tags are ``aws:PrincipalTag/<name>``.
        principal: who asks.
        account: of the principal; empty for calls that are not signed.
    """

    action: str
    resource: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    principal: str = "arn:aws:sts::111122223333:assumed-role/Tenants/session"
    account: str = "111122223333"


def decide(identity: Mapping[str, Any], requests: Sequence[Request], *, resource_policy: Mapping[str, Any] | None = None) -> list[bool]:
    """Whether each request is allowed by the identity policy and not refused by the resource policy."""
    given = {"identity": identity, "resource_policy": resource_policy, "requests": [asdict(request) for request in requests]}
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], input=json.dumps(given), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    answer: list[bool] = json.loads(ran.stdout)
    return answer


def resolved(node: Any, values: Mapping[str, str]) -> Any:
    """A template's fragment as it would be deployed.

    Args:
        node: JSON with CloudFormation's intrinsics.
        values: logical id -> what a reference to it gives, for ``Ref`` and ``Fn::GetAtt`` alike; also ``AWS::Partition`` and the like.
    """
    match node:
        case {"Ref": name}:
            return values[name]
        case {"Fn::GetAtt": [name, attribute]}:
            return values.get(f"{name}.{attribute}", values.get(name, f"<{name}.{attribute}>"))
        case {"Fn::Join": [delimiter, parts]}:
            return delimiter.join(resolved(part, values) for part in parts)
        case dict():
            return {key: resolved(value, values) for key, value in node.items()}
        case list():
            return [resolved(item, values) for item in node]
    return node
