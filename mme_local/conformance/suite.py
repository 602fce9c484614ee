"""Checks all rules against one container."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from mme_local.conformance.catalogue import RULES
from mme_local.conformance.differences import Difference, differences_of
from mme_local.conformance.probe import BrokenRuleError, Probe
from mme_local.conformance.rules import Outcome, Rule
from mme_local.conformance.subject import Subject

__all__ = ["Report", "Result", "UnreachableError", "check_container", "check_container_async"]

_CONNECT_SECONDS = 5.0


class UnreachableError(Exception):
    """Nothing answers at the container's address."""


@dataclass(frozen=True, slots=True)
class Result:
    """What is known of one rule.

    Attributes:
        rule: the rule.
        outcome: the verdict.
        detail: what was seen, or why it was not checked; empty for a rule that is kept.
    """

    rule: Rule
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a run, in the order of the rules."""

    url: str
    results: Sequence[Result]

    @property
    def broken(self) -> list[Result]:
        """The rules that the container breaks."""
        return [result for result in self.results if result.outcome is Outcome.BROKEN]

    @property
    def conforms(self) -> bool:
        """Whether no rule is broken that the platform relies on."""
        return not any(result.rule.required for result in self.broken)

    def counts(self) -> dict[str, int]:
        """How many rules have each outcome."""
        counts = Counter(result.outcome for result in self.results)
        return {outcome.value: counts[outcome] for outcome in Outcome}

    def document(self) -> dict[str, Any]:
        """The report as one JSON document."""
        return {
            "url": self.url,
            "conforms": self.conforms,
            "counts": self.counts(),
            "rules": [
                {
                    "id": result.rule.id,
                    "outcome": result.outcome.value,
                    "detail": result.detail or None,
                    "text": result.rule.text,
                    "required": result.rule.required,
                    "source": result.rule.source,
                }
                for result in self.results
            ],
        }


def check_container(
    subject: Subject, *, server: str | None = None, only: Collection[str] = (), progress: Callable[[Rule], None] | None = None
) -> Report:
    """Check every rule against a running container. It unloads what it has loaded, and leaves other models alone.

    Args:
        subject: the container, and what is needed to provoke its answers.
        server: name of a known server, whose differences (`DIFFERENCES`) are allowed.
        only: ids of rules; the others are left out, but for those that these build on. Empty: all.
        progress: is told every rule before it is checked.

    Raises:
        UnreachableError: nothing answers at the address.
        ValueError: there is no such rule, or no such server.
    """
    return asyncio.run(check_container_async(subject, server=server, only=only, progress=progress))


async def check_container_async(
    subject: Subject, *, server: str | None = None, only: Collection[str] = (), progress: Callable[[Rule], None] | None = None
) -> Report:
    """As `check_container`, for a caller that has an event loop."""
    if unknown := sorted(set(only) - {rule.id for rule in RULES}):
        raise ValueError(f"there is no rule {', '.join(unknown)}: use one of {', '.join(rule.id for rule in RULES)}")
    allowed = differences_of(server)
    timeout = httpx.Timeout(None, connect=_CONNECT_SECONDS)
    async with httpx.AsyncClient(base_url=subject.url, timeout=timeout, trust_env=False, verify=subject.url.startswith("https")) as client:
        try:
            await client.get("/ping", timeout=subject.timeout_seconds)
        except httpx.HTTPError as error:
            raise UnreachableError(
                f"no container answers at {subject.url} ({str(error) or type(error).__name__}): start it first"
            ) from None
        results: dict[str, Result] = {}
        for rule in _ordered(only or [rule.id for rule in RULES]):
            if progress is not None:
                progress(rule)
            results[rule.id] = await _result(rule, subject, client, allowed.get(rule.id), results)
    return Report(subject.url, [results[rule.id] for rule in RULES if rule.id in results])


def _ordered(wanted: Collection[str]) -> list[Rule]:
    """These rules, in the order of all of them, each after those that it builds on."""
    by_id = {rule.id: rule for rule in RULES}
    done: dict[str, Rule] = {}

    def add(rule: Rule) -> None:
        if rule.id not in done:
            for other in rule.after:
                add(by_id[other])
            done[rule.id] = rule

    for rule in RULES:
        if rule.id in wanted:
            add(rule)
    return list(done.values())


async def _result(
    rule: Rule, subject: Subject, client: httpx.AsyncClient, difference: Difference | None, known: dict[str, Result]
) -> Result:
    if missing := subject.missing(rule.needs):
        return Result(rule, Outcome.NOT_CHECKED, f"not given: {', '.join(missing)}")
    if difference is not None and difference.harmful:
        return Result(rule, Outcome.NOT_CHECKED, f"{difference.server}: {difference.seen}")
    if unmet := [other for other in rule.after if known[other].outcome is not Outcome.KEPT]:
        return Result(rule, Outcome.NOT_CHECKED, f"it builds on {', '.join(unmet)}")
    probe = Probe(subject, client)
    try:
        await rule.check(probe)
    except BrokenRuleError as error:
        outcome = Outcome.BROKEN if difference is None else Outcome.ALLOWED
        return Result(rule, outcome, str(error))
    finally:
        await probe.clean()
    return Result(rule, Outcome.KEPT)
