"""AWS CDK constructs for serving thousands of tenants' models from SageMaker multi-model endpoints.

Names load on first use, so that importing one construct loads only what it needs of ``aws_cdk``.
"""

from typing import TYPE_CHECKING

from mme_facts.lazy import attach

if TYPE_CHECKING:
    from mme_constructs.artifact_store import ModelArtifactStore as ModelArtifactStore
    from mme_constructs.authorizers import CognitoAuthorizer as CognitoAuthorizer
    from mme_constructs.authorizers import LambdaAuthorizer as LambdaAuthorizer
    from mme_constructs.capacity_size import CapacitySize as CapacitySize
    from mme_constructs.component_settings import ComponentScaling as ComponentScaling
    from mme_constructs.component_settings import ComputeRequirements as ComputeRequirements
    from mme_constructs.container import ImageLocation as ImageLocation
    from mme_constructs.container import MultiModelContainer as MultiModelContainer
    from mme_constructs.data_capture import DataCapture as DataCapture
    from mme_constructs.deployment import AllAtOnceDeployment as AllAtOnceDeployment
    from mme_constructs.deployment import CanaryDeployment as CanaryDeployment
    from mme_constructs.deployment import LinearDeployment as LinearDeployment
    from mme_constructs.deployment import RollingDeployment as RollingDeployment
    from mme_constructs.endpoint_interface import IMultiModelEndpoint as IMultiModelEndpoint
    from mme_constructs.errors import ConfigurationError as ConfigurationError
    from mme_constructs.fleet_watch import FleetWatch as FleetWatch
    from mme_constructs.heat_collector import HeatCollector as HeatCollector
    from mme_constructs.heat_collector import HeatSettings as HeatSettings
    from mme_constructs.inference_component import InferenceComponent as InferenceComponent
    from mme_constructs.inference_component_endpoint import InferenceComponentEndpoint as InferenceComponentEndpoint
    from mme_constructs.lambda_code import LambdaCode as LambdaCode
    from mme_constructs.model_admission import ModelAdmission as ModelAdmission
    from mme_constructs.monitoring import AlarmSettings as AlarmSettings
    from mme_constructs.monitoring import MmeMonitoring as MmeMonitoring
    from mme_constructs.multi_model_endpoint import MultiModelEndpoint as MultiModelEndpoint
    from mme_constructs.multi_tenant_inference import DedicatedSettings as DedicatedSettings
    from mme_constructs.multi_tenant_inference import MultiTenantInference as MultiTenantInference
    from mme_constructs.multi_tenant_inference import PlatformFunctions as PlatformFunctions
    from mme_constructs.multi_tenant_inference import PlatformMonitoring as PlatformMonitoring
    from mme_constructs.multi_tenant_inference import PoolSettings as PoolSettings
    from mme_constructs.network import EndpointNetwork as EndpointNetwork
    from mme_constructs.pipeline import InferencePipeline as InferencePipeline
    from mme_constructs.pipeline import PipelineStep as PipelineStep
    from mme_constructs.platform_admin import PlatformAdmin as PlatformAdmin
    from mme_constructs.pool import ModelPool as ModelPool
    from mme_constructs.private_access import PrivateAccess as PrivateAccess
    from mme_constructs.private_services import PrivateService as PrivateService
    from mme_constructs.scaling import CacheScaling as CacheScaling
    from mme_constructs.scaling import CpuScaling as CpuScaling
    from mme_constructs.scaling import InvocationScaling as InvocationScaling
    from mme_constructs.scaling import ScheduledScaling as ScheduledScaling
    from mme_constructs.server_settings import ServerFamily as ServerFamily
    from mme_constructs.server_settings import ServerSettings as ServerSettings
    from mme_constructs.sweeper import Sweeper as Sweeper
    from mme_constructs.sweeper import SweeperSettings as SweeperSettings
    from mme_constructs.telemetry_settings import TelemetrySettings as TelemetrySettings
    from mme_constructs.tenant_access import TenantAccess as TenantAccess
    from mme_constructs.tenant_api import TenantApi as TenantApi
    from mme_constructs.tenant_api import Throttle as Throttle
    from mme_constructs.tenant_function import FunctionSettings as FunctionSettings
    from mme_constructs.tenant_function import LogSettings as LogSettings
    from mme_constructs.tenant_isolation import TenantIsolation as TenantIsolation
    from mme_constructs.tenant_registry import TenantRegistry as TenantRegistry
    from mme_constructs.usage_plans import RateLimits as RateLimits
    from mme_constructs.usage_plans import UsagePlans as UsagePlans
    from mme_constructs.variants import ProductionVariant as ProductionVariant
    from mme_constructs.warm_up import WarmUp as WarmUp
    from mme_constructs.warm_up import WarmUpSettings as WarmUpSettings

__getattr__, __dir__ = attach(
    __name__,
    {
        "AlarmSettings": "monitoring",
        "AllAtOnceDeployment": "deployment",
        "CacheScaling": "scaling",
        "CanaryDeployment": "deployment",
        "CapacitySize": "capacity_size",
        "CognitoAuthorizer": "authorizers",
        "ComponentScaling": "component_settings",
        "ComputeRequirements": "component_settings",
        "ConfigurationError": "errors",
        "CpuScaling": "scaling",
        "DataCapture": "data_capture",
        "DedicatedSettings": "multi_tenant_inference",
        "EndpointNetwork": "network",
        "FleetWatch": "fleet_watch",
        "HeatCollector": "heat_collector",
        "HeatSettings": "heat_collector",
        "FunctionSettings": "tenant_function",
        "IMultiModelEndpoint": "endpoint_interface",
        "ImageLocation": "container",
        "InferenceComponent": "inference_component",
        "InferenceComponentEndpoint": "inference_component_endpoint",
        "InferencePipeline": "pipeline",
        "InvocationScaling": "scaling",
        "LambdaAuthorizer": "authorizers",
        "LambdaCode": "lambda_code",
        "LinearDeployment": "deployment",
        "LogSettings": "tenant_function",
        "MmeMonitoring": "monitoring",
        "ModelAdmission": "model_admission",
        "ModelArtifactStore": "artifact_store",
        "ModelPool": "pool",
        "MultiModelContainer": "container",
        "MultiModelEndpoint": "multi_model_endpoint",
        "MultiTenantInference": "multi_tenant_inference",
        "PipelineStep": "pipeline",
        "PlatformAdmin": "platform_admin",
        "PlatformFunctions": "multi_tenant_inference",
        "PlatformMonitoring": "multi_tenant_inference",
        "PoolSettings": "multi_tenant_inference",
        "PrivateAccess": "private_access",
        "PrivateService": "private_services",
        "ProductionVariant": "variants",
        "RollingDeployment": "deployment",
        "ScheduledScaling": "scaling",
        "ServerFamily": "server_settings",
        "ServerSettings": "server_settings",
        "TelemetrySettings": "telemetry_settings",
        "Sweeper": "sweeper",
        "SweeperSettings": "sweeper",
        "TenantAccess": "tenant_access",
        "TenantIsolation": "tenant_isolation",
        "TenantApi": "tenant_api",
        "TenantRegistry": "tenant_registry",
        "RateLimits": "usage_plans",
        "Throttle": "tenant_api",
        "UsagePlans": "usage_plans",
        "WarmUp": "warm_up",
        "WarmUpSettings": "warm_up",
    },
)
