"""What each tenant may ask of the gateway: a usage plan for each tier, in which the tenants' API keys are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import aws_cdk as cdk
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_iam as iam
from constructs import Construct

from mme_constructs.acknowledge import acknowledge_wildcards
from mme_constructs.errors import ThrottleError
from mme_constructs.stack_of import stack_of
from mme_facts.usage_plans import API_TAG, TIER_TAG, TIERS

if TYPE_CHECKING:
    from mme_constructs.tenant_function import TenantFunction

__all__ = ["RateLimits", "UsagePlans", "check_usage_plans"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """How much each tenant of a tier may ask of the gateway.

    API Gateway applies both on a best-effort basis: they are targets, not hard limits, and no means to control costs.

    Attributes:
        requests_per_second: sustained invocations a second.
        burst: invocations above it that are let through at once.
        quota: invocations in a period; beyond it every one is 429 until the period ends. Default: any number.
        period: ``day``, ``week`` or ``month``. Default ``month``.

    Raises:
        ThrottleError: a number would let nobody through, or API Gateway knows no such period.

    Source: Amazon API Gateway, Usage plans and API keys for REST APIs.
    """

    requests_per_second: float
    burst: int
    quota: int | None = None
    period: Literal["day", "week", "month"] = "month"

    def __post_init__(self) -> None:
        numbers = {"requests_per_second": self.requests_per_second, "burst": self.burst, "quota": self.quota}
        for name, value in numbers.items():
            least = 0 if name == "requests_per_second" else 1
            if value is not None and not (math.isfinite(value) and value >= least and value > 0):
                allowed = "a number above 0" if least == 0 else "1 or more"
                raise ThrottleError(f"With this {name} the plan would let no tenant through", value=value, allowed=allowed, fix="Raise it")
        if self.period not in ("day", "week", "month"):
            raise ThrottleError(
                "API Gateway counts quotas by no such period", value=self.period, allowed="day, week, month", fix="Change it"
            )


def check_usage_plans(plans: Mapping[str, RateLimits]) -> None:
    """Raise `ThrottleError` unless every tier has a plan: its tenants' keys would belong nowhere."""
    if set(plans) != set(TIERS):
        raise ThrottleError(
            "Tenants of some tier would have no usage plan", value=sorted(plans), allowed=" and ".join(TIERS), fix="Give each a RateLimits"
        )


class UsagePlans(Construct):
    """A usage plan for each tier of an API's stage, and the onboarding function's right to keep the tenants' keys in them.

    The function may make keys that carry this API's id as a tag, read and delete those that do, and put keys into these plans and take
    them out. It may not list keys: a list may show the values of all keys of the account.

    Its rights are a policy apart from those of the function's role: a plan follows its stage, and the stage follows the function.

    Args:
        scope: the parent.
        id: the id below the parent.
        api: the API.
        limits: tier -> what each of its tenants may ask.
        onboarding: the function that keeps the keys.

    Sources: Amazon API Gateway, Usage plans and API keys for REST APIs; Using tags to control access to API Gateway REST API resources.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        api: apigateway.RestApi,
        limits: Mapping[str, RateLimits],
        onboarding: TenantFunction,
    ) -> None:
        super().__init__(scope, id)
        stage = apigateway.CfnUsagePlan.ApiStageProperty(api_id=api.rest_api_id, stage=api.deployment_stage.stage_name)
        self.plans: Mapping[str, apigateway.CfnUsagePlan] = {
            tier: apigateway.CfnUsagePlan(
                self,
                tier.title(),
                description=f"What each {tier} tenant may ask.",
                api_stages=[stage],
                throttle=apigateway.CfnUsagePlan.ThrottleSettingsProperty(
                    rate_limit=limits[tier].requests_per_second, burst_limit=limits[tier].burst
                ),
                quota=_quota(limits[tier]),
                tags=[cdk.CfnTag(key=TIER_TAG, value=tier)],
            )
            for tier in TIERS
        }
        """Tier -> its plan."""
        self._allow(api, onboarding.role)

    def _allow(self, api: apigateway.RestApi, role: iam.IRole) -> None:
        stack = stack_of(self)

        def arn(path: str) -> str:
            return f"arn:{stack.partition}:apigateway:{stack.region}::{path}"

        def may(methods: list[str], *paths: str, **condition: object) -> iam.PolicyStatement:
            actions, resources = [f"apigateway:{method}" for method in methods], [arn(path) for path in paths]
            return iam.PolicyStatement(actions=actions, resources=resources, conditions=condition or None)

        requested = {"StringEquals": {f"aws:RequestTag/{API_TAG}": api.rest_api_id}}
        owned = {"StringEquals": {f"aws:ResourceTag/{API_TAG}": api.rest_api_id}}
        keys = [f"/usageplans/{plan.ref}/keys" for plan in self.plans.values()]
        policy = iam.Policy(
            self,
            "Keys",
            statements=[
                may(["POST"], "/apikeys", **requested),
                # To tag what is being made counts as a call of its own.
                may(["PUT"], "/tags/*", **requested),
                may(["GET", "DELETE"], "/apikeys/*", **owned),
                may(["GET"], "/usageplans"),
                may(["POST"], *keys),
                may(["GET", "DELETE"], *(f"{path}/*" for path in keys)),
            ],
        )
        policy.attach_to_role(role)
        acknowledge_wildcards(
            policy,
            {
                "/apikeys/*": "Keys are made while the platform runs; a condition asks for the tag of this API.",
                "/tags/*": "The key to be tagged has no id yet; a condition asks for the tag of this API.",
                "/keys/*": "Any key of a tenant, in the plans of this API only.",
            },
        )


def _quota(limits: RateLimits) -> apigateway.CfnUsagePlan.QuotaSettingsProperty | None:
    if limits.quota is None:
        return None
    return apigateway.CfnUsagePlan.QuotaSettingsProperty(limit=limits.quota, period=limits.period.upper())
