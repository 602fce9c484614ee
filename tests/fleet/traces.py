"""The real traces, which are not part of the project: in the folder that MME_TRACES names, else beside the checkout."""

import os
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("MME_TRACES") or Path(__file__).resolve().parents[3] / "shared" / "traces")

needs_traces = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"there are no traces in {FOLDER}: set MME_TRACES to their folder")

CAPACITIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Shares of all bytes, and below the hit ratios of exact LRU that another implementation found (README beside the traces)."""
WHOLE_HIT_RATIOS = (0.498, 0.704, 0.858, 0.945, 0.993, 0.999, 1.0)
TAIL_HIT_RATIOS = (0.379, 0.532, 0.766, 0.897, 0.962, 0.981, 0.993)
HALF_A_POINT = 0.005
