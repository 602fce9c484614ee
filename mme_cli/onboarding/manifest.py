"""The manifest of a bulk onboarding: a CSV file, one model a line, checked as a whole before anything is sent."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mme_cli.errors import UsageError
from mme_cli.onboarding.artifact import ModelFiles

__all__ = ["COLUMNS", "Row", "read_manifest", "write_manifest"]

_REQUIRED = ("tenant", "model", "artifact", "sample")
_OPTIONAL = ("content_type", "framework", "accept", "notes")
COLUMNS = (*_REQUIRED, *_OPTIONAL)
"""The columns, in the order in which they are written."""
_REPORTED = "error"
"""The column that a report of failures adds; it is read over."""
_SHOWN_ERRORS = 20


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the manifest.

    Attributes:
        line: its number in the file, from 1; the header is line 1.
        files: the model.
    """

    line: int
    files: ModelFiles

    @property
    def name(self) -> str:
        """``tenant/model``."""
        return f"{self.files.tenant}/{self.files.model}"


def read_manifest(path: Path) -> list[Row]:
    """Read and check a manifest; paths in it are relative to its folder.

    Raises:
        UsageError: it cannot be read, or lines are wrong; the text names the first of them with their numbers.
    """
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise UsageError(f"manifest {str(path)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"manifest {str(path)!r} is not UTF-8: save it as CSV in UTF-8") from None
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    errors: list[str] = []
    rows: list[Row] = []
    seen: dict[tuple[str, str], int] = {}
    try:
        _check_header(path, reader.fieldnames)
        for values in reader:
            line = reader.line_num
            try:
                row = Row(line, _files(values, path.parent))
            except UsageError as error:
                errors.append(f"line {line}: {error}")
                continue
            first = seen.setdefault((row.files.tenant, row.files.model), line)
            if first != line:
                errors.append(f"line {line}: {row.name} stands on line {first} already: one version a manifest")
            rows.append(row)
    except csv.Error as error:
        raise UsageError(f"manifest {str(path)!r}, line {reader.reader.line_num}: {error}") from None
    if errors:
        shown = errors[:_SHOWN_ERRORS]
        more = f"\n  and {len(errors) - len(shown)} more" if len(errors) > len(shown) else ""
        raise UsageError(f"manifest {str(path)!r} has {len(errors)} wrong lines, nothing was sent:\n  " + "\n  ".join(shown) + more)
    if not rows:
        raise UsageError(f"manifest {str(path)!r} lists no models: one line each below the header {','.join(COLUMNS)}")
    return rows


def _check_header(path: Path, names: Iterable[str] | None) -> None:
    names = list(names or ())
    if missing := [name for name in _REQUIRED if name not in names]:
        raise UsageError(f"manifest {str(path)!r} has no column {missing[0]!r}: its first line must name {', '.join(_REQUIRED)}")
    if unknown := [name for name in names if name not in (*COLUMNS, _REPORTED)]:
        raise UsageError(f"manifest {str(path)!r} has an unknown column {unknown[0]!r}: use {', '.join(COLUMNS)}")
    if len(set(names)) != len(names):
        raise UsageError(f"manifest {str(path)!r} names a column twice")


def _files(values: Mapping[str | None, str | list[str] | None], folder: Path) -> ModelFiles:
    if None in values:
        raise UsageError("it has more values than the header has columns; quote values that hold commas")
    given = {str(name): value.strip() for name, value in values.items() if isinstance(value, str) and value.strip()}
    if missing := [name for name in _REQUIRED if name not in given]:
        raise UsageError(f"{missing[0]} is missing")
    return ModelFiles.check(
        given["tenant"],
        given["model"],
        folder / given["artifact"],
        folder / given["sample"],
        content_type=given.get("content_type"),
        framework=given.get("framework"),
        accept=given.get("accept"),
        notes=given.get("notes"),
    )


def write_manifest(path: Path, rows: Iterable[tuple[Row, str]]) -> None:
    """Write rows with their errors as a manifest that can be read again; the file is there whole or not at all."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with scratch.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, _REPORTED])
        for row, error in rows:
            files = row.files
            paths = [os.path.relpath(file, path.parent) for file in (files.artifact, files.sample)]
            writer.writerow(
                [files.tenant, files.model, *paths, files.content_type, files.framework, files.accept or "", files.notes or "", error]
            )
    scratch.replace(path)
