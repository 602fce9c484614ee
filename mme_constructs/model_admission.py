"""From an upload to an admitted version: the rule and the function behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from mme_constructs.dead_letters import dead_letter_queue
from mme_constructs.errors import FunctionError
from mme_constructs.pool import ModelPool, function_environment
from mme_constructs.tenant_function import FunctionSettings, LogSettings, TenantFunction
from mme_facts.admission import admissible_bytes
from mme_facts.grammar import INCOMING_PREFIX
from mme_facts.own_events import RESUME_DETAIL, SWEEP_SOURCE

if TYPE_CHECKING:
    from mme_constructs.artifact_store import ModelArtifactStore
    from mme_constructs.tenant_registry import TenantRegistry

__all__ = ["ADMISSION_SETTINGS", "ModelAdmission", "greatest_artifact_bytes"]

ADMISSION_SETTINGS = FunctionSettings(memory_mb=1769, timeout_seconds=900)
"""One vCPU, because inspection is bound by one processor, and Lambda's longest time."""


def greatest_artifact_bytes(settings: FunctionSettings, wanted: int | None = None) -> int:
    """Greatest upload, packed bytes, that an admission function of this size is given.

    Args:
        settings: the function's size and limits.
        wanted: a smaller limit. Default: what the function inspects in its time, by the measured speed (`mme_facts.admission`).

    Raises:
        FunctionError: ``wanted`` is more than the function inspects in its time, or less than a byte.
    """
    greatest = admissible_bytes(memory_mb=settings.memory_mb, timeout_seconds=settings.timeout_seconds)
    if wanted is None:
        return greatest
    if not 1 <= wanted <= greatest:
        raise FunctionError(
            "The admission function cannot inspect such artifacts in its time",
            value=wanted,
            allowed=f"1 to {greatest:,} bytes with {settings.memory_mb:,} MB and {settings.timeout_seconds} s",
            fix="Lower max_artifact_bytes, or raise memory_mb (to 1,769) and timeout_seconds (to 900)",
        )
    return wanted


class ModelAdmission(Construct):
    """Inspects every object that lands below ``incoming/``, stores it below the models prefix, warms it and flips the route.

    S3 tells EventBridge, a rule calls the function; it also takes the events by which the sweep brings stuck versions on. Events that
    cannot be delivered or fail for good wait 14 days in a queue.

    Args:
        scope: the parent.
        id: the id below the parent.
        store: where artifacts are.
        registry: where versions are.
        pools: which endpoint serves which framework.
        max_artifact_bytes: greatest upload, packed bytes. Default: what the function inspects in its time: 9.6 GiB by default.
        settings: size and limits of the function. Default: one vCPU, 900 s, the account's concurrency.
        log_settings: how long its logs are kept. Default: three months.

    Raises:
        PoolError: there is no pool, or two share a name or framework.
        FunctionError: ``max_artifact_bytes`` is more than the function inspects in its time.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        store: ModelArtifactStore,
        registry: TenantRegistry,
        pools: Sequence[ModelPool],
        max_artifact_bytes: int | None = None,
        settings: FunctionSettings | None = None,
        log_settings: LogSettings | None = None,
    ) -> None:
        settings = ADMISSION_SETTINGS if settings is None else settings
        max_artifact_bytes = greatest_artifact_bytes(settings, max_artifact_bytes)
        environment = function_environment(store=store, registry=registry, pools=pools, max_artifact_bytes=max_artifact_bytes)
        super().__init__(scope, id)
        self.max_artifact_bytes = max_artifact_bytes
        """Greatest upload, packed bytes."""
        self.dead_letters = dead_letter_queue(self)
        """Events that failed for good."""
        function = TenantFunction(
            self,
            "Function",
            handler="mme_tenancy.handlers.admission.handler",
            description="Inspects uploaded artifacts and activates the versions that pass.",
            environment=environment,
            settings=settings,
            log_settings=LogSettings() if log_settings is None else log_settings,
            dead_letter_queue=self.dead_letters,
        )
        self.function = function.function
        """The function."""
        registry.grant_admit(function.role)
        store.grant_read_incoming(function.role)
        store.grant_put_models(function.role)
        store.grant_discard_models(function.role)
        for pool in pools:
            pool.endpoint.grant_invoke(function.role)
        self.rule = events.Rule(
            self,
            "Uploaded",
            description="An upload landed below incoming/, or the sweep brings one on.",
            event_pattern=events.EventPattern(
                source=["aws.s3", SWEEP_SOURCE],
                detail_type=["Object Created", RESUME_DETAIL],
                detail={"bucket": {"name": [store.bucket.bucket_name]}, "object": {"key": [{"prefix": INCOMING_PREFIX}]}},
            ),
            targets=[
                targets.LambdaFunction(
                    self.function, dead_letter_queue=self.dead_letters, max_event_age=cdk.Duration.hours(24), retry_attempts=185
                )
            ],
        )
        """The rule on uploads."""
