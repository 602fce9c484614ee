"""What a bulk onboarding has done so far: a small file beside the manifest, so that an interrupted run goes on where it was.

The API alone keeps a model from being onboarded twice: the same artifact is the same version. The journal saves calls, and it
remembers what was rejected, which the API would take again.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from mme_cli.errors import CommandError, UsageError

__all__ = ["Entry", "Journal", "journal_of", "only_run"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one model.

    Attributes:
        sha256: digest of the artifact that it is about.
        version: the version's id.
        state: the version's state when it was decided; ``None`` while it is not.
        reasons: why it was rejected, as the API says it.
        warnings: what the API warns of.
    """

    sha256: str
    version: str
    state: str | None = None
    reasons: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[Mapping[str, Any], ...] = ()


def journal_of(manifest: Path) -> Path:
    """Where the journal of a manifest is."""
    return manifest.with_name(f"{manifest.name}.journal")


class Journal:
    """The journal of one run; may be used by several threads.

    Args:
        path: the file; it need not be there.

    Raises:
        UsageError: the file is not a journal.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._entries: dict[str, Entry] = {}
        self._changed = False
        try:
            document = json.loads(path.read_text("utf-8"))
            if document["format"] != _FORMAT:
                raise ValueError(document["format"])
            for name, entry in document["models"].items():
                self._entries[name] = Entry(
                    **{**entry, "reasons": tuple(entry.get("reasons", ())), "warnings": tuple(entry.get("warnings", ()))}
                )
        except FileNotFoundError:
            return
        except (ValueError, TypeError, KeyError, AttributeError):
            raise UsageError(f"{str(path)!r} is no journal of this command: move it away to begin anew") from None

    def get(self, name: str, sha256: str) -> Entry | None:
        """What is known of the model ``tenant/model`` with this artifact."""
        with self._lock:
            entry = self._entries.get(name)
        return entry if entry is not None and entry.sha256 == sha256 else None

    def put(self, name: str, entry: Entry) -> None:
        """Remember it; `save` writes it down."""
        with self._lock:
            self._entries[name] = entry
            self._changed = True

    def save(self) -> None:
        """Write down what has changed; the file is the old one or the new one, whenever this process ends.

        Raises:
            CommandError: it cannot be written.
        """
        with self._lock:
            if not self._changed:
                return
            models = {name: {key: value for key, value in asdict(entry).items() if value} for name, entry in self._entries.items()}
            scratch = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            try:
                with scratch.open("w", encoding="utf-8") as file:
                    json.dump({"format": _FORMAT, "models": models}, file)
                    file.flush()
                    os.fsync(file.fileno())
                scratch.replace(self._path)
            except OSError as error:
                raise CommandError(f"the journal {str(self._path)!r} cannot be written: {error.strerror}") from None
            self._changed = False

    def remove(self) -> None:
        """Everything is decided and reported: the next run begins anew."""
        with self._lock:
            self._path.unlink(missing_ok=True)
            self._changed = False


@contextmanager
def only_run(manifest: Path) -> Iterator[None]:
    """Let no other run have the manifest meanwhile; raises `UsageError` if one has."""
    with manifest.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"another run is under way with manifest {str(manifest)!r}: wait for it, or end it") from None
        yield
