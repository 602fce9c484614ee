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
