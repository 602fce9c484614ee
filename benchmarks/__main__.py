"""``python -m benchmarks [AREA ...]``: measure, print, store; exit status 1 if a bound does not hold."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import bulk, constructs, fleet, invocation, local_cloud, onboarding, prefetch
from benchmarks.figure import store, table
from benchmarks.warm_up import measure as warm_up
from mme_cli.console import stderr, stdout

AREAS = {
    "constructs": constructs.measure,
    "local-cloud": local_cloud.measure,
    "fleet": fleet.measure,
    "onboarding": onboarding.measure,
    "bulk": bulk.measure,
    "invocation": invocation.measure,
    "prefetch": prefetch.measure,
}
LONG_AREAS = {"warm-up": warm_up.measure}
"""Measured only when they are named."""


def main(arguments: list[str]) -> int:
    """Measure the named areas, or all but the long ones."""
    areas = AREAS | LONG_AREAS
    unknown = [name for name in arguments if name not in areas]
    if unknown:
        stderr.print(f"bench: area {unknown[0]!r} is unknown: use one of {', '.join(areas)}", markup=False)
        return 2
    figures = [figure for name in arguments or AREAS for figure in areas[name](lambda text: stderr.print(text, markup=False))]
    stdout.print(table(figures))
    store(figures, Path("build") / "bench.json")
    return 0 if all(figure.holds for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
