"""``python -m benchmarks [AREA ...]``: measure, print, store; exit status 1 if a bound does not hold."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import bulk, constructs, fleet, invocation, local_cloud, onboarding
from benchmarks.figure import store, table
from mme_cli.console import stderr, stdout

AREAS = {
    "constructs": constructs.measure,
    "local-cloud": local_cloud.measure,
    "fleet": fleet.measure,
    "onboarding": onboarding.measure,
    "bulk": bulk.measure,
    "invocation": invocation.measure,
}


def main(arguments: list[str]) -> int:
    """Measure the named areas, or all."""
    unknown = [name for name in arguments if name not in AREAS]
    if unknown:
        stderr.print(f"bench: area {unknown[0]!r} is unknown: use one of {', '.join(AREAS)}", markup=False)
        return 2
    figures = [figure for name in arguments or AREAS for figure in AREAS[name](lambda text: stderr.print(text, markup=False))]
    stdout.print(table(figures))
    store(figures, Path("build") / "bench.json")
    return 0 if all(figure.holds for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
