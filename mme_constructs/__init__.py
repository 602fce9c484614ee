"""AWS CDK constructs for serving thousands of tenants' models from SageMaker multi-model endpoints.

Names load on first use, so that importing one construct loads only what it needs of ``aws_cdk``.
"""

from typing import TYPE_CHECKING

from mme_facts.lazy import attach

if TYPE_CHECKING:
    from mme_constructs.artifact_store import ModelArtifactStore as ModelArtifactStore
    from mme_constructs.container import ImageLocation as ImageLocation
    from mme_constructs.container import MultiModelContainer as MultiModelContainer
    from mme_constructs.endpoint_interface import IMultiModelEndpoint as IMultiModelEndpoint
    from mme_constructs.errors import ConfigurationError as ConfigurationError
    from mme_constructs.lambda_code import LambdaCode as LambdaCode
    from mme_constructs.model_admission import ModelAdmission as ModelAdmission
    from mme_constructs.multi_model_endpoint import InvocationScaling as InvocationScaling
    from mme_constructs.multi_model_endpoint import MultiModelEndpoint as MultiModelEndpoint
    from mme_constructs.multi_tenant_inference import MultiTenantInference as MultiTenantInference
    from mme_constructs.multi_tenant_inference import PlatformFunctions as PlatformFunctions
    from mme_constructs.multi_tenant_inference import PoolSettings as PoolSettings
    from mme_constructs.platform_admin import PlatformAdmin as PlatformAdmin
    from mme_constructs.pool import ModelPool as ModelPool
    from mme_constructs.private_access import PrivateAccess as PrivateAccess
    from mme_constructs.private_services import PrivateService as PrivateService
    from mme_constructs.tenant_access import TenantAccess as TenantAccess
    from mme_constructs.tenant_api import TenantApi as TenantApi
    from mme_constructs.tenant_api import Throttle as Throttle
    from mme_constructs.tenant_function import FunctionSettings as FunctionSettings
    from mme_constructs.tenant_function import LogSettings as LogSettings
    from mme_constructs.tenant_registry import TenantRegistry as TenantRegistry

__getattr__, __dir__ = attach(
    __name__,
    {
        "ConfigurationError": "errors",
        "FunctionSettings": "tenant_function",
        "IMultiModelEndpoint": "endpoint_interface",
        "ImageLocation": "container",
        "InvocationScaling": "multi_model_endpoint",
        "LambdaCode": "lambda_code",
        "LogSettings": "tenant_function",
        "ModelAdmission": "model_admission",
        "ModelArtifactStore": "artifact_store",
        "ModelPool": "pool",
        "MultiModelContainer": "container",
        "MultiModelEndpoint": "multi_model_endpoint",
        "MultiTenantInference": "multi_tenant_inference",
        "PlatformAdmin": "platform_admin",
        "PlatformFunctions": "multi_tenant_inference",
        "PoolSettings": "multi_tenant_inference",
        "PrivateAccess": "private_access",
        "PrivateService": "private_services",
        "TenantAccess": "tenant_access",
        "TenantApi": "tenant_api",
        "TenantRegistry": "tenant_registry",
        "Throttle": "tenant_api",
    },
)
