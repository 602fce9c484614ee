from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mme_facts.dockerfile import BIND_TO_PORT_LABEL, MULTI_MODEL_LABEL, DockerfileError, read_dockerfile


def _labels(*lines, **options):
    return read_dockerfile("\n".join(lines), **options).labels


@pytest.mark.parametrize(
    "line",
    [
        f"LABEL {MULTI_MODEL_LABEL}=true",
        f'LABEL {MULTI_MODEL_LABEL}="true"',
        f"LABEL {MULTI_MODEL_LABEL}='true'",
        f'LABEL "{MULTI_MODEL_LABEL}"="true"',
        f"LABEL {MULTI_MODEL_LABEL} true",
        f"label {MULTI_MODEL_LABEL}=true",
        f"LABEL\t{MULTI_MODEL_LABEL}=true",
        f"  LABEL maintainer=us {MULTI_MODEL_LABEL}=true",
    ],
)
def test_every_way_to_write_a_label(line):
    assert _labels("FROM python:3.13-slim", line)[MULTI_MODEL_LABEL] == "true"


def test_several_labels_over_continued_lines_with_comments_in_between():
    labels = _labels("FROM x", f"LABEL {MULTI_MODEL_LABEL}=true \\", "  # for pipelines", "", f"      {BIND_TO_PORT_LABEL}=true")
    assert labels == {MULTI_MODEL_LABEL: "true", BIND_TO_PORT_LABEL: "true"}


def test_the_escape_directive_changes_the_continuation():
    assert _labels("# escape=`", "FROM x", "LABEL a=1 `", "  b=2") == {"a": "1", "b": "2"}


def test_the_last_label_wins():
    assert _labels("FROM x", "LABEL a=1", "LABEL a=2") == {"a": "2"}


def test_only_the_last_stage_counts():
    image = read_dockerfile(f"FROM golang AS build\nLABEL {MULTI_MODEL_LABEL}=true\nFROM python:3.13\nCOPY --from=build /x /x")
    assert (image.base, image.labels) == ("python:3.13", {})


def test_a_stage_has_the_labels_and_the_base_of_the_stage_that_it_starts_from():
    image = read_dockerfile("FROM --platform=linux/arm64 python:3.13 AS base\nLABEL a=1 b=1\nFROM base\nLABEL b=2\nFROM BASE as Other")
    assert (image.base, image.labels) == ("python:3.13", {"a": "1", "b": "1"})
    assert read_dockerfile("FROM python AS base\nLABEL a=1\nFROM base\nLABEL b=2").labels == {"a": "1", "b": "2"}


@pytest.mark.parametrize(("target", "labels"), [("build", {"stage": "build"}), ("Serve", {"stage": "serve"}), ("0", {"stage": "build"})])
def test_a_stage_can_be_asked_for_by_name_or_number(target, labels):
    text = "FROM a AS build\nLABEL stage=build\nFROM b AS serve\nLABEL stage=serve\nFROM c"
    assert read_dockerfile(text, target=target).labels == labels


def test_arguments_are_substituted_with_their_defaults_or_what_the_build_passes():
    text = "ARG TAG=1 FLAG=false\nFROM server:${TAG}\nARG FLAG=true\nLABEL a=$FLAG b=${MISSING:-none} c=${FLAG:+set}"
    image = read_dockerfile(text)
    assert (image.base, image.labels) == ("server:1", {"a": "true", "b": "none", "c": "set"})
    image = read_dockerfile(text, arguments={"TAG": "2", "FLAG": "no"})
    assert (image.base, image.labels["a"]) == ("server:2", "no")


def test_what_a_here_document_holds_is_no_instruction():
    labels = _labels("FROM x", "RUN <<EOF", f"LABEL {MULTI_MODEL_LABEL}=true", "EOF", "LABEL a=1")
    assert labels == {"a": "1"}


def test_a_commented_label_is_none():
    assert _labels("FROM x", f"# LABEL {MULTI_MODEL_LABEL}=true", "") == {}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "it has no FROM"),
        ("LABEL a=1", {}, "it has no FROM"),
        ("FROM", {}, "names no image"),
        ("FROM x\nLABEL a='1", {}, "cannot be read"),
        ("FROM x\nLABEL", {}, "names nothing"),
        ("FROM x", {"target": "serve"}, "no stage 'serve'"),
    ],
)
def test_rejects_what_docker_would_reject(text, options, message):
    with pytest.raises(DockerfileError, match=message):
        read_dockerfile(text, **options)


@given(st.lists(st.tuples(st.sampled_from(["LABEL", "RUN", "ENV", "#", "FROM x AS", "COPY"]), st.text("ab=\\\"' \n<$")), max_size=6))
def test_any_text_is_read_or_refused_with_its_own_error(lines):
    text = "FROM base\n" + "\n".join(f"{instruction} {rest}" for instruction, rest in lines)
    with contextlib.suppress(DockerfileError):
        assert read_dockerfile(text).base
