"""What is remembered of policies: the same question has the same answer, and everything that counts makes it another question."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mme_local.policy_memory import Decisions, ParsedPolicy, remember_parsed


@dataclass
class Context:
    """The emulator's, with its fields."""

    principal_arn: str = "arn:aws:iam::000000000000:user/a"
    principal_type: str = "User"
    principal_account: str = "000000000000"
    action: str = "s3:GetObject"
    resource_arn: str = "arn:aws:s3:::b/k"
    region: str = "us-east-1"
    source_ip: str = "127.0.0.1"
    secure_transport: bool = True
    request_tags: dict[str, str] = field(default_factory=dict)
    tag_keys: list[str] = field(default_factory=list)
    service_context: dict[str, Any] = field(default_factory=dict)
    principal_keys: dict[str, Any] = field(default_factory=dict)


@dataclass
class Result:
    decision: str


@pytest.fixture
def asked():
    """The questions that reached the evaluation."""
    return []


@pytest.fixture
def decide(asked):
    def evaluate(context, policies, *limits):
        asked.append((context, policies, limits))
        return Result(f"answer {len(asked)}")

    return Decisions(evaluate)


def parsed(*statements):
    return ParsedPolicy(statements)


ALLOW = {"Effect": "Allow", "Action": "*", "Resource": "*"}


def test_the_same_question_is_evaluated_once(decide, asked):
    policy = parsed(ALLOW)
    assert decide(Context(), [policy]) == decide(Context(), [policy]) == Result("answer 1")
    assert len(asked) == 1


def test_an_answer_that_is_written_into_spoils_no_other(decide):
    policy = parsed(ALLOW)
    decide(Context(), [policy]).decision = "spoilt"
    assert decide(Context(), [policy]).decision == "answer 1"


@pytest.mark.parametrize(
    "change",
    [
        {"principal_arn": "arn:aws:iam::000000000000:user/b"},
        {"principal_type": "AssumedRole"},
        {"principal_account": "111111111111"},
        {"action": "s3:PutObject"},
        {"resource_arn": "arn:aws:s3:::b/other"},
        {"region": "eu-central-1"},
        {"source_ip": "127.0.0.2"},
        {"secure_transport": False},
        {"request_tags": {"tenant": "acme"}},
        {"tag_keys": ["tenant"]},
        {"service_context": {"sagemaker:targetmodel": "acme/m"}},
        {"service_context": {"aws:resourcetag/pool": "gpu"}},
        {"principal_keys": {"aws:principaltag/tenant": "acme"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_everything_of_the_context_counts(decide, asked, change):
    policy = parsed(ALLOW)
    decide(Context(), [policy])
    decide(replace(Context(), **change), [policy])
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (0, False), ("None", None), (["a", "b"], "a, b"), (["a"], "a"), (["a", "b"], ["b", "a"])]
)
def test_values_that_print_differently_are_other_questions(decide, asked, one, other):
    policy = parsed(ALLOW)
    for value in (one, other, one, other):
        decide(Context(service_context={"key": value}), [policy])
    assert len(asked) == 2


def test_policies_and_their_limits_count(decide, asked):
    one, other = parsed(ALLOW), parsed(ALLOW)
    for policies, limits in (([one], []), ([other], []), ([one, other], []), ([one], [[other]]), ([one], [[], [other]]), ([], [])):
        decide(Context(), policies, *limits)
        decide(Context(), policies, *limits)
    assert len(asked) == 6


@pytest.mark.parametrize(
    "statement",
    [
        {**ALLOW, "Condition": {"DateLessThan": {"aws:CurrentTime": "2030-01-01T00:00:00Z"}}},
        {**ALLOW, "Condition": {"NumericLessThan": {"AWS:EpochTime": "1900000000"}}},
        {**ALLOW, "Resource": "arn:aws:s3:::b/${aws:CurrentTime}/*"},
        {**ALLOW, "Condition": {"StringEquals": {"aws:PrincipalOrgID": "o-1"}}},
    ],
)
def test_what_the_clock_or_an_organization_decides_is_asked_anew(decide, asked, statement):
    policy = remember_parsed(lambda text: [json.loads(text)])(json.dumps(statement))
    decide(Context(), [policy])
    decide(Context(), [policy])
    decide(Context(), [parsed(ALLOW)], [policy])
    decide(Context(), [parsed(ALLOW)], [policy])
    assert len(asked) == 4


def test_what_cannot_be_remembered_is_asked_anew(decide, asked):
    policy = parsed(ALLOW)
    for _ in range(2):
        decide(Context(), [[ALLOW]])
        decide(Context(service_context={"key": object()}), [policy])
    assert len(asked) == 4


def test_a_text_is_parsed_once_and_a_document_every_time():
    texts = []

    def parse(document):
        texts.append(document)
        return [document]

    remembered = remember_parsed(parse)
    assert remembered("{}") is remembered("{}")
    assert remembered("{ }") is not remembered("{}")
    document = {"Statement": []}
    assert remembered(document) is not remembered(document)
    assert texts == ["{}", "{ }", document, document]
