"""``mme doctor``: whom to ask, and how the diagnosis is shown."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.table import Table

from mme_cli.doctor_rules import Diagnosis, Readings, diagnose, needed_queries
from mme_cli.sessions import open_session

if TYPE_CHECKING:
    from rich.console import Console

    from mme_cli.doctor_aws import CloudWatchClient, SageMakerClient

__all__ = ["Report", "Target", "blind_text", "examine", "print_report", "target"]


@dataclass(frozen=True, slots=True)
class Target:
    """Whom to ask.

    Attributes:
        where: in words, such as ``AWS region eu-central-1``.
        local: whether it is a local cloud.
        sagemaker: describes endpoints.
        cloudwatch: has the metrics.
    """

    where: str
    local: bool
    sagemaker: SageMakerClient
    cloudwatch: CloudWatchClient


@dataclass(frozen=True, slots=True)
class Report:
    """What was read, from whom, and what it means."""

    target: Target
    readings: Readings
    diagnosis: Diagnosis

    def document(self) -> dict[str, Any]:
        """The report as one JSON document."""
        readings, diagnosis = self.readings, self.diagnosis
        return {
            "endpoint": readings.endpoint,
            "variant": readings.variant,
            "asked": self.target.where,
            "status": readings.status,
            "instance_type": readings.instance.name if readings.instance else None,
            "window": {"from": _moment(readings.start), "to": _moment(readings.end)},
            "healthy": diagnosis.healthy,
            "metrics": not diagnosis.blind,
            "findings": [
                {
                    "rule": finding.rule.id,
                    "title": finding.rule.title,
                    "now": finding.now,
                    "last_seen": _moment(finding.last_seen),
                    "worst": finding.worst,
                    "limit": finding.limit,
                    "condition": finding.rule.condition(),
                    "users_are_hurt": finding.rule.hurts_users,
                    "evidence": list(finding.evidence),
                    "meaning": finding.rule.meaning,
                    "action": finding.rule.action,
                    "runbook": f"docs/runbook/{finding.rule.id}.md",
                }
                for finding in diagnosis.findings
            ],
            "not_judged": [{"rule": item.rule.id, "why": item.why} for item in diagnosis.not_judged],
        }


def target(*, endpoint_url: str | None, region: str | None, profile: str | None, aws: bool) -> Target:
    """Whom to ask: the address that is given, else the local cloud that runs here, else AWS.

    Args:
        endpoint_url: address of a local cloud or proxy.
        region: AWS region; ``None``: the environment's.
        profile: AWS profile; ``None``: the environment's.
        aws: ask AWS although a local cloud runs here.

    Raises:
        CommandError: region or profile do not exist.
    """
    asked = open_session(endpoint_url=endpoint_url, region=region, profile=profile, aws=aws)
    return Target(asked.where, asked.local, asked.client("sagemaker"), asked.client("cloudwatch"))


def examine(
    asked: Target, endpoint: str, *, variant: str | None, instance_type: str | None, hours: int, now: float | None = None
) -> Report:
    """Read the metrics of the last ``hours`` and say what they mean.

    Args:
        asked: whom.
        endpoint: its name.
        variant: production variant; ``None``: the first.
        instance_type: instance type; ``None``: what the endpoint's configuration says.
        hours: length of the window.
        now: epoch seconds; ``None``: the clock's.

    Raises:
        CommandError: there is no such endpoint, or it cannot be asked.
    """
    from mme_cli.doctor_aws import doctor_readings

    readings = doctor_readings(
        asked.sagemaker,
        asked.cloudwatch,
        needed_queries(),
        endpoint=endpoint,
        variant=variant,
        instance_type=instance_type,
        hours=hours,
        now=time.time() if now is None else now,
        where=asked.where,
    )
    return Report(asked, readings, diagnose(readings))


def blind_text(report: Report) -> str:
    """Why nothing can be judged and what to do: no data is not good health."""
    name = f"endpoint {report.readings.endpoint!r} (variant {report.readings.variant!r})"
    if report.target.local:
        return (
            f"{report.target.where} publishes no CloudWatch metrics yet, so nothing but the status of {name} can be judged: "
            "see 'mme status' for residency and hit ratio"
        )
    hours = (report.readings.end - report.readings.start) / 3600
    return (
        f"CloudWatch in {report.target.where} has no metrics of {name} for the last {hours:.0f} h: "
        "instances publish every minute, so look at the variant's name and at the region, or wait if the endpoint is new"
    )


def print_report(report: Report, console: Console) -> None:
    """The report as a table and, for each finding, the runbook's words."""
    readings, diagnosis = report.readings, report.diagnosis
    kind = readings.instance.name if readings.instance else "unknown instance type"
    console.print(
        f"{readings.endpoint} / {readings.variant}: {readings.status}, {kind}; {_moment(readings.start)} to {_moment(readings.end)}",
        markup=False,
        soft_wrap=True,
    )
    if diagnosis.findings:
        console.print(_table(diagnosis))
        for finding in diagnosis.findings:
            rule = finding.rule
            console.print(f"\n{rule.id}: {rule.title}", style="bold", markup=False, soft_wrap=True)
            for label, text in _paragraphs(rule.meaning, rule.action, finding.evidence, rule.id):
                console.print(f"  {label}: {text}", markup=False, soft_wrap=True)
    elif diagnosis.healthy:
        console.print("nothing is the matter", style="green")
    if diagnosis.not_judged:
        console.print("\nnot judged:", markup=False)
        for item in diagnosis.not_judged:
            console.print(f"  {item.rule.id}: {item.why}", markup=False, soft_wrap=True)


def _paragraphs(meaning: str, action: str, evidence: Iterable[str], rule_id: str) -> Iterable[tuple[str, str]]:
    yield "means", meaning
    for text in evidence:
        yield "seen", text
    yield "do", action
    yield "more", f"docs/runbook/{rule_id}.md"


def _table(diagnosis: Diagnosis) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0))
    for title in ("finding", "when", "worst", "limit"):
        table.add_column(title, no_wrap=True)
    for finding in diagnosis.findings:
        when = "now" if finding.now else f"until {_moment(finding.last_seen)}"
        style = ("red" if finding.rule.hurts_users else "yellow") if finding.now else None
        table.add_row(finding.rule.id, when, finding.worst, f"{finding.rule.breach} {finding.limit}", style=style)
    return table


def _moment(epoch_seconds: int) -> str:
    return datetime.fromtimestamp(epoch_seconds, UTC).strftime("%Y-%m-%dT%H:%MZ")
