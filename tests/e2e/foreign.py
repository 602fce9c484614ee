"""Environments of clients that cannot live in ours: built from hashed locks with uv, once, below ``build/environments``."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.support import PROJECT

LOCKS = PROJECT / "tests" / "e2e" / "environments"
CLIENTS = PROJECT / "tests" / "e2e" / "clients"
BUILT = PROJECT / "build" / "environments"
SECONDS = 600


def environment(name):
    """The folder of the environment of ``environments/<name>.lock`` for this Python; builds it unless it is there."""
    lock = LOCKS / f"{name}.lock"
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = BUILT / f"{name}-{digest}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / f"{name}.building").open("w") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            uv("venv", "--python", sys.executable, folder)
            uv("pip", "install", "--python", folder / "bin" / "python", "--require-hashes", "-r", lock)
            (folder / "complete").touch()
    return folder


def uv(*arguments):
    tool = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run([tool, "--quiet", *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr


def run_client(python, script, variables, given):
    """Run a script of ``clients/`` with a JSON document as its input; the JSON document that it writes to the file of its argument."""
    home = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        done = subprocess.run(
            [python, CLIENTS / script, answer],
            input=json.dumps(given),
            env={**home, **variables},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return json.loads(answer.read_text())
