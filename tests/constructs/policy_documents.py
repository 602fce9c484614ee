"""Every policy of synthesized templates, with the references replaced by what a deployment might give, and a linter for them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["PolicyDocument", "documents", "lint"]

_PARTITION, _REGION, _ACCOUNT = "aws", "eu-central-1", "111122223333"
_PSEUDO = {
    "AWS::Partition": _PARTITION,
    "AWS::Region": _REGION,
    "AWS::AccountId": _ACCOUNT,
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::StackName": "stack",
}
_ARNS = {
    "AWS::S3::Bucket": "arn:aws:s3:::{name}",
    "AWS::IAM::Role": f"arn:aws:iam::{_ACCOUNT}:role/{{name}}",
    "AWS::DynamoDB::Table": f"arn:aws:dynamodb:{_REGION}:{_ACCOUNT}:table/{{name}}",
    "AWS::Logs::LogGroup": f"arn:aws:logs:{_REGION}:{_ACCOUNT}:log-group:{{name}}:*",
    "AWS::SQS::Queue": f"arn:aws:sqs:{_REGION}:{_ACCOUNT}:{{name}}",
    "AWS::SNS::Topic": f"arn:aws:sns:{_REGION}:{_ACCOUNT}:{{name}}",
    "AWS::KMS::Key": f"arn:aws:kms:{_REGION}:{_ACCOUNT}:key/01234567-89ab-cdef-0123-456789abcdef",
    "AWS::Lambda::Function": f"arn:aws:lambda:{_REGION}:{_ACCOUNT}:function:{{name}}",
    "AWS::Events::Rule": f"arn:aws:events:{_REGION}:{_ACCOUNT}:rule/{{name}}",
    "AWS::EC2::VPC": f"arn:aws:ec2:{_REGION}:{_ACCOUNT}:vpc/{{name}}",
}
_REFS = {
    "AWS::EC2::VPCEndpoint": "vpce-0123456789abcdef0",
    "AWS::EC2::VPC": "vpc-0123456789abcdef0",
    "AWS::SNS::Topic": _ARNS["AWS::SNS::Topic"],
}
_PROPERTIES = ("PolicyDocument", "AssumeRolePolicyDocument", "KeyPolicy", "Policy")


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """One policy.

    Attributes:
        name: stack and logical id.
        resource_type: CloudFormation type of the resource that carries it.
        place: the property that holds it.
        statements: its statements, as deployed.
    """

    name: str
    resource_type: str
    place: str
    statements: tuple[dict[str, Any], ...]

    @property
    def of_identity(self) -> bool:
        """Whether it says what a principal may do; the others say who may come to a resource."""
        return self.resource_type in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")

    @property
    def is_trust(self) -> bool:
        """Whether it says who may assume a role."""
        return self.place == "AssumeRolePolicyDocument"


def documents(templates: Mapping[str, Mapping[str, Any]]) -> Iterator[PolicyDocument]:
    """The policies of an app's templates.

    Args:
        templates: stack name -> template.
    """
    for stack, template in templates.items():
        for name, resource in template["Resources"].items():
            for key in _PROPERTIES:
                held = resource.get("Properties", {}).get(key)
                if isinstance(held, dict) and "Statement" in held:
                    statements = _deployed(held["Statement"], template, templates)
                    yield PolicyDocument(f"{stack}/{name}", resource["Type"], key, tuple(map(_complete, statements)))


def _deployed(node: Any, template: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]]) -> Any:
    match node:
        case {"Ref": name}:
            return _PSEUDO.get(name) or _reference(name, template)
        case {"Fn::GetAtt": [name, "Arn"]}:
            return _ARNS[template["Resources"][name]["Type"]].format(name=_physical(name))
        case {"Fn::GetAtt": [name, _]}:
            return _physical(name)
        case {"Fn::Join": [delimiter, parts]}:
            return delimiter.join(_deployed(part, template, templates) for part in parts)
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{([^}]+)\}", lambda match: _PSEUDO[match[1]], text)
        case {"Fn::FindInMap": [mapping, key, column]}:
            return template["Mappings"][mapping][_deployed(key, template, templates)][column]
        case {"Fn::GetStackOutput": {"StackName": stack, "OutputName": output}}:
            return _deployed(templates[stack]["Outputs"][output]["Value"], templates[stack], templates)
        case dict():
            assert not any(key.startswith("Fn::") for key in node), node
            return {key: _deployed(value, template, templates) for key, value in node.items()}
        case list():
            return [_deployed(item, template, templates) for item in node]
    return node


def _complete(statement: dict[str, Any]) -> dict[str, Any]:
    """A statement as the service that gets it stores it: API Gateway completes ``execute-api:/...`` with the API's ARN."""
    short = statement.get("Resource")
    if isinstance(short, str) and short.startswith("execute-api:/"):
        return {**statement, "Resource": f"arn:aws:execute-api:{_REGION}:{_ACCOUNT}:abcde12345/{short.removeprefix('execute-api:/')}"}
    return statement


def _reference(name: str, template: Mapping[str, Any]) -> str:
    resource_type = template["Resources"][name]["Type"]
    return _REFS.get(resource_type, _physical(name)).format(name=_physical(name))


def _physical(name: str) -> str:
    return name.lower()


_LINT = """
import json, sys, warnings
warnings.simplefilter("ignore")
import parliament

found = []
for name, document in json.load(sys.stdin):
    policy = parliament.analyze_policy_string(json.dumps(document))
    for finding in policy.findings:
        finding = parliament.enhance_finding(finding)
        found.append([name, finding.severity, finding.issue, str(finding.detail)])
print(json.dumps(found))
"""


def lint(found: list[PolicyDocument]) -> list[tuple[str, str, str, str]]:
    """What parliament finds: name of the policy, severity, issue, detail.

    It runs in a process of its own: it warns while it is imported and leaves a file open, and warnings are errors here.
    """
    given = []
    for document in found:
        # The linter knows no trust policies: their resource is the role that carries them.
        role = {"Resource": _ARNS["AWS::IAM::Role"].format(name="trusting")} if document.is_trust else {}
        given.append((document.name, {"Version": "2012-10-17", "Statement": [statement | role for statement in document.statements]}))
    ran = subprocess.run([sys.executable, "-c", _LINT], input=json.dumps(given), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return [tuple(row) for row in json.loads(ran.stdout)]
