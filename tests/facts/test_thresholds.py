"""The shared rules, and the runbook that repeats them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mme_facts.metrics import MetricUseError, metric
from mme_facts.thresholds import RULES, USERS_HURT, Signal, pages

RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook"
RULE_IDS = sorted(RULES)


def words(text):
    return " ".join(text.split())


def page(page_id):
    return words((RUNBOOK / f"{page_id}.md").read_text("utf-8"))


def test_every_rule_has_a_page_and_every_page_a_rule():
    assert {path.stem for path in RUNBOOK.glob("*.md")} == {"index", *(page.id for page in pages())}


@pytest.mark.parametrize("rule", pages(), ids=lambda rule: rule.id)
def test_the_page_says_what_the_rule_says(rule):
    text = page(rule.id)
    assert text.startswith(f"# {rule.title} ")
    assert rule.meaning in text
    assert f"## What to do {rule.action}" in text
    assert "## How to look" in text


@pytest.mark.parametrize("rule_id", RULE_IDS)
def test_the_page_says_when_it_fires_and_why_missing_data_counts_as_it_does(rule_id):
    rule = RULES[rule_id]
    assert f"**Fires when** {rule.condition()}." in page(rule_id)
    assert rule.missing_reason in page(rule_id)


def test_the_index_names_every_page():
    index = (RUNBOOK / "index.md").read_text("utf-8")
    assert set(re.findall(r"\]\(([a-z0-9-]+)\.md\)", index)) == {page.id for page in pages()}


def test_every_link_between_pages_leads_somewhere():
    for path in RUNBOOK.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text("utf-8")):
            assert (RUNBOOK / target).is_file(), f"{path.name}: {target}"


@pytest.mark.parametrize("rule_id", RULE_IDS)
def test_a_rule_is_whole(rule_id):
    rule = RULES[rule_id]
    assert rule_id == rule.id
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule_id)
    assert rule.missing_reason
    assert 1 <= rule.breaching_periods <= rule.periods
    assert rule.period_minutes * rule.periods <= 24 * 60
    names = set(re.findall(r"\b[a-z_]+\b", rule.math(vcpus=4)))
    assert names == set(rule.signals)
    assert (rule.scale is None) or rule.needs == rule.scale


def test_some_rules_hurt_users_and_the_composite_is_none_of_them():
    assert {rule.id for rule in RULES.values() if rule.hurts_users} == {"server-errors", "model-errors", "throttles", "long-load-wait"}
    assert USERS_HURT.id not in RULES


def test_thresholds_of_cpu_are_multiplied_by_the_vcpus():
    assert RULES["cpu-high"].limit(vcpus=16) == 1280
    assert RULES["cpu-low"].limit(vcpus=2) == 100
    assert RULES["memory-high"].limit(vcpus=16) == 90


def test_a_condition_reads_as_a_clause():
    assert RULES["server-errors"].condition() == "requests answered with 5XX above 1 %, in 3 of 5 periods of 1 min"
    assert RULES["long-load-wait"].condition().endswith("above 20 s, in 3 of 3 periods of 5 min")
    assert RULES["over-provisioned"].condition() == "CPU below 50 % of all vCPUs and memory above 80 %, in 6 of 6 periods of 1 h"


def test_a_signal_with_an_invalid_statistic_is_refused():
    with pytest.raises(MetricUseError, match="got 'p99'"):
        Signal(metric("AWS/SageMaker", "ModelLoadingWaitTime"), "p99")
