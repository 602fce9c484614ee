"""Guard rails of warm-up: what is loaded beforehand must stay loaded, and fit."""

from __future__ import annotations

import aws_cdk as cdk

from mme_constructs import (
    HeatSettings,
    ModelArtifactStore,
    ModelPool,
    MultiModelEndpoint,
    MultiTenantInference,
    TenantRegistry,
    WarmUp,
    WarmUpSettings,
)
from mme_constructs.errors import CacheError, WarmUpError
from tests.constructs.guard_rails.rail import GuardRail


def _warm_without_a_cache(stack: cdk.Stack) -> None:
    store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
    endpoint = MultiModelEndpoint.from_endpoint_attributes(
        stack, "There", endpoint_name="elsewhere", instance_type="ml.m5.xlarge", cache_enabled=False
    )
    WarmUp(stack, "WarmUp", store=store, registry=registry, pools=[ModelPool(framework="xgboost", endpoint=endpoint)])


def _warm_with_a_cache(stack: cdk.Stack) -> None:
    store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere", instance_type="ml.m5.xlarge")
    WarmUp(stack, "WarmUp", store=store, registry=registry, pools=[ModelPool(framework="xgboost", endpoint=endpoint)])


def _warm_a_fleet_of_unknown_size(stack: cdk.Stack) -> None:
    store, registry = ModelArtifactStore(stack, "Store"), TenantRegistry(stack, "Registry")
    endpoint = MultiModelEndpoint.from_endpoint_attributes(stack, "There", endpoint_name="elsewhere")
    WarmUp(stack, "WarmUp", store=store, registry=registry, pools=[ModelPool(framework="xgboost", endpoint=endpoint)])


def _prefetch_with_wide_windows(stack: cdk.Stack) -> None:
    MultiTenantInference(stack, "Platform", warm_up=WarmUpSettings(prefetch=True))


def _prefetch_by_the_minute(stack: cdk.Stack) -> None:
    MultiTenantInference(stack, "Platform", heat=HeatSettings(window_minutes=1), warm_up=WarmUpSettings(prefetch=True))


RAILS = (
    GuardRail(
        "Warm-up of an endpoint that keeps no model loaded",
        "With ModelCacheSetting Disabled every model is unloaded after its invocation, so what is warmed is gone before the next request "
        "(CreateModel, MultiModelConfig).",
        _warm_without_a_cache,
        _warm_with_a_cache,
        CacheError,
    ),
    GuardRail(
        "Warm-up of a fleet of unknown size",
        "A warm-up keeps a part of the fleet's memory free, so that it evicts nothing that is in use: it must know how much there is.",
        _warm_a_fleet_of_unknown_size,
        _warm_with_a_cache,
        WarmUpError,
    ),
    GuardRail(
        "Prefetch from heat in windows of five minutes",
        "It predicts uses to the minute; in slots of five minutes it avoids fewer loads, far fewer where memory is short (measured).",
        _prefetch_with_wide_windows,
        _prefetch_by_the_minute,
        WarmUpError,
    ),
)
