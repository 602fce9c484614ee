"""The error tree of the constructs: what went wrong, the value got, what is allowed, what to do."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AlarmError",
    "AuthorizerError",
    "AutoScalingError",
    "BucketError",
    "CacheError",
    "CompatibilityError",
    "ConfigurationError",
    "ContainerError",
    "DeploymentError",
    "EncryptionError",
    "EndpointNameError",
    "EndpointPolicyError",
    "EndpointSettingsError",
    "FunctionError",
    "InferenceComponentError",
    "InstanceCountError",
    "LambdaCodeError",
    "MetricError",
    "NetworkError",
    "PipelineError",
    "PoolError",
    "PrefixError",
    "RetentionError",
    "ServerSettingError",
    "TelemetryError",
    "TenantError",
    "ThrottleError",
    "TrustError",
    "VariantError",
    "WarmUpError",
]


class ConfigurationError(ValueError):
    """A configuration that is known to fail, refused before it crosses into CDK.

    Attributes:
        code: stable name of the guard rail, the same for every occurrence.
        value: the value got.
    """

    code: ClassVar[str] = "configuration"

    def __init__(self, what: str, *, value: object, allowed: str, fix: str) -> None:
        """Build the text.

        Args:
            what: what went wrong, without the value.
            value: the value got.
            allowed: what is allowed, in words.
            fix: what to do, an imperative sentence without its full stop.
        """
        self.value = value
        super().__init__(f"{what}: got {value!r}; allowed: {allowed}. {fix}.")


class PrefixError(ConfigurationError):
    """The models prefix cannot serve a multi-model endpoint."""

    code = "prefix"


class ContainerError(ConfigurationError):
    """The container image cannot be resolved or cannot serve several models."""

    code = "container"


class InstanceCountError(ConfigurationError):
    """The smallest and greatest number of instances do not fit."""

    code = "instance-count"


class EndpointNameError(ConfigurationError):
    """The endpoint's name is not one that SageMaker and IAM treat alike."""

    code = "endpoint-name"


class EncryptionError(ConfigurationError):
    """A key was given where the service refuses one."""

    code = "encryption"


class AutoScalingError(ConfigurationError):
    """The scaling settings cannot work."""

    code = "auto-scaling"


class MetricError(ConfigurationError):
    """A metric or statistic that the endpoint does not publish."""

    code = "metric"


class TenantError(ConfigurationError):
    """A tenant id outside the grammar."""

    code = "tenant"


class PoolError(ConfigurationError):
    """The pools do not tell where a version goes."""

    code = "pool"


class FunctionError(ConfigurationError):
    """A function's settings are outside Lambda's limits."""

    code = "function"


class LambdaCodeError(ConfigurationError):
    """The functions' code cannot be collected from what is installed."""

    code = "lambda-code"


class ThrottleError(ConfigurationError):
    """The API's throttle settings cannot work."""

    code = "throttle"


class RetentionError(ConfigurationError):
    """Artifacts would be deleted while they are in use still, or never."""

    code = "retention"


class TrustError(ConfigurationError):
    """A role would be assumable by nobody or by anybody."""

    code = "trust"


class NetworkError(ConfigurationError):
    """The network cannot serve what is placed in it."""

    code = "network"


class BucketError(ConfigurationError):
    """A setting of a bucket that is not ours to change."""

    code = "bucket"


class EndpointPolicyError(ConfigurationError):
    """A policy for a VPC endpoint that cannot carry it."""

    code = "endpoint-policy"


class CacheError(ConfigurationError):
    """Warm-up or the like is asked of an endpoint that keeps no model loaded."""

    code = "cache"


class DeploymentError(ConfigurationError):
    """The settings of an endpoint's updates cannot work."""

    code = "deployment"


class EndpointSettingsError(ConfigurationError):
    """A setting of an endpoint that SageMaker refuses or ignores."""

    code = "endpoint-settings"


class InferenceComponentError(ConfigurationError):
    """An inference component or its endpoint cannot work."""

    code = "inference-component"


class PipelineError(ConfigurationError):
    """A serial inference pipeline that SageMaker refuses."""

    code = "pipeline"


class VariantError(ConfigurationError):
    """The production variants of an endpoint do not fit."""

    code = "variant"


class ServerSettingError(ConfigurationError):
    """A setting of the model server that it does not read or that is out of range."""

    code = "server-setting"


class CompatibilityError(ConfigurationError):
    """The container cannot serve on the instance type."""

    code = "compatibility"


class AlarmError(ConfigurationError):
    """An alarm that does not exist or that CloudWatch refuses."""

    code = "alarm"


class TelemetryError(ConfigurationError):
    """What is logged of requests, or collected of the logs, cannot be as it is set."""

    code = "telemetry"


class AuthorizerError(ConfigurationError):
    """The callers of the API could not be told apart, or could choose who they are."""

    code = "authorizer"


class WarmUpError(ConfigurationError):
    """Fleets cannot be warmed as it is set, or it is not known how much they hold."""

    code = "warm-up"
