"""What runs in Lambda and in tenants' applications: registry, onboarding, admission and the invocation path.

Importing the package loads neither boto3 nor any module of it; each name loads what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mme_facts.lazy import attach

if TYPE_CHECKING:
    from mme_tenancy.admission import Admission, AdmissionDelayedError, Admitted
    from mme_tenancy.archive import ArchiveLimits, Inspection, inspect_artifact
    from mme_tenancy.client import Answer, AsyncTenantClient, TenantClient
    from mme_tenancy.errors import TenancyError
    from mme_tenancy.invocation import InvocationRequest, Invoker, ModelReply, Outcome
    from mme_tenancy.invocation_path import PathSettings
    from mme_tenancy.registration import Registrar, Registration, parse_registration
    from mme_tenancy.registry import Change, Page, Registry
    from mme_tenancy.retries import RULES, Failure, Rule, RuntimeFault
    from mme_tenancy.routes import Model, Route
    from mme_tenancy.serializers import Csv, Json, Numpy
    from mme_tenancy.tenants import Tenant
    from mme_tenancy.versions import MOVES, Reason, Sample, State, Version

__all__ = [
    "MOVES",
    "RULES",
    "Admission",
    "AdmissionDelayedError",
    "Admitted",
    "Answer",
    "ArchiveLimits",
    "AsyncTenantClient",
    "Change",
    "Csv",
    "Failure",
    "Inspection",
    "InvocationRequest",
    "Invoker",
    "Json",
    "Model",
    "ModelReply",
    "Numpy",
    "Outcome",
    "Page",
    "PathSettings",
    "Reason",
    "Registrar",
    "Registration",
    "Registry",
    "Route",
    "Rule",
    "RuntimeFault",
    "Sample",
    "State",
    "TenancyError",
    "Tenant",
    "TenantClient",
    "Version",
    "inspect_artifact",
    "parse_registration",
]

__getattr__, __dir__ = attach(
    __name__,
    {
        "MOVES": "versions",
        "RULES": "retries",
        "Admission": "admission",
        "AdmissionDelayedError": "admission",
        "Admitted": "admission",
        "Answer": "client",
        "ArchiveLimits": "archive",
        "AsyncTenantClient": "client",
        "Change": "registry",
        "Csv": "serializers",
        "Failure": "retries",
        "Inspection": "archive",
        "InvocationRequest": "invocation",
        "Invoker": "invocation",
        "Json": "serializers",
        "Model": "routes",
        "ModelReply": "invocation",
        "Numpy": "serializers",
        "Outcome": "invocation",
        "Page": "registry",
        "PathSettings": "invocation_path",
        "Reason": "versions",
        "Registrar": "registration",
        "Registration": "registration",
        "Registry": "registry",
        "Route": "routes",
        "Rule": "retries",
        "RuntimeFault": "retries",
        "Sample": "versions",
        "State": "versions",
        "TenancyError": "errors",
        "Tenant": "tenants",
        "TenantClient": "client",
        "Version": "versions",
        "inspect_artifact": "archive",
        "parse_registration": "registration",
    },
)
