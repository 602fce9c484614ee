"""``python -m benchmarks.warm_up``: the table of the warm-up; exit status 1 if a bound does not hold."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks.figure import store
from benchmarks.figure import table as figure_table
from benchmarks.warm_up.cells import STARTS
from benchmarks.warm_up.measure import BUILD, Report, measure_table, write_docs
from benchmarks.warm_up.report import document, summary, table
from mme_cli.console import print_json, stderr, stdout

_DOCS = Path("docs")
_INTERRUPTED = 130
_QUICK_STARTS = 2


def main(arguments: list[str]) -> int:
    """Measure, print, store."""
    options = _parser().parse_args(arguments)
    try:
        count = options.starts or (_QUICK_STARTS if options.quick else STARTS)
        report = measure_table(BUILD, quick=options.quick, count=count, fresh=options.fresh, processes=options.processes, only=options.only)
    except KeyboardInterrupt:
        stderr.print("interrupted: what is measured is kept in build/warm-up.jsonl; the same command goes on from there", markup=False)
        return _INTERRUPTED
    except LookupError as error:
        stderr.print(f"bench: {error.args[0]}", markup=False)
        return 2
    except FileNotFoundError as error:
        stderr.print(f"bench: {error}", markup=False)
        return 1
    figures = list(report.figures())
    store(figures, BUILD / "bench-warm-up.json")
    if options.docs:
        for path in write_docs(report, _DOCS):
            stderr.print(f"written: {path}", markup=False)
    if options.json:
        print_json({"figures": [figure.document() for figure in figures], "cells": document(report.results), "bad": report.bad})
    else:
        _show(report)
        stdout.print(figure_table(figures))
    good = report.good_bad_variants
    if good:
        stderr.print(f"bench: the bad variant {good[0]!r} misses no bound: the bounds do not tell good from bad", markup=False)
    held = all(figure.holds for figure in figures) and not any(one.missed for one in report.results)
    return 0 if held and not good else 1


def _show(report: Report) -> None:
    """The table is wider than most terminals: it is cut nowhere."""
    wide = Console(width=max(stdout.width, 260), highlight=False)
    wide.print(table(report.results))
    wide.print(summary(report.results, report.bad))
    stdout.print(f"measured in {report.seconds:.0f} s; ! misses its bound", markup=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.warm_up", description="What a warm-up avoids and costs, in virtual time.")
    parser.add_argument("--quick", action="store_true", help="twelve cells of the Azure sample at two starts")
    parser.add_argument("--starts", type=int, choices=range(1, STARTS + 1), metavar="N", help="changes of each cell, 1 to 12 (default: 12)")
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="cells whose name matches, such as 'azure|one home|5|8|0.35|update' or '*|loss'"
    )
    parser.add_argument("--fresh", action="store_true", help="measure again what build/warm-up.jsonl has")
    parser.add_argument("--processes", type=int, metavar="N", help="simulations at once (default: one for each processor)")
    parser.add_argument("--docs", action="store_true", help="write tables and plots into docs")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
