"""What was measured already, in a file that a run that was cut off goes on with: results of other code are left out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import mme_fleet
import mme_tenancy
from benchmarks.warm_up.workload import traces_folder

__all__ = ["Results"]

_HERE = Path(__file__).parent
_FLEET = Path(mme_fleet.__file__).parent
_ENGINE = (Path(mme_tenancy.__file__).parent / "warm_up", Path(__file__).parents[2] / "mme_cli" / "simulation")
_MEASURING = ("before.py", "cells.py", "knowledge.py", "variants.py", "workload.py")
_ENGINE_MODULES = ("__init__.py", "plan.py", "run.py", "settings.py", "warm_up.py")


class Results:
    """Outcomes by key, on disk.

    Args:
        path: the file, a JSON document a line.
        fresh: forget what is there.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self._path = path
        measuring = _digest([*(_HERE / name for name in _MEASURING), *sorted(_FLEET.rglob("*.py"))])
        engine = _digest(folder / name for folder in _ENGINE for name in _ENGINE_MODULES if (folder / name).exists())
        self._codes = {False: measuring, True: f"{measuring} {engine}"}
        self._known: dict[str, Any] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        if path.exists():
            text = path.read_text("utf-8")
            for line in text.splitlines():
                self._take(line)
            if not text.endswith("\n"):
                path.write_text(text + "\n", "utf-8")

    def _take(self, line: str) -> None:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:  # the last line of a run that was killed
            return
        if record["code"] in self._codes.values():
            self._known[f"{record['code']} {record['key']}"] = record["outcome"]

    def get(self, key: str, *, engine: bool) -> Any | None:
        """The outcome, if this code has measured it.

        Args:
            key: of the run.
            engine: whether it depends on the warm-up's code.
        """
        return self._known.get(f"{self._codes[engine]} {key}")

    def put(self, outcomes: Mapping[tuple[str, bool], Any]) -> None:
        """Add outcomes by key and whether they depend on the warm-up's code, and write them down."""
        with self._path.open("a", encoding="utf-8") as file:
            for (key, engine), outcome in outcomes.items():
                self._known[f"{self._codes[engine]} {key}"] = outcome
                file.write(json.dumps({"code": self._codes[engine], "key": key, "outcome": outcome}) + "\n")


def _digest(files: Iterable[Path]) -> str:
    digest = sha256(f"{np.__version__} {traces_folder()}".encode())
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
