"""CSV files of traces, plain or gzipped, read so that a bad line is named by its number."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO

__all__ = ["Row", "TraceFormatError", "read_rows"]

_GZIP_MAGIC = b"\x1f\x8b"


class TraceFormatError(ValueError):
    """A trace's file is not what its reader expects.

    Attributes:
        path: the file.
        line: number of the line, the header is line 1; ``None`` when it is the file as a whole.
    """

    def __init__(self, path: Path, line: int | None, problem: str) -> None:
        self.path, self.line = path, line
        where = path.name if line is None else f"{path.name}, line {line}"
        super().__init__(f"{where}: {problem}")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file.

    Attributes:
        path: the file.
        line: its number; the header is line 1.
        cells: the columns asked for, in the order asked for.
        rest: the columns behind the named ones, when `read_rows` was told to keep them.
    """

    path: Path
    line: int
    cells: Sequence[str]
    rest: Sequence[str]

    def number(self, position: int, what: str, *, least: float = 0.0) -> float:
        """The cell as a finite number of at least ``least``; raises `TraceFormatError`."""
        text = self.cells[position]
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < least:
            raise self.error(f"{what} is {text!r}: use a number of {least:g} or more")
        return value

    def text(self, position: int, what: str) -> str:
        """The cell, which must not be empty; raises `TraceFormatError`."""
        text = self.cells[position]
        if not text:
            raise self.error(f"{what} is empty")
        return text

    def time(self, position: int, what: str) -> datetime:
        """The cell as a time in ISO 8601; raises `TraceFormatError`."""
        try:
            return datetime.fromisoformat(self.cells[position])
        except ValueError:
            raise self.error(f"{what} is {self.cells[position]!r}: use a time as 2024-11-15 16:57:50") from None

    def counts(self, what: str) -> list[int]:
        """All cells of `rest` as whole numbers of 0 or more; raises `TraceFormatError` that names the first other one."""
        try:
            values = list(map(int, self.rest))
        except ValueError:
            values = [-1]
        if values and min(values) < 0:
            position, text = next((position, text) for position, text in enumerate(self.rest, 1) if not text.strip().isdecimal())
            raise self.error(f"{what} {position} is {text!r}: use a whole number of 0 or more")
        return values

    def error(self, problem: str) -> TraceFormatError:
        """An error that names this line."""
        return TraceFormatError(self.path, self.line, problem)


def read_rows(path: Path, columns: Sequence[str], *, rest: bool = False) -> Iterator[Row]:
    """Read a CSV file with a header.

    Args:
        path: the file; gzip is recognised by its first bytes.
        columns: names of the columns wanted; others are ignored.
        rest: keep what stands behind the last of ``columns``, as `Row.rest`.

    Raises:
        TraceFormatError: a column is missing, a line has another number of cells than the header, a byte is not UTF-8, the
            compressed data is damaged, or the file has no line but its header.
        OSError: the file cannot be read.
    """
    with path.open("rb") as raw, _text(raw) as text:
        lines = csv.reader(_checked(text, path))
        line = 0
        try:
            header = next(lines, [])
            line = 1
            missing = [name for name in columns if name not in header]
            if missing:
                raise TraceFormatError(path, 1, f"there is no column {missing[0]!r}, only {', '.join(header[:8]) or 'nothing'}")
            positions = [header.index(name) for name in columns]
            behind = max(positions) + 1 if rest else len(header)
            for cells in lines:
                line = lines.line_num
                if len(cells) != len(header):
                    raise TraceFormatError(path, line, f"{len(cells)} cells, but the header has {len(header)}")
                yield Row(path, line, [cells[position] for position in positions], cells[behind:])
        except csv.Error as error:
            raise TraceFormatError(path, line + 1, f"not cells with commas ({error})") from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TraceFormatError(path, line + 1, f"the compressed data is damaged here or a little later ({error})") from error
        if line == 1:
            raise TraceFormatError(path, None, "only a header, no line")


def _text(raw: IO[bytes]) -> io.TextIOWrapper:
    start = raw.read(len(_GZIP_MAGIC))
    raw.seek(0)
    content: IO[bytes] = gzip.GzipFile(fileobj=raw) if start == _GZIP_MAGIC else raw  # type: ignore[assignment]
    return io.TextIOWrapper(content, encoding="utf-8", errors="surrogateescape", newline="")


def _checked(text: Iterable[str], path: Path) -> Iterator[str]:
    """The lines; a byte that is not UTF-8 came as a surrogate, and is told here, where its line is known."""
    for number, line in enumerate(text, 1):
        if not line.isascii():
            try:
                line.encode()
            except UnicodeEncodeError as error:
                raise TraceFormatError(path, number, f"not text in UTF-8 at its character {error.start + 1}") from error
        yield line
