"""The documentation builds: every link, snippet and reference in it holds."""

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]


def test_the_documentation_builds_without_a_warning(tmp_path):
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "index.html").is_file()


def test_each_decision_has_a_number_of_its_own_that_its_heading_repeats():
    records = sorted((PROJECT / "docs" / "decisions").glob("*.md"))
    assert [record.name[:4] for record in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    for number, record in enumerate(records, 1):
        assert record.read_text("utf-8").startswith(f"# {number}. "), record.name
