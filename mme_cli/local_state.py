"""``.mme/local.json``: what `mme up` tells the other commands (and the README's curl lines) about the running local cloud."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mme_cli.errors import CommandError
from mme_local import Credentials

__all__ = ["DEFAULT_FOLDER", "LocalState"]

DEFAULT_FOLDER = Path(".mme")
_FILE = "local.json"


@dataclass(frozen=True, slots=True)
class LocalState:
    """The running local cloud.

    Attributes:
        endpoint_url: the gateway, on 127.0.0.1.
        region: its AWS region.
        account: its AWS account id.
        pid: process id of `mme up`.
        admin: an IAM user that may deploy; never the root key.
        environment: variables with which the AWS CLI, boto3 and ``cdk`` reach the cloud as that user.
        outputs: outputs of the deployed stacks by name; ``ApiUrl`` is the local address.
    """

    endpoint_url: str
    region: str
    account: str
    pid: int
    admin: Credentials
    environment: Mapping[str, str]
    outputs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path = DEFAULT_FOLDER) -> LocalState:
        """Read the state; raises `CommandError` when no local cloud runs here."""
        path = folder / _FILE
        try:
            document = json.loads(path.read_text("utf-8"))
            state = cls(**{**document, "admin": Credentials(**document["admin"])})
        except FileNotFoundError:
            raise CommandError(f"no local cloud runs here ({path} is missing): start one with 'mme up' in this folder") from None
        except (ValueError, TypeError, KeyError):
            raise CommandError(f"{path} is not readable: stop 'mme up', delete the file and start again") from None
        if not _alive(state.pid):
            raise CommandError(f"the local cloud of {path} has ended (process {state.pid}): start it again with 'mme up'")
        return state

    def write(self, folder: Path = DEFAULT_FOLDER) -> Path:
        """Write the state, readable by its owner only; returns the file."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / _FILE
        scratch = folder / f".{_FILE}.{os.getpid()}"
        scratch.touch(mode=0o600)
        scratch.write_text(json.dumps(asdict(self), indent=2) + "\n", "utf-8")
        scratch.replace(path)
        return path

    def remove(self, folder: Path = DEFAULT_FOLDER) -> None:
        """Remove the file, and the folder when nothing else is in it."""
        (folder / _FILE).unlink(missing_ok=True)
        try:
            folder.rmdir()
        except OSError:
            return  # other files of the user's are in it, or it is gone already

    @property
    def client_variables(self) -> dict[str, str]:
        """All AWS settings of `environment`, for any client. An empty token is among them: one of another session must not stay."""
        settings = {name: value for name, value in self.environment.items() if name.startswith("AWS_")}
        return {"AWS_SESSION_TOKEN": "", **settings}

    def output(self, name: str) -> str:
        """A stack output; raises `CommandError` when the stacks are not deployed."""
        if name not in self.outputs:
            raise CommandError(f"the deployed stacks have no output {name!r}: run 'mme deploy' first")
        return self.outputs[name]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
