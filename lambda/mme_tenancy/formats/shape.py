"""What an archive of a framework must hold: the interface, and what the frameworks' rules share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mme_facts.artifacts import carries_code
from mme_tenancy.findings import Findings
from mme_tenancy.formats.content import Content

__all__ = ["File", "Shape", "leaves_the_archive", "note_requirements", "refuse_code", "report_missing"]


@dataclass(frozen=True, slots=True)
class File:
    """A regular file with a sound name.

    Attributes:
        name: as the archive writes it.
        parts: its path, folder by folder.
        size_bytes: size of its content.
    """

    name: str
    parts: tuple[str, ...]
    size_bytes: int

    @property
    def path(self) -> str:
        """The path without ``./`` and doubled slashes."""
        return "/".join(self.parts)

    @property
    def suffix(self) -> str:
        """What the file's name ends in, in lower case, with its dot."""
        stem, dot, end = self.parts[-1].rpartition(".")
        return f".{end.lower()}" if stem and dot else ""


class Shape(Protocol):
    """Looks at every file of an archive and at what is missing in the end."""

    @property
    def content_rule(self) -> str:
        """The rule that a file breaks whose content is not what it claims to be."""
        ...

    def file(self, file: File, findings: Findings) -> Content | None:
        """Look at a file; returns the check of its content, if there is one."""
        ...

    def folder(self, parts: tuple[str, ...]) -> None:
        """Look at a folder."""
        ...

    def finish(self, findings: Findings) -> None:
        """All files were seen and their content was read."""
        ...


def leaves_the_archive(path: str) -> bool:
    """Whether a path that a model names may lead out of the model's folder."""
    return path.startswith("/") or ".." in path.split("/") or "\\" in path or "\0" in path or "://" in path


def refuse_code(file: File, findings: Findings) -> bool:
    """Note a file that is code by its name; says whether it is."""
    if not carries_code(file.path):
        return False
    findings.add("code", file.name, "the member is code, or chooses what code runs")
    return True


def note_requirements(file: File, findings: Findings) -> None:
    """Note a list of packages: nothing installs it."""
    if file.parts[-1] == "requirements.txt":
        findings.add("ignored", file.name, "nothing installs the requirements of a model on a multi-model endpoint")


def report_missing(rule: str, expected: str, inside: str | None, findings: Findings) -> None:
    """Note that the model is missing at the root; ``inside`` is where a file of its name lies instead."""
    if inside is None:
        findings.add(rule, expected, f"the archive has no regular file {expected} at its root")
    else:
        findings.add("root-folder", inside, f"{expected} must be at the root of the archive, not in a folder")
