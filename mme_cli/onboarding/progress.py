"""Progress on standard error: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from mme_cli.onboarding.bulk import Progress as BulkProgress

__all__ = ["bulk_progress", "upload_progress"]

_LINE_SECONDS = 10.0


@contextmanager
def bulk_progress(console: Console, total: int) -> Iterator[Callable[[BulkProgress], None]]:
    """Shows how far a run over a manifest is."""
    if not console.is_terminal:
        last = time.monotonic()

        def line(progress: BulkProgress) -> None:
            nonlocal last
            if time.monotonic() - last > _LINE_SECONDS:
                last = time.monotonic()
                console.print(_text(progress), markup=False)

        yield line
        return
    columns = TextColumn("onboarding"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("onboarding", total=total, text="")
        yield lambda progress: bar.update(
            task,
            completed=progress.admitted + progress.failed,
            text=f"{progress.uploaded} uploaded" + (f", {progress.failed} failed" if progress.failed else ""),
        )


@contextmanager
def upload_progress(console: Console, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Shows how many bytes of an artifact are sent; is told how many more, or fewer."""
    if not console.is_terminal:
        yield lambda _bytes: None
        return
    columns = TextColumn("uploading"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("uploading", total=total_bytes)
        yield lambda count: bar.advance(task, count)


def _text(progress: BulkProgress) -> str:
    failed = f", {progress.failed} failed" if progress.failed else ""
    return f"{progress.uploaded} of {progress.total} uploaded, {progress.admitted} admitted{failed}"
