"""Whole small implementations of the protocols, for tests of ours and of users: no AWS, no waiting, everything visible."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from mme_facts.grammar import ArtifactName
from mme_tenancy.artifacts import StoredPart, Upload, UploadedObject, UploadGoneError, UploadPart
from mme_tenancy.clock import Clock, timestamp
from mme_tenancy.errors import WriteConflictError
from mme_tenancy.idempotency import IdempotencyKey, IdempotencyRecord
from mme_tenancy.invocation import InvocationRequest, ModelReply, ModelStream
from mme_tenancy.registry import Change, Key, Page, Record
from mme_tenancy.retries import RuntimeFault
from mme_tenancy.routes import Model, Target
from mme_tenancy.tenants import Quotas, Tenant, Usage
from mme_tenancy.uploads import slices
from mme_tenancy.usage import refusal, usage_changes
from mme_tenancy.versions import DigestClaim, Multipart, Version

__all__ = ["FakeClock", "MemoryArtifacts", "MemoryIdempotencyStore", "MemoryRegistry", "MemorySigner", "ScriptedRuntime", "booster"]

_CHUNK_BYTES = 1000


def booster(note: str = "") -> bytes:
    """The smallest file that admission takes as an XGBoost booster, though XGBoost itself does not; ``note`` makes it another one."""
    learner = {
        "attributes": {"note": note},
        "gradient_booster": {"model": {"trees": []}, "name": "gbtree"},
        "learner_model_param": {},
        "objective": {"name": "reg:squarederror"},
    }
    return json.dumps({"learner": learner, "version": [3, 2, 0]}).encode()


@dataclass
class FakeClock:
    """A clock that only moves when it is told to sleep.

    Attributes:
        now: seconds since 1970.
        slept: every sleep so far, in seconds.
        ahead: how far `time` is ahead of the machine's clock, as under a local cloud's scaled clock.
    """

    now: float = 1_796_000_000.0
    slept: list[float] = field(default_factory=list)
    ahead: float = 0.0

    def time(self) -> float:
        """Seconds since 1970."""
        return self.now + self.ahead

    def wall(self) -> float:
        """The machine's clock."""
        return self.now

    def monotonic(self) -> float:
        """The machine's clock, too."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Move on at once."""
        self.slept.append(seconds)
        self.now += seconds


class MemoryRegistry:
    """`mme_tenancy.registry.Registry` in a dictionary.

    Attributes:
        records: all records.
        usages: what each tenant uses.
    """

    def __init__(self) -> None:
        self.records: dict[tuple[object, ...], Record] = {}
        self.usages: dict[str, Usage] = {}

    def read(self, *keys: Key[Any]) -> tuple[Any, ...]:
        """Several records, in the order of ``keys``; ``None`` for what is not there."""
        return tuple(self._READS[key.kind](self, key) for key in keys)

    def tenant(self, tenant: str) -> Tenant | None:
        """The tenant's record, if there is one."""
        record = self.records.get(("tenant", tenant))
        assert record is None or isinstance(record, Tenant)
        return record

    def model(self, tenant: str, model: str) -> Model | None:
        """The model's record, if there is one."""
        record = self.records.get(("model", tenant, model))
        assert record is None or isinstance(record, Model)
        return record

    def version(self, tenant: str, model: str, number: int) -> Version | None:
        """The version's record, if there is one."""
        record = self.records.get(("version", tenant, model, number))
        assert record is None or isinstance(record, Version)
        return record

    def claim(self, tenant: str, model: str, sha256: str) -> DigestClaim | None:
        """Which version of the model holds the artifact with this digest, if one does."""
        record = self.records.get(("claim", tenant, model, sha256))
        assert record is None or isinstance(record, DigestClaim)
        return record

    def models(self, tenant: str, *, limit: int, after: str | None = None) -> Page[Model]:
        """At most ``limit`` models by id, those behind the id ``after``."""
        found = [record for record in self.records.values() if isinstance(record, Model) and record.tenant == tenant]
        rest = sorted((record for record in found if after is None or record.model > after), key=lambda record: record.model)
        return Page(rest[:limit], more=len(rest) > limit)

    def versions(self, tenant: str, model: str, *, limit: int, before: int | None = None) -> Page[Version]:
        """At most ``limit`` versions, newest first, those with a number below ``before``."""
        found = [
            record for record in self.records.values() if isinstance(record, Version) and (record.tenant, record.model) == (tenant, model)
        ]
        rest = sorted((record for record in found if before is None or record.number < before), key=lambda record: -record.number)
        return Page(rest[:limit], more=len(rest) > limit)

    def write(self, *changes: Change, quotas: Quotas | None = None) -> None:
        """Write all changes or none, and what they do to the tenant's usage with them; raises what `Registry.write` says."""
        for change in changes:
            stored = self.records.get(_identity(change.after))
            if (stored.rev if stored else None) != (change.before.rev if change.before else None):
                raise WriteConflictError("someone else changed the resource at the same time: try again")
        usage = usage_changes(changes)
        for wanted in usage:
            tenant = self.tenant(wanted.tenant)
            closed = tenant is not None and tenant.deleted_at is not None
            if error := refusal(wanted, self.usages.get(wanted.tenant, Usage(wanted.tenant)), quotas, closed=closed):
                raise error
        for wanted in usage:
            used = self.usages.get(wanted.tenant, Usage(wanted.tenant))
            self.usages[wanted.tenant] = Usage(wanted.tenant, used.models + wanted.models, used.stored_bytes + wanted.stored_bytes)
        for change in changes:
            assert change.before is None or change.after.rev == change.before.rev + 1
            self.records[_identity(change.after)] = change.after

    _READS: ClassVar[Mapping[type, Callable[[MemoryRegistry, Key[Any]], object]]] = {
        Tenant: lambda self, key: self.tenant(key.tenant),
        Usage: lambda self, key: self.usages.get(key.tenant),
        Model: lambda self, key: self.model(key.tenant, key.model),
        Version: lambda self, key: self.version(key.tenant, key.model, int(key.part)),
        DigestClaim: lambda self, key: self.claim(key.tenant, key.model, str(key.part)),
    }


def _identity(record: Record) -> tuple[object, ...]:
    match record:
        case Tenant():
            return ("tenant", record.tenant)
        case Model():
            return ("model", record.tenant, record.model)
        case Version():
            return ("version", record.tenant, record.model, record.number)
        case DigestClaim():
            return ("claim", record.tenant, record.model, record.sha256)


class MemoryIdempotencyStore:
    """`mme_tenancy.idempotency.IdempotencyStore` in a dictionary."""

    def __init__(self) -> None:
        self.records: dict[IdempotencyKey, IdempotencyRecord] = {}

    def put(self, key: IdempotencyKey, before: IdempotencyRecord | None, after: IdempotencyRecord) -> IdempotencyRecord | None:
        """Store ``after`` if the stored record is ``before``; returns the stored record if it is another one, else ``None``."""
        stored = self.records.get(key)
        if stored != before:
            return stored or before
        self.records[key] = after
        return None

    def remove(self, key: IdempotencyKey, record: IdempotencyRecord) -> None:
        """Forget ``record`` if it is still the stored one."""
        if self.records.get(key) == record:
            del self.records[key]


class MemorySigner:
    """`mme_tenancy.artifacts.UploadSigner` in dictionaries, with addresses that lead nowhere.

    Args:
        clock: time.
        artifacts: where completed uploads go. Default: a store of its own.

    Attributes:
        multiparts: upload id -> key and parts by number, of the uploads in parts that are under way.
        artifacts: where completed uploads go.
    """

    def __init__(self, clock: Clock, artifacts: MemoryArtifacts | None = None) -> None:
        self._clock = clock
        self._begun = 0
        self.multiparts: dict[str, tuple[str, dict[int, bytes]]] = {}
        self.artifacts = artifacts or MemoryArtifacts()

    def sign(self, name: ArtifactName, *, sha256: str, size_bytes: int, seconds: int) -> Upload:
        """An upload of exactly this artifact, once, valid for ``seconds``."""
        headers = {"Content-Length": str(size_bytes), "x-amz-checksum-sha256": sha256}
        return Upload("PUT", f"https://uploads.invalid/{name.incoming_key}", headers, timestamp(self._clock.time() + seconds))

    def sign_parts(
        self, name: ArtifactName, multipart: Multipart, *, size_bytes: int, uploaded: Mapping[int, StoredPart], seconds: int
    ) -> Upload:
        """An upload in parts, valid for ``seconds``; ``uploaded`` is what `parts` found."""
        parts = []
        for part in slices(size_bytes, multipart.part_bytes):
            url = f"https://uploads.invalid/{name.incoming_key}?uploadId={multipart.upload_id}&partNumber={part.number}"
            there = uploaded.get(part.number)
            headers = {"Content-Length": str(part.size_bytes)}
            done = there is not None and there.size_bytes == part.size_bytes
            parts.append(UploadPart(part.number, part.offset, part.size_bytes, url, headers, uploaded=done))
        return Upload("PUT", None, {}, timestamp(self._clock.time() + seconds), tuple(parts))

    def begin(self, name: ArtifactName) -> str:
        """Begin an upload in parts; its id."""
        self._begun += 1
        self.multiparts[f"upload-{self._begun}"] = (name.incoming_key, {})
        return f"upload-{self._begun}"

    def abort(self, name: ArtifactName, upload_id: str) -> None:
        """Give an upload in parts up; does nothing if it has ended."""
        if self._parts(name, upload_id) is not None:
            del self.multiparts[upload_id]

    def put_part(self, upload_id: str, number: int, body: bytes) -> None:
        """Upload a part, as a tenant does by its address."""
        self.multiparts[upload_id][1][number] = body

    def parts(self, name: ArtifactName, upload_id: str) -> Mapping[int, StoredPart] | None:
        """The parts that are there, by number; ``None`` if there is no such upload, or not any more."""
        parts = self._parts(name, upload_id)
        return None if parts is None else {number: StoredPart(number, _etag(body), len(body)) for number, body in parts.items()}

    def complete(self, name: ArtifactName, upload_id: str, parts: Sequence[StoredPart]) -> UploadedObject:
        """Put parts together to an object that must be new; raises `UploadGoneError` or `WriteConflictError`."""
        stored = self._parts(name, upload_id)
        if stored is None or name.incoming_key in self.artifacts.incoming:
            raise UploadGoneError(name.incoming_key)
        if any(_etag(stored.get(part.number, b"")) != part.etag for part in parts):
            raise WriteConflictError("a part of the upload changed at the same time: try again")
        del self.multiparts[upload_id]
        return self.artifacts.put(name, b"".join(stored[part.number] for part in parts))

    def uploaded(self, name: ArtifactName) -> UploadedObject | None:
        """The uploaded object, if it is there."""
        body = self.artifacts.incoming.get(name.incoming_key)
        return None if body is None else UploadedObject(name, _etag(body))

    def _parts(self, name: ArtifactName, upload_id: str) -> dict[int, bytes] | None:
        key, parts = self.multiparts.get(upload_id, ("", {}))
        return parts if key == name.incoming_key else None


def _etag(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class MemoryArtifacts:
    """`mme_tenancy.artifacts.ArtifactStore` in two dictionaries.

    Attributes:
        incoming: key -> uploaded bytes.
        admitted: key -> admitted bytes.
    """

    def __init__(self) -> None:
        self.incoming: dict[str, bytes] = {}
        self.admitted: dict[str, bytes] = {}

    def put(self, name: ArtifactName, body: bytes) -> UploadedObject:
        """Upload: the object as an event would describe it."""
        self.incoming[name.incoming_key] = body
        return UploadedObject(name, _etag(body))

    @contextmanager
    def read(self, upload: UploadedObject) -> Iterator[Iterator[bytes]]:
        """Stream the upload in chunks; raises `UploadGoneError`."""
        body = self._body(upload)
        yield (body[start : start + _CHUNK_BYTES] for start in range(0, len(body), _CHUNK_BYTES))

    def admit(self, upload: UploadedObject, size_bytes: int) -> None:
        """Copy the upload, of ``size_bytes``, to its immutable key; does nothing if it is there. Raises `UploadGoneError`."""
        self.admitted.setdefault(upload.name.artifact_key(), self._body(upload)[:size_bytes])

    def etag(self, key: str) -> str:
        """The entity tag of an upload."""
        return hashlib.sha256(self.incoming[key]).hexdigest()

    def discard(self, name: ArtifactName) -> None:
        """Delete the admitted artifact of a rejected version; does nothing if there is none."""
        self.admitted.pop(name.artifact_key(), None)

    def _body(self, upload: UploadedObject) -> bytes:
        body = self.incoming.get(upload.name.incoming_key)
        if body is None or _etag(body) != upload.etag:
            raise UploadGoneError(upload.name.incoming_key)
        return body


class ScriptedRuntime:
    """`mme_tenancy.invocation.Runtime` that answers by a script, one entry an attempt; the last entry goes on for ever.

    Args:
        *script: replies and faults.
        clock: moved on by ``attempt_seconds`` at each attempt, if given.
        attempt_seconds: how long an attempt takes.

    Attributes:
        calls: every attempt: target, request and timeout in seconds.
    """

    def __init__(self, *script: ModelReply | RuntimeFault, clock: Clock | None = None, attempt_seconds: float = 0.0) -> None:
        self._script = list(script)
        self._attempt: Callable[[], None] = (lambda: clock.sleep(attempt_seconds)) if clock else (lambda: None)
        self.calls: list[tuple[Target, InvocationRequest, float]] = []

    def stream(self, target: Target, request: InvocationRequest, timeout_seconds: float) -> ModelStream:
        """The next entry of the script, which must be a stream."""
        reply = self.invoke(target, request, timeout_seconds)
        assert isinstance(reply, ModelStream), "the script has a whole answer where a stream was asked for"
        return reply

    def invoke(self, target: Target, request: InvocationRequest, timeout_seconds: float) -> ModelReply:
        """The next entry of the script."""
        self.calls.append((target, request, timeout_seconds))
        self._attempt()
        entry = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if isinstance(entry, RuntimeFault):
            raise entry
        return entry
