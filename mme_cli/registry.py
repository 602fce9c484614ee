"""``mme registry``: back up, restore, reconcile and migrate the registry. Nothing is written unless that is asked for."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mme_cli.errors import CommandError, UsageError
from mme_cli.sessions import Asked
from mme_facts.grammar import MODELS_PREFIX

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from mme_tenancy.aws.maintenance import Copied, DynamoMaintenance
    from mme_tenancy.reconcile import Difference, Stock

__all__ = [
    "Migrated",
    "Reconciled",
    "RegistryTarget",
    "Restored",
    "export_registry",
    "import_registry",
    "migrate",
    "reconcile",
    "registry_target",
    "restore",
]

_TABLE_OUTPUT, _BUCKET_OUTPUT = "TableName", "BucketName"
_POLL_SECONDS = 2.0
_RESTORE_MINUTES = 120
_CHANGES_AT_ONCE = 90
"""A transaction takes 100 items; the usage is one of them."""
_USAGE_ATTEMPTS = 5
_PAGE = 1000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RegistryTarget:
    """The registry and its bucket.

    Attributes:
        asked: where they are.
        table_name: the table.
        bucket_name: the bucket; empty where only the table is needed.
        models_prefix: the MME prefix.
    """

    asked: Asked
    table_name: str
    bucket_name: str
    models_prefix: str

    def maintenance(self) -> DynamoMaintenance:
        """The table as maintenance sees it."""
        from mme_tenancy.aws.maintenance import DynamoMaintenance

        return DynamoMaintenance(self.asked.client("dynamodb"), self.table_name)


def registry_target(asked: Asked, *, table: str | None, bucket: str | None, models_prefix: str = MODELS_PREFIX) -> RegistryTarget:
    """The table and the bucket: those given, else those of the stacks that are deployed into the local cloud.

    Raises:
        UsageError: a name is not given and not known.
    """

    def name(given: str | None, output: str, option: str) -> str:
        if given is not None:
            return given
        if asked.state is None:
            raise UsageError(f"{asked.where} does not tell the {option}: pass --{option}, the storage stack's output {output}")
        return asked.state.output(output)

    return RegistryTarget(asked, name(table, _TABLE_OUTPUT, "table"), name(bucket, _BUCKET_OUTPUT, "bucket"), models_prefix)


def _answered(where: str, work: Callable[[], _T]) -> _T:
    """Do work that asks AWS; its errors become one sentence."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return work()
    except (ClientError, BotoCoreError) as error:
        raise CommandError(f"{where} refuses or does not answer: {error}") from error


# --- reconcile


@dataclass
class Reconciled:
    """What was wrong, and what became of it.

    Attributes:
        tenants: how many tenants were looked at.
        found: what is wrong.
        repaired: how many of these were repaired.
        deleted: artifacts that were deleted.
        left: what could not be repaired, and why.
        foreign: objects below the prefix whose keys are none of ours.
        old_items: whether there are items of an older schema.
    """

    tenants: int = 0
    found: list[Difference] = field(default_factory=list)
    repaired: int = 0
    deleted: int = 0
    left: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong any more."""
        return self.repaired + self.deleted == len(self.found) and not self.left

    def document(self) -> dict[str, object]:
        """One JSON document."""
        counts: dict[str, int] = {}
        for difference in self.found:
            counts[difference.kind.value] = counts.get(difference.kind.value, 0) + 1
        return {
            "tenants": self.tenants,
            "counts": counts,
            "differences": [difference.document() for difference in self.found],
            "repaired": self.repaired,
            "deleted": self.deleted,
            "left": self.left,
            "foreign": self.foreign,
            "clean": self.clean,
        }


def reconcile(target: RegistryTarget, *, apply: bool, delete_objects: bool, tenant: str | None = None) -> Reconciled:
    """Compare the registry with the bucket, tenant by tenant, and repair what differs if that is asked for.

    A difference counts if it is there twice: records and objects are read again before anything is told or changed, since a platform that
    serves changes both. Repairs are written on the condition of what was read.

    Args:
        target: table and bucket.
        apply: repair records, claims, counters and usage.
        delete_objects: with ``apply``: delete artifacts that no record points to, too.
        tenant: only this one.
    """
    if delete_objects and not apply:
        raise UsageError("--delete-objects deletes for good: pass --apply too, or leave it out to see what is wrong")
    return _answered(target.asked.where, lambda: _Reconciler(target).run(apply=apply, delete_objects=delete_objects, tenant=tenant))


class _Reconciler:
    def __init__(self, target: RegistryTarget) -> None:
        from mme_tenancy.aws.dynamodb import DynamoRegistry
        from mme_tenancy.aws.sweeping import S3SweepObjects

        self._target = target
        self._dynamodb: DynamoDBClient = target.asked.client("dynamodb")
        self._s3: Any = target.asked.client("s3")
        self._table = target.maintenance()
        self._registry = DynamoRegistry(self._dynamodb, target.table_name)
        self._objects = S3SweepObjects(self._s3, target.bucket_name, target.models_prefix)
        self.done = Reconciled()

    def run(self, *, apply: bool, delete_objects: bool, tenant: str | None) -> Reconciled:
        for each in [tenant] if tenant is not None else self._tenants():
            self.done.tenants += 1
            found = self._confirmed(each)
            self.done.found += found
            if apply:
                self._repair(each, found)
            if delete_objects:
                self._delete(found)
        return self.done

    def _tenants(self) -> list[str]:
        """Everybody who has an item or an artifact."""
        from mme_facts.grammar import GrammarError, check_tenant_id

        known = set(self._table.tenants())
        prefix = self._target.models_prefix
        for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._target.bucket_name, Prefix=prefix, Delimiter="/"):
            self.done.foreign += [item["Key"] for item in page.get("Contents", [])]
            for folder in page.get("CommonPrefixes", []):
                name = folder["Prefix"].removeprefix(prefix).removesuffix("/")
                try:
                    known.add(check_tenant_id(name))
                except GrammarError:
                    self.done.foreign.append(folder["Prefix"])
        return sorted(known)

    def _stock(self, tenant: str) -> tuple[Stock, int | None]:
        from mme_facts.grammar import ArtifactName, GrammarError
        from mme_tenancy.reconcile import Stock

        # Records first: what they say is stored was there before they were read.
        partition = self._table.partition(tenant)
        names = set()
        prefix = self._target.models_prefix
        for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._target.bucket_name, Prefix=f"{prefix}{tenant}/"):
            for item in page.get("Contents", []):
                try:
                    names.add(ArtifactName.parse(item["Key"].removeprefix(prefix)))
                except GrammarError:
                    if item["Key"] not in self.done.foreign:
                        self.done.foreign.append(item["Key"])
        return Stock(tenant, partition.records, partition.usage, frozenset(names)), partition.usage_rev

    def _confirmed(self, tenant: str) -> list[Difference]:
        from mme_tenancy.reconcile import differences

        first = {(each.kind, each.subject) for each in differences(self._stock(tenant)[0], _now())}
        if not first:
            return []
        return [each for each in differences(self._stock(tenant)[0], _now()) if (each.kind, each.subject) in first]

    def _repair(self, tenant: str, found: Sequence[Difference]) -> None:
        from mme_tenancy.errors import TenancyError
        from mme_tenancy.reconcile import Kind

        failed: set[str] = set()
        for difference in found:
            model = difference.subject.split("/")[0]
            try:
                for start in range(0, len(difference.changes), _CHANGES_AT_ONCE):
                    self._registry.write(*difference.changes[start : start + _CHANGES_AT_ONCE])
            except TenancyError as error:
                failed.add(model)
                self.done.left.append(f"{difference.kind} of {tenant}/{difference.subject}: {error}")
        repaired = [
            each
            for each in found
            if each.artifact is None and each.kind is not Kind.USAGE_WRONG and each.subject.split("/")[0] not in failed
        ]
        self.done.repaired += len(repaired)
        if any(each.kind is Kind.USAGE_WRONG for each in found):
            self._repair_usage(tenant)

    def _repair_usage(self, tenant: str) -> None:
        from mme_tenancy.usage import usage_of

        for _ in range(_USAGE_ATTEMPTS):
            stock, rev = self._stock(tenant)
            if self._table.set_usage(usage_of(tenant, stock.records), rev):
                self.done.repaired += 1
                return
        self.done.left.append(f"usage-wrong of {tenant}: it changed again and again; run the command again")

    def _delete(self, found: Sequence[Difference]) -> None:
        keys = [each.artifact.artifact_key(self._target.models_prefix) for each in found if each.artifact is not None]
        for start in range(0, len(keys), _PAGE):
            part = keys[start : start + _PAGE]
            failed = self._objects.delete(part)
            self.done.deleted += len(part) - len(failed)
            self.done.left += [f"{key}: {why}" for key, why in failed.items()]


# --- back up and restore


def export_registry(target: RegistryTarget, file: Path) -> int:
    """Write every item worth restoring as one JSON line; returns how many. The file is whole or absent, and its owner's only.

    Raises:
        CommandError: the file cannot be written, or AWS refuses.
    """
    from mme_tenancy.aws.attributes import to_item
    from mme_tenancy.aws.maintenance import is_kept

    def run() -> int:
        count = 0
        scratch = file.with_name(f".{file.name}.part")
        scratch.unlink(missing_ok=True)
        scratch.touch(mode=0o600)  # samples of tenants are in it
        with scratch.open("w", encoding="utf-8") as lines:
            for item in target.maintenance().items():
                if is_kept(item):
                    lines.write(json.dumps(to_item(item), default=_bytes, separators=(",", ":")) + "\n")
                    count += 1
        scratch.replace(file)
        return count

    try:
        return _answered(target.asked.where, run)
    except OSError as error:
        raise CommandError(f"{str(file)!r} cannot be written: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class Restored:
    """What came back, or would.

    Attributes:
        source: table or file it came from.
        copied: how many items were equal, missing, different.
        applied: whether missing items were put.
        overwritten: whether different ones were replaced.
    """

    source: str
    copied: Copied
    applied: bool
    overwritten: bool

    @property
    def clean(self) -> bool:
        """Whether the registry has everything that the backup has."""
        left = 0 if self.overwritten else self.copied.different
        return left == 0 and self.copied.changed == 0 and (self.applied or self.copied.missing == 0)

    def document(self) -> dict[str, object]:
        """One JSON document."""
        copied = self.copied
        return {
            "source": self.source,
            "equal": copied.equal,
            "missing": copied.missing,
            "different": copied.different,
            "changed_meanwhile": copied.changed,
            "applied": self.applied,
            "overwritten": self.overwritten,
            "clean": self.clean,
        }


def import_registry(target: RegistryTarget, file: Path, *, apply: bool, overwrite: bool) -> Restored:
    """Bring the items of an export in; raises `CommandError` for a file that is not one."""
    copied = _answered(target.asked.where, lambda: target.maintenance().copy(_read(file), apply=apply, overwrite=overwrite))
    return Restored(str(file), copied, apply, apply and overwrite)


def restore(
    target: RegistryTarget,
    *,
    moment: datetime | None = None,
    latest: bool = False,
    backup_arn: str | None = None,
    from_table: str | None = None,
    apply: bool,
    overwrite: bool,
    tell: Callable[[str], None] = lambda _text: None,
) -> Restored:
    """Restore a backup into a table beside the registry's, compare, and bring items in if that is asked for.

    DynamoDB restores into new tables only, and the platform's functions know the one that the stack made. So the backup becomes a table
    of its own, and its items are copied.

    Args:
        target: the registry.
        moment: a point in time within the last 35 days.
        latest: the latest moment that can be restored.
        backup_arn: an on-demand backup.
        from_table: a table that was restored before.
        apply: put the items that are missing.
        overwrite: replace those that differ, too.
        tell: is told what is waited for.

    Raises:
        UsageError: not exactly one source was given.
        CommandError: AWS refuses.
    """
    from mme_tenancy.aws.maintenance import DynamoMaintenance, is_kept

    if sum((moment is not None, latest, backup_arn is not None, from_table is not None)) != 1:
        raise UsageError("say once what to restore: --to-time, --latest, --backup or --from-table")

    def run() -> Restored:
        client: DynamoDBClient = target.asked.client("dynamodb")
        source = from_table or _restored_table(client, target.table_name, moment=moment, backup_arn=backup_arn, tell=tell)
        items = (item for item in DynamoMaintenance(client, source).items() if is_kept(item))
        copied = target.maintenance().copy(items, apply=apply, overwrite=overwrite)
        return Restored(source, copied, apply, apply and overwrite)

    return _answered(target.asked.where, run)


def _restored_table(
    client: DynamoDBClient, table_name: str, *, moment: datetime | None, backup_arn: str | None, tell: Callable[[str], None]
) -> str:
    name = f"{table_name[:200]}-restored-{datetime.now(UTC):%Y%m%d%H%M%S}"
    if backup_arn is not None:
        client.restore_table_from_backup(TargetTableName=name, BackupArn=backup_arn, BillingModeOverride="PAY_PER_REQUEST")
    elif moment is not None:
        client.restore_table_to_point_in_time(SourceTableName=table_name, TargetTableName=name, RestoreDateTime=moment)
    else:
        client.restore_table_to_point_in_time(SourceTableName=table_name, TargetTableName=name, UseLatestRestorableTime=True)
    end = time.monotonic() + _RESTORE_MINUTES * 60
    while client.describe_table(TableName=name)["Table"]["TableStatus"] != "ACTIVE":
        if time.monotonic() > end:
            raise CommandError(f"table {name} is not ready after {_RESTORE_MINUTES} minutes: go on later with --from-table {name}")
        tell(f"DynamoDB restores into {name}")
        time.sleep(_POLL_SECONDS)
    return name


def _bytes(value: object) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} cannot be written")


def _read(file: Path) -> Iterator[dict[str, Any]]:
    from mme_tenancy.aws.attributes import from_item

    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield from_item(_from_base64(json.loads(line)))
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                raise CommandError(
                    f"{file}, line {number}, is no item of an export: use a file that 'mme registry export' wrote"
                ) from error


def _from_base64(attributes: Any) -> Any:
    """Typed attributes with their bytes."""
    if isinstance(attributes, dict):
        if set(attributes) == {"B"} and isinstance(attributes["B"], str):
            return {"B": base64.b64decode(attributes["B"], validate=True)}
        return {name: _from_base64(value) for name, value in attributes.items()}
    return [_from_base64(value) for value in attributes] if isinstance(attributes, list) else attributes


# --- migrate


@dataclass
class Migrated:
    """How far a migration came.

    Attributes:
        old: items of an older schema that were met.
        upgraded: how many of them are in today's now.
        finished: whether the end of the table was reached.
    """

    old: int = 0
    upgraded: int = 0
    finished: bool = False

    def document(self) -> dict[str, object]:
        """One JSON document."""
        return {"old": self.old, "upgraded": self.upgraded, "finished": self.finished}


def migrate(target: RegistryTarget, *, apply: bool, limit: int | None = None, page: int = _PAGE) -> Migrated:
    """Bring items of the schema before into today's, one by one, on the condition that they are as they were read.

    It may be cut anywhere: what is done stays done, and the next run goes on where this one stopped. Items that somebody changes at the
    same time are met again by the next run. A tenant that had no usage gets the one that its records add up to.

    Args:
        target: the registry.
        apply: write, instead of only counting.
        limit: stop after so many items of the table were looked at; ``None``: go to the end.
        page: how many are looked at at once.
    """
    return _answered(target.asked.where, lambda: _migrate(target.maintenance(), apply=apply, limit=limit, page=page))


def _migrate(table: DynamoMaintenance, *, apply: bool, limit: int | None, page: int) -> Migrated:
    done = Migrated()
    cursor = table.migration_cursor() if apply else None
    looked_at = 0
    while limit is None or looked_at < limit:
        count = page if limit is None else min(page, limit - looked_at)
        old, cursor = table.old_items(limit=count, cursor=cursor)
        looked_at += count
        done.old += len(old)
        if apply:
            for item in old:
                _count_usage(table, item)
                done.upgraded += table.upgrade(item)
            table.remember_migration(cursor)
        if cursor is None:
            done.finished = True
            break
    return done


def _count_usage(table: DynamoMaintenance, item: dict[str, Any]) -> None:
    """Releases of schema 1 counted no usage: a tenant's first count is what its records add up to."""
    from mme_facts.table import PARTITION_KEY, SORT_KEY
    from mme_tenancy.usage import usage_of

    if item[SORT_KEY] != "TENANT":
        return
    tenant = item[PARTITION_KEY].split("#", 1)[1]
    for _ in range(_USAGE_ATTEMPTS):
        partition = table.partition(tenant)
        usage = usage_of(tenant, partition.records)
        if partition.usage == usage or table.set_usage(usage, partition.usage_rev):
            return


def _now() -> str:
    from mme_tenancy.clock import timestamp

    return timestamp(time.time())


def lines_of(found: Iterable[Difference]) -> Iterator[str]:
    """What a person reads."""
    for difference in found:
        yield f"{difference.kind}: {difference.tenant}/{difference.subject} {difference.detail}"
