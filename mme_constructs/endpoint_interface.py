"""What every multi-model endpoint offers, whether this app owns it or not: grants and metrics."""

from __future__ import annotations

from typing import Protocol

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam

from mme_constructs.endpoint_identity import EndpointIdentity
from mme_constructs.endpoint_metrics import metric_of
from mme_constructs.errors import CacheError, MetricError, TenantError
from mme_facts.grammar import GrammarError, tenant_pattern
from mme_facts.metrics import ENDPOINT_METRICS

__all__ = ["EndpointOperations", "IMultiModelEndpoint"]


class IMultiModelEndpoint(Protocol):
    """A multi-model endpoint, as the other constructs take it."""

    @property
    def endpoint_name(self) -> str:
        """Its name."""

    @property
    def endpoint_arn(self) -> str:
        """Its ARN."""

    @property
    def variant_name(self) -> str:
        """The production variant that serves; of several, the first."""

    @property
    def variants(self) -> tuple[str, ...]:
        """All production variants' names."""

    @property
    def instance_type(self) -> str | None:
        """Instance type of `variant_name`; None if it is not known here."""

    @property
    def min_instances(self) -> int | None:
        """Fewest instances of `variant_name`; None if it is not known here."""

    @property
    def max_instances(self) -> int | None:
        """Most instances of `variant_name`; None if it is not known here."""

    @property
    def cache_enabled(self) -> bool:
        """Whether models stay loaded after an invocation."""

    def require_cache(self, purpose: str) -> None:
        """Refuse an endpoint that keeps no model loaded; raises `CacheError`."""

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` invoke every tenant's models."""

    def grant_invoke_tenant(self, grantee: iam.IGrantable, tenant: str) -> iam.Grant:
        """Let ``grantee`` invoke one tenant's models."""

    def metric(self, name: str, *, statistic: str | None = None, period_minutes: int = 1, variant: str | None = None) -> cloudwatch.Metric:
        """A metric of the endpoint by its official name."""


class EndpointOperations(EndpointIdentity):
    """Grants and metrics over a name, an ARN and a variant: the shared half of owned and imported endpoints."""

    variant_name: str
    variants: tuple[str, ...]
    instance_type: str | None
    min_instances: int | None
    max_instances: int | None
    cache_enabled: bool
    metric_endpoint_name: str

    def require_cache(self, purpose: str) -> None:
        """Refuse an endpoint that unloads every model after its invocation.

        Args:
            purpose: what needs loaded models, such as ``warm-up``.

        Raises:
            CacheError: the cache is disabled: whatever is loaded beforehand is gone before the next request.
        """
        if not self.cache_enabled:
            raise CacheError(
                f"{purpose} needs an endpoint that keeps models loaded",
                value="cache_enabled=False",
                allowed="cache_enabled=True",
                fix=f"Enable the cache, or leave {purpose} out",
            )

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` invoke **every** tenant's models: for functions that map the caller to a tenant themselves."""
        return iam.Grant.add_to_principal(grantee=grantee, actions=["sagemaker:InvokeEndpoint"], resource_arns=[self.endpoint_arn])

    def grant_invoke_tenant(self, grantee: iam.IGrantable, tenant: str) -> iam.Grant:
        """Let ``grantee`` invoke the models of one tenant only.

        Args:
            grantee: who.
            tenant: a tenant id, or an IAM policy variable such as ``${aws:PrincipalTag/tenant}``.

        Raises:
            TenantError: ``tenant`` is outside the grammar; a looser pattern would reach other tenants.

        Source: Amazon SageMaker AI, Multi-Model Endpoint Security (condition key ``sagemaker:TargetModel``). A call without TargetModel
        does not satisfy the condition and is denied.
        """
        try:
            pattern = tenant_pattern(tenant)
        except GrammarError as error:
            raise TenantError("The tenant cannot be granted", value=tenant, allowed=error.allowed, fix="Pass the tenant's id") from error
        return iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["sagemaker:InvokeEndpoint"],
            resource_arns=[self.endpoint_arn],
            conditions={"StringLike": {"sagemaker:TargetModel": [pattern]}},
        )

    def metric(self, name: str, *, statistic: str | None = None, period_minutes: int = 1, variant: str | None = None) -> cloudwatch.Metric:
        """A metric of the endpoint.

        It names the endpoint by text where the text is known, so that an alarm on it does not depend on the endpoint, which may in turn
        depend on the alarm to roll an update back.

        Args:
            name: official name, one of `mme_facts.metrics.ENDPOINT_METRICS`.
            statistic: CloudWatch statistic (``Average``, ``p99``). Default: the metric's usual one.
            period_minutes: whole minutes; the metrics have no finer grain.
            variant: which production variant. Default: `variant_name`.

        Raises:
            MetricError: the metric does not exist or has no such statistic, or there is no such variant.
        """
        if variant is not None and variant not in self.variants:
            raise MetricError(
                "The endpoint has no such variant", value=variant, allowed=", ".join(self.variants), fix="Use one of these, or none"
            )
        return metric_of(
            "Multi-model endpoints",
            ENDPOINT_METRICS,
            name,
            dimensions={"EndpointName": self.metric_endpoint_name, "VariantName": variant or self.variant_name},
            statistic=statistic,
            period_minutes=period_minutes,
        )

    def metric_invocations(self) -> cloudwatch.Metric:
        """Requests to the endpoint, summed."""
        return self.metric("Invocations")

    def metric_invocations_per_instance(self) -> cloudwatch.Metric:
        """Requests per instance, summed: what auto scaling tracks."""
        return self.metric("InvocationsPerInstance")

    def metric_invocation_4xx_errors(self) -> cloudwatch.Metric:
        """Requests answered with 4XX, summed."""
        return self.metric("Invocation4XXErrors")

    def metric_invocation_5xx_errors(self) -> cloudwatch.Metric:
        """Requests answered with 5XX, summed."""
        return self.metric("Invocation5XXErrors")

    def metric_invocation_model_errors(self) -> cloudwatch.Metric:
        """Requests that the container did not answer with 2XX, timeouts included, summed."""
        return self.metric("InvocationModelErrors")

    def metric_overhead_latency(self, statistic: str = "Average") -> cloudwatch.Metric:
        """Time SageMaker took besides the container, microseconds."""
        return self.metric("OverheadLatency", statistic=statistic)

    def metric_model_latency(self, statistic: str = "p99") -> cloudwatch.Metric:
        """Time the container took, microseconds."""
        return self.metric("ModelLatency", statistic=statistic)

    def metric_model_cache_hit(self) -> cloudwatch.Metric:
        """Share of requests whose model was loaded, 0 to 1."""
        return self.metric("ModelCacheHit")

    def metric_model_loading_wait_time(self, statistic: str = "Maximum") -> cloudwatch.Metric:
        """Time requests waited for download and load, microseconds."""
        return self.metric("ModelLoadingWaitTime", statistic=statistic)

    def metric_model_downloading_time(self, statistic: str = "Average") -> cloudwatch.Metric:
        """Time of downloads from S3, microseconds."""
        return self.metric("ModelDownloadingTime", statistic=statistic)

    def metric_model_loading_time(self, statistic: str = "Average") -> cloudwatch.Metric:
        """Time the container took to load models, microseconds."""
        return self.metric("ModelLoadingTime", statistic=statistic)

    def metric_model_unloads(self) -> cloudwatch.Metric:
        """Number of unloads: the sample count of ``ModelUnloadingTime``."""
        return self.metric("ModelUnloadingTime", statistic="SampleCount")

    def metric_loaded_model_count(self, statistic: str = "Average") -> cloudwatch.Metric:
        """Models in the containers' memory; the sum counts a model once per instance that holds it."""
        return self.metric("LoadedModelCount", statistic=statistic)

    def metric_cpu_utilization(self) -> cloudwatch.Metric:
        """CPU in percent, summed over the vCPUs: 0 to 100 times their number."""
        return self.metric("CPUUtilization")

    def metric_memory_utilization(self) -> cloudwatch.Metric:
        """Memory in percent, 0 to 100."""
        return self.metric("MemoryUtilization")

    def metric_disk_utilization(self) -> cloudwatch.Metric:
        """Disk in percent, 0 to 100."""
        return self.metric("DiskUtilization")

    def metric_gpu_utilization(self) -> cloudwatch.Metric:
        """GPU in percent, 0 to 100: the documented types have one."""
        return self.metric("GPUUtilization")

    def metric_gpu_memory_utilization(self) -> cloudwatch.Metric:
        """GPU memory in percent, 0 to 100."""
        return self.metric("GPUMemoryUtilization")
