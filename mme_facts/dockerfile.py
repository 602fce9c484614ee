"""What a Dockerfile says of its image without building it: the labels that it sets and the image that it starts from.

Source: Docker documentation, Dockerfile reference (LABEL, FROM, ARG, parser directives, here-documents).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ["BIND_TO_PORT_LABEL", "MULTI_MODEL_LABEL", "DockerfileError", "DockerfileImage", "read_dockerfile"]

MULTI_MODEL_LABEL = "com.amazonaws.sagemaker.capabilities.multi-models"
"""CreateModel in MultiModel mode needs it to be ``true`` (Amazon SageMaker AI, Build your own container for multi-model endpoints)."""
BIND_TO_PORT_LABEL = "com.amazonaws.sagemaker.capabilities.accept-bind-to-port"
"""An inference pipeline needs it to be ``true`` (Amazon SageMaker AI, Run real-time predictions with an inference pipeline)."""

_VARIABLE = re.compile(r"\$(?:(?P<plain>\w+)|\{(?P<braced>\w+)(?::(?P<sign>[-+])(?P<word>[^}]*))?\})")
_HEREDOC = re.compile(r"<<-?[\"']?(\w+)[\"']?")
_ESCAPE = re.compile(r"#\s*escape\s*=\s*`\s*", re.IGNORECASE)


class DockerfileError(ValueError):
    """A Dockerfile cannot be read; the text names the line or the stage."""


@dataclass(frozen=True, slots=True)
class DockerfileImage:
    """The image of a Dockerfile's last stage, or of a stage asked for.

    Attributes:
        labels: what the Dockerfile sets, earlier stages that the stage builds on included; those of ``base`` are not known.
        base: the image from elsewhere that the stage builds on, such as ``python:3.13-slim`` or ``scratch``.
    """

    base: str
    labels: Mapping[str, str] = field(default_factory=dict)


def read_dockerfile(text: str, *, arguments: Mapping[str, str] | None = None, target: str | None = None) -> DockerfileImage:
    """Read a Dockerfile.

    Args:
        text: its content.
        arguments: build arguments; they go before the defaults of ``ARG``.
        target: name of the stage to read. Default: the last one.

    Raises:
        DockerfileError: there is no FROM, no such stage, or a LABEL or ARG that cannot be read.
    """
    stages: dict[str, DockerfileImage] = {}
    variables: dict[str, str] = {}
    labels: dict[str, str] = {}
    last: DockerfileImage | None = None
    number = 0
    for instruction, rest in _instructions(text):
        if instruction == "ARG":
            for name, default in _assignments(rest, "ARG"):
                variables[name] = (arguments or {}).get(name, _substitute(default, variables))
        elif instruction == "FROM":
            words = [word for word in _substitute(rest, variables).split() if not word.startswith("--")]
            if not words:
                raise DockerfileError(f"FROM {rest} names no image")
            parent = stages.get(words[0].lower())
            labels = dict(parent.labels) if parent else {}
            last = DockerfileImage(parent.base if parent else words[0], labels)
            stages[str(number)] = last
            number += 1
            if len(words) == 3 and words[1].lower() == "as":
                stages[words[2].lower()] = last
        elif instruction == "LABEL" and last is not None:
            labels.update((name, _substitute(value, variables)) for name, value in _assignments(rest, "LABEL"))
    if last is None:
        raise DockerfileError("it has no FROM")
    if target is None:
        return last
    if target.lower() not in stages:
        raise DockerfileError(f"it has no stage {target!r}")
    return stages[target.lower()]


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Instruction and arguments of each statement: comments dropped, continued lines joined, here-documents skipped."""
    lines = text.splitlines()
    escape = "`" if lines and _ESCAPE.fullmatch(lines[0].strip()) else "\\"
    pending, ending = "", ""
    for line in lines:
        stripped = line.strip()
        if ending:
            ending = "" if stripped == ending else ending
            continue
        if not stripped or stripped.startswith("#"):
            continue
        pending += stripped
        if pending.endswith(escape):
            pending = pending[:-1].rstrip() + " "
            continue
        instruction, rest = _split(pending)
        pending = ""
        if instruction in {"RUN", "COPY", "ADD"} and (heredoc := _HEREDOC.search(rest)):
            ending = heredoc[1]
        yield instruction, rest
    if pending:
        yield _split(pending)


def _split(statement: str) -> tuple[str, str]:
    instruction, _, rest = statement.replace("\t", " ").partition(" ")
    return instruction.upper(), rest.strip()


def _assignments(rest: str, instruction: str) -> list[tuple[str, str]]:
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise DockerfileError(f"{instruction} {rest} cannot be read ({error})") from error
    if not words:
        raise DockerfileError(f"{instruction} names nothing")
    if instruction == "LABEL" and "=" not in words[0]:  # the old form: LABEL key value
        return [(words[0], " ".join(words[1:]))]
    return [(name, value) for name, _, value in (word.partition("=") for word in words)]


def _substitute(text: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        found = variables.get(match["plain"] or match["braced"], "")
        if match["sign"] == "-":
            return found or match["word"]
        if match["sign"] == "+":
            return match["word"] if found else ""
        return found or match[0]

    return _VARIABLE.sub(value, text)
