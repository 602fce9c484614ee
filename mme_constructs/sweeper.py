"""Sweeps up what is left behind: stuck versions, abandoned uploads, retired artifacts, objects that no record points to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from mme_constructs.dead_letters import dead_letter_queue
from mme_constructs.errors import FunctionError
from mme_constructs.resuming import grant_resume
from mme_constructs.retention import check_retired_days
from mme_constructs.tenant_function import FunctionSettings, LogSettings, TenantFunction
from mme_facts import environment as variables
from mme_facts.limits import RETIRED_DAYS

if TYPE_CHECKING:
    from mme_constructs.artifact_store import ModelArtifactStore
    from mme_constructs.tenant_registry import TenantRegistry

__all__ = ["Sweeper", "SweeperSettings"]

_MAX_EVERY_MINUTES = 1440


@dataclass(frozen=True, slots=True, kw_only=True)
class SweeperSettings:
    """When the sweep acts.

    Attributes:
        every_minutes: how often it runs, 1 to 1,440. Default 5. Alarms on the sweep judge 15 minutes at a time.
        stuck_minutes: how long a version under way may stay as it is before admission is called again. Default 20: longer than the
            admission function can run, so that nobody works on it any more.
        expire_hours: how long an upload is awaited. Default 24; signed uploads end after an hour.
        orphan_hours: how old an object must be before it is deleted because no record points to it. Default 24.
        unrecorded_days: how long artifacts are kept whose records were lost: time to restore them from a backup. Default 7.

    Raises:
        FunctionError: a time is too short, so that something that is still worked on would be taken for abandoned, or a schedule that waits
            for the next one would be older than EventBridge keeps it.
    """

    every_minutes: int = 5
    stuck_minutes: int = 20
    expire_hours: int = 24
    orphan_hours: int = 24
    unrecorded_days: int = 7

    def __post_init__(self) -> None:
        for name, lowest, why in (
            ("every_minutes", 1, "schedules have whole minutes"),
            ("stuck_minutes", 16, "admission may run for 15 minutes"),
            ("expire_hours", 2, "signed uploads are valid for an hour"),
            ("orphan_hours", 1, "an admission may be about to use the object"),
            ("unrecorded_days", 1, "the record may be restored"),
        ):
            if getattr(self, name) < lowest:
                raise FunctionError(
                    f"{name} of the sweep is too short", value=getattr(self, name), allowed=f"{lowest} or more: {why}", fix="Change it"
                )
        if self.every_minutes > _MAX_EVERY_MINUTES:
            raise FunctionError(
                "every_minutes of the sweep is too long",
                value=self.every_minutes,
                allowed=f"1 to {_MAX_EVERY_MINUTES:,}: EventBridge keeps no event for longer than a day",
                fix="Change it",
            )


class Sweeper(Construct):
    """A scheduled function that brings stuck versions on and deletes what nobody needs any more.

    Each run does a bounded amount of work and goes on where the last one stopped; it finds versions by the table's sparse index, without
    scans. Stuck versions are resumed by an event that the rule of `ModelAdmission` takes. It may read and write single items, list and
    delete uploads and artifacts, and send that one kind of event.

    Args:
        scope: the parent.
        id: the id below the parent.
        store: uploads and artifacts.
        registry: the table.
        times: when it acts. Default: `SweeperSettings` as it stands.
        retired_days: how many days the artifacts are kept of versions whose model or tenant was deleted; 1 to 3,650; as of `TenantApi`.
            Default 7.
        settings: size and limits of the function. Default: 512 MB, 240 s, less than the time between two runs.
        log_settings: how long its logs are kept. Default: three months.

    Raises:
        RetentionError: ``retired_days`` is out of range.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        store: ModelArtifactStore,
        registry: TenantRegistry,
        times: SweeperSettings | None = None,
        retired_days: int = RETIRED_DAYS,
        settings: FunctionSettings | None = None,
        log_settings: LogSettings | None = None,
    ) -> None:
        times = SweeperSettings() if times is None else times
        check_retired_days(retired_days)
        super().__init__(scope, id)
        self.dead_letters = dead_letter_queue(self)
        """Schedules that failed for good; they need not be sent again, the next one replaces them."""
        function = TenantFunction(
            self,
            "Function",
            handler="mme_tenancy.handlers.sweep.handler",
            description="Resumes stuck versions, expires uploads, goes on with deletions, purges retired artifacts, deletes orphans.",
            environment={
                variables.TABLE_NAME: registry.table.table_name,
                variables.BUCKET_NAME: store.bucket.bucket_name,
                variables.MODELS_PREFIX: store.models_prefix,
                variables.SWEEP_TIMES: variables.dump_sweep_times(
                    variables.SweepTimes(
                        stuck_seconds=times.stuck_minutes * 60,
                        expire_seconds=times.expire_hours * 3600,
                        orphan_seconds=times.orphan_hours * 3600,
                        retired_seconds=retired_days * 86_400,
                        unrecorded_seconds=times.unrecorded_days * 86_400,
                    )
                ),
            },
            settings=FunctionSettings(memory_mb=512, timeout_seconds=240) if settings is None else settings,
            log_settings=LogSettings() if log_settings is None else log_settings,
            dead_letter_queue=self.dead_letters,
        )
        self.function = function.function
        """The function."""
        registry.grant_sweep(function.role)
        store.grant_sweep(function.role)
        grant_resume(self, function.role)
        self.rule = events.Rule(
            self,
            "Schedule",
            description="Sweeps.",
            schedule=events.Schedule.rate(cdk.Duration.minutes(times.every_minutes)),
            targets=[
                targets.LambdaFunction(
                    self.function,
                    event=events.RuleTargetInput.from_object({}),
                    dead_letter_queue=self.dead_letters,
                    max_event_age=cdk.Duration.minutes(times.every_minutes),
                    retry_attempts=1,
                )
            ],
        )
        """The schedule."""
