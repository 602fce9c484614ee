"""The example of the simulator runs, and shows what the docs say of it."""

import re
import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "simulation" / "simulate.py"


def test_the_example_shows_that_random_routing_misses_most(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    found = re.findall(r"^(.+?) +hit ratio (\d\.\d+)", capsys.readouterr().out, re.MULTILINE)
    assert [name for name, _ in found] == ["sticky with spill", "one home", "least outstanding", "random"]
    ratios = {name: float(ratio) for name, ratio in found}
    assert ratios["random"] < min(ratios["sticky with spill"], ratios["one home"], ratios["least outstanding"])
