"""The real CDK CLI, run as a real principal against the running local cloud."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mme_cli.errors import CommandError
from mme_cli.local_state import LocalState
from mme_local.addresses import local_api_url

__all__ = ["deploy", "destroy", "run_cdk"]

_TAIL_LINES = 40
_API_URL = "ApiUrl"


def _environment(state: LocalState) -> dict[str, str]:
    """The environment of a CDK CLI that reaches the local cloud as its admin user and runs apps with this Python."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), state.environment["PATH"]])
    return {**inherited, **state.environment, "PATH": path}


def run_cdk(state: LocalState, project: Path, arguments: Sequence[str], tell: Callable[[str], None]) -> None:
    """Run ``cdk`` in ``project``; ``tell`` is called with each line it prints.

    Raises:
        CommandError: it failed; the text holds the end of what it printed.
    """
    from mme_local.toolchain import cdk_cli

    if not (project / "cdk.json").is_file():
        raise CommandError(f"folder {str(project)!r} holds no cdk.json: run this in the folder of a CDK app")
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with subprocess.Popen(
        [*cdk_cli(), *arguments],
        cwd=project,
        env=_environment(state),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                tail.append(line.rstrip())
                tell(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        shown = "\n".join(tail)
        raise CommandError(f"'cdk {' '.join(arguments)}' failed with status {process.returncode}; the end of its output:\n{shown}")


def deploy(state: LocalState, project: Path, tell: Callable[[str], None], *options: str) -> LocalState:
    """Bootstrap and deploy every stack of ``project``; returns the state with the stacks' outputs; raises `CommandError`."""
    with TemporaryDirectory(prefix="mme-cdk-") as scratch:
        outputs_file = Path(scratch) / "outputs.json"
        run_cdk(state, project, ["bootstrap", f"aws://{state.account}/{state.region}", *options], tell)
        arguments = ["deploy", "--all", "--require-approval", "never", "--progress", "events", "-c", "environment=local"]
        run_cdk(state, project, [*arguments, "--outputs-file", str(outputs_file), *options], tell)
        stacks: Mapping[str, Mapping[str, str]] = json.loads(outputs_file.read_text("utf-8")) if outputs_file.exists() else {}
    outputs = {name: value for stack in stacks.values() for name, value in stack.items()}
    if _API_URL in outputs:
        try:
            outputs[_API_URL] = local_api_url(outputs[_API_URL], state.endpoint_url)
        except ValueError as error:
            raise CommandError(f"output {_API_URL} of the deployed stacks cannot be reached locally: {error}") from None
    return replace(state, outputs=outputs)


def destroy(state: LocalState, project: Path, tell: Callable[[str], None], *options: str) -> LocalState:
    """Destroy every stack of ``project``; returns the state without outputs; raises `CommandError`."""
    run_cdk(state, project, ["destroy", "--all", "--force", "-c", "environment=local", *options], tell)
    return replace(state, outputs={})
