"""What the constructs cost beside plain CDK: synthesis against an L1 app of the same resources, and import time."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import l1_app
from benchmarks.figure import Figure
from mme_local.toolchain import node

__all__ = ["measure"]

_PROJECT = Path(__file__).parents[1]
_SYNTH_RUNS = 9
_SYNTH_BOUND = 1.15
_IMPORT_RUNS = 7
_IMPORT_BOUND_MS = 50.0
_IMPORT = """
import sys, time
import aws_cdk
from aws_cdk import {modules}
started = time.perf_counter()
import mme_constructs
mme_constructs.{name}
print((time.perf_counter() - started) * 1000)
assert "boto3" not in sys.modules and "botocore" not in sys.modules
"""


def measure(tell: Callable[[str], object]) -> Iterator[Figure]:
    """Both figures of the constructs."""
    os.environ["JSII_NODE"] = str(node())  # the generator imports aws_cdk in this process
    yield _synth(tell)
    yield _import(tell)


def _environment(outdir: Path) -> dict[str, str]:
    context = json.loads((_PROJECT / "cdk.json").read_text("utf-8"))["context"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("CDK_")}
    return plain | {"CDK_OUTDIR": str(outdir), "CDK_CONTEXT_JSON": json.dumps(context), "CDK_VALIDATION": "false", "JSII_NODE": str(node())}


def _run(script: Path, cwd: Path, outdir: Path) -> float:
    """Seconds of one synthesis in a fresh process."""
    shutil.rmtree(outdir, ignore_errors=True)
    started = time.perf_counter()
    subprocess.run([sys.executable, str(script)], cwd=cwd, env=_environment(outdir), check=True, capture_output=True)
    return time.perf_counter() - started


def _synth(tell: Callable[[str], object]) -> Figure:
    """The reference app against an L1 app that gets the same asset, the functions' code zipped, ready made.

    What it would be if the L1 app's code lay in a folder, as ``Code.from_asset`` takes it, stands beside it and decides nothing.
    """
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        ours, theirs = folder / "ours", folder / "l1"
        _run(_PROJECT / "app.py", _PROJECT, ours)
        (asset,) = ours.glob("asset.*.zip")
        zipped = Path(shutil.copy(asset, folder / "code.zip"))
        shutil.unpack_archive(zipped, folder / "code")
        baselines = {folder / "code": folder / "l1_app.py", zipped: folder / "l1_app_zipped.py"}
        for code, program in baselines.items():
            l1_app.main(ours, code, program)
            _run(program, folder, theirs)
            count = _check_same(ours, theirs)
        ratios: dict[Path, list[float]] = {code: [] for code in baselines}
        for number in range(_SYNTH_RUNS):
            tell(f"synthesis, run {number + 1} of {_SYNTH_RUNS}")
            seconds = _run(_PROJECT / "app.py", _PROJECT, ours)
            for code, program in baselines.items():
                ratios[code].append(seconds / _run(program, folder, theirs))
    found = ratios[zipped]
    return Figure(
        "synth_ratio",
        statistics.median(found),
        "ratio",
        _SYNTH_BOUND,
        "an app of typed L1 constructs with the same resources and the same asset",
        {
            "runs": _SYNTH_RUNS,
            "resources": count,
            "validation": "off",
            "processes": "fresh, interleaved",
            "least": min(found),
            "most": max(found),
            "with_code_in_a_folder": statistics.median(ratios[folder / "code"]),
        },
    )


def _check_same(ours: Path, theirs: Path) -> int:
    """Both assemblies hold the same resources; how many."""
    resources = [
        {
            (path.name, name): (resource["Type"], resource.get("Properties", {}))
            for path in sorted(folder.glob("*.template.json"))
            for name, resource in json.loads(path.read_text("utf-8"))["Resources"].items()
        }
        for folder in (ours, theirs)
    ]
    different = [key for key in resources[0] | resources[1] if resources[0].get(key) != resources[1].get(key)]
    if different:
        raise RuntimeError(f"the baseline does not yield the same resources: {different[:5]}")
    return len(resources[0])


def _import(tell: Callable[[str], object]) -> Figure:
    source = (_PROJECT / "mme_constructs" / "artifact_store.py").read_text("utf-8")
    modules = ", ".join(sorted(set(re.findall(r"^from aws_cdk import (aws_\w+)", source, re.MULTILINE))))
    tell(f"import, {_IMPORT_RUNS} runs")
    script = _IMPORT.format(modules=modules, name="ModelArtifactStore")
    environment = {**os.environ, "JSII_NODE": str(node())}
    values = [
        float(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment).stdout)
        for _ in range(_IMPORT_RUNS)
    ]
    return Figure(
        "import_added_ms",
        statistics.median(values),
        "ms",
        _IMPORT_BOUND_MS,
        "the same aws_cdk modules, imported before",
        {"runs": _IMPORT_RUNS, "construct": "ModelArtifactStore", "least": min(values), "most": max(values)},
    )
