"""`mme registry` on the local cloud: back up, lose, restore, reconcile, migrate."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime

import boto3
import pytest
from typer.testing import CliRunner

from mme_cli import registry as commands
from mme_cli import sessions
from mme_cli.errors import CommandError, UsageError
from mme_cli.main import app
from mme_cli.registry import RegistryTarget, export_registry, import_registry, migrate, reconcile, registry_target, restore
from mme_cli.sessions import Asked
from mme_facts.table import MOVING_INDEX, MOVING_KEY, PARTITION_KEY, SORT_KEY, UPDATED_AT
from mme_tenancy.aws.attributes import from_item, to_item
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.maintenance import DynamoMaintenance
from mme_tenancy.errors import WriteConflictError
from mme_tenancy.registry import Change, usage_key
from mme_tenancy.routes import Model, Route
from mme_tenancy.schema import ALWAYS_WRITTEN
from mme_tenancy.tenants import Tenant, Usage
from mme_tenancy.versions import DigestClaim, Sample, State, Version

NOW = "2026-11-29T12:00:00.000Z"


class Platform:
    """A table and a bucket with two tenants, each with an active and a ready version."""

    def __init__(self, cloud, number):
        keys = cloud.admin
        session = boto3.Session(keys.access_key_id, keys.secret_access_key, region_name=cloud.region)
        self.asked = Asked("the local cloud", True, None, session, cloud.endpoint_url)
        self.dynamodb, self.s3 = self.asked.client("dynamodb"), self.asked.client("s3")
        self.target = RegistryTarget(self.asked, f"registry-{number}", f"artifacts-{number}", "models/")
        self.make_table(self.target.table_name)
        self.s3.create_bucket(Bucket=self.target.bucket_name)
        self.registry = DynamoRegistry(self.dynamodb, self.target.table_name)
        for tenant in ("acme", "globex"):
            versions = [self.version(tenant, 1, State.ACTIVE), self.version(tenant, 2, State.READY)]
            route = Route("endpoint-a", "AllTraffic", str(versions[0].id), versions[0].name.target_model)
            self.registry.write(Change(None, Tenant(tenant, NOW, NOW)))
            self.registry.write(Change(None, Model(tenant, "iris", 2, NOW, NOW, route)), *(Change(None, version) for version in versions))
            for version in versions:
                self.registry.write(Change(None, DigestClaim(tenant, "iris", version.sha256, version.number)))
                self.store(version)

    def make_table(self, name):
        self.dynamodb.create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": attribute, "AttributeType": "S"} for attribute in (PARTITION_KEY, SORT_KEY, MOVING_KEY, UPDATED_AT)
            ],
            KeySchema=[{"AttributeName": PARTITION_KEY, "KeyType": "HASH"}, {"AttributeName": SORT_KEY, "KeyType": "RANGE"}],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": MOVING_INDEX,
                    "KeySchema": [{"AttributeName": MOVING_KEY, "KeyType": "HASH"}, {"AttributeName": UPDATED_AT, "KeyType": "RANGE"}],
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ],
        )

    @staticmethod
    def version(tenant, number, state):
        sha256, sample = hashlib.sha256(f"{tenant} {number}".encode()).hexdigest(), Sample("text/csv", bytes(range(64)))
        return Version(tenant, "iris", number, sha256, 10, "xgboost", "shared", sample, state, NOW, NOW, moving=False)

    def store(self, version):
        self.s3.put_object(Bucket=self.target.bucket_name, Key=version.name.artifact_key(), Body=b"0123456789")

    def lose(self, *sort_keys, tenant="acme"):
        for sort_key in sort_keys:
            self.dynamodb.delete_item(
                TableName=self.target.table_name, Key=to_item({PARTITION_KEY: f"TENANT#{tenant}", SORT_KEY: sort_key})
            )

    def items(self, table=None):
        return {
            (item[PARTITION_KEY], item[SORT_KEY]): item
            for item in DynamoMaintenance(self.dynamodb, table or self.target.table_name).items()
        }

    def reconcile(self, **options):
        return reconcile(self.target, **{"apply": False, "delete_objects": False, **options})


@pytest.fixture
def platform(module_cloud, request):
    return Platform(module_cloud, hashlib.sha256(request.node.name.encode()).hexdigest()[:12])


def test_an_export_brings_back_what_was_lost_and_leaves_what_is_there(platform, tmp_path):
    file = tmp_path / "registry.jsonl"
    before = platform.items()
    assert export_registry(platform.target, file) == len(before) - 2  # the usages are counted anew
    platform.lose("TENANT", "MODEL#iris", "VERSION#iris#000001")
    model = platform.registry.model("globex", "iris")
    platform.registry.write(Change(model, replace(model, last_version=7, rev=model.rev + 1)))
    looked = import_registry(platform.target, file, apply=False, overwrite=False)
    assert (looked.copied.missing, looked.copied.different, looked.clean, len(platform.items())) == (3, 1, False, len(before) - 3)
    done = import_registry(platform.target, file, apply=True, overwrite=False)
    assert (done.copied.missing, done.copied.different, done.clean) == (3, 1, False)
    assert platform.registry.model("globex", "iris").last_version == 7
    assert {key: item for key, item in platform.items().items() if key[0] == "TENANT#acme"} == {
        key: item for key, item in before.items() if key[0] == "TENANT#acme"
    }
    replaced = import_registry(platform.target, file, apply=True, overwrite=True)
    assert (replaced.copied.missing, replaced.copied.different, replaced.clean) == (0, 1, True)
    restored = platform.registry.model("globex", "iris")
    assert (restored.last_version, restored.rev) == (2, model.rev + 2)
    with pytest.raises(WriteConflictError):
        platform.registry.write(Change(model, replace(model, last_version=9, rev=model.rev + 1)))


@pytest.mark.parametrize("line", ["{", "[]", '{"PK": 5}', '{"B": "x"}'])
def test_a_file_that_is_no_export_is_named_with_its_line(platform, tmp_path, line):
    file = tmp_path / "other.jsonl"
    file.write_text(f"{line}\n", "utf-8")
    with pytest.raises(CommandError, match=r"other\.jsonl, line 1, is no item of an export"):
        import_registry(platform.target, file, apply=True, overwrite=False)


def test_a_backup_is_restored_beside_the_table_and_what_is_missing_comes_back(platform):
    backup = platform.dynamodb.create_backup(TableName=platform.target.table_name, BackupName="night")["BackupDetails"]["BackupArn"]
    before = platform.items()
    platform.lose("MODEL#iris", "VERSION#iris#000002")
    looked = restore(platform.target, backup_arn=backup, apply=False, overwrite=False)
    assert (looked.copied.missing, looked.clean) == (2, False)
    assert looked.source.startswith(f"{platform.target.table_name}-restored-")
    assert len(platform.items()) == len(before) - 2
    done = restore(platform.target, from_table=looked.source, apply=True, overwrite=False)
    assert (done.copied.missing, done.clean) == (2, True)
    assert platform.items() == before
    assert platform.reconcile().clean


def test_a_point_in_time_is_restored_beside_the_table(platform):
    done = restore(platform.target, moment=datetime.now(UTC), apply=False, overwrite=False)
    assert (done.copied.equal, done.copied.missing, done.clean) == (len(platform.items()) - 2, 0, True)
    platform.dynamodb.delete_table(TableName=done.source)
    assert restore(platform.target, latest=True, apply=False, overwrite=False).clean


@pytest.mark.parametrize("given", [{}, {"latest": True, "from_table": "x"}])
def test_exactly_one_source_is_restored(platform, given):
    with pytest.raises(UsageError, match="say once what to restore"):
        restore(platform.target, **given, apply=False, overwrite=False)


def test_no_artifact_is_deleted_without_apply(platform):
    platform.lose("VERSION#iris#000002")
    before = platform.s3.list_objects_v2(Bucket=platform.target.bucket_name)["KeyCount"]
    with pytest.raises(UsageError, match="--delete-objects deletes for good: pass --apply too"):
        platform.reconcile(delete_objects=True)
    assert platform.s3.list_objects_v2(Bucket=platform.target.bucket_name)["KeyCount"] == before


def test_an_export_is_for_its_owner_only_and_a_file_that_cannot_be_written_is_told(platform, tmp_path):
    export_registry(platform.target, tmp_path / "registry.jsonl")
    assert (tmp_path / "registry.jsonl").stat().st_mode & 0o777 == 0o600
    with pytest.raises(CommandError, match=r"'.*none/registry\.jsonl' cannot be written: No such file or directory"):
        export_registry(platform.target, tmp_path / "none" / "registry.jsonl")


def test_what_aws_refuses_is_one_sentence(platform):
    with pytest.raises(CommandError, match="the local cloud refuses or does not answer"):
        restore(platform.target, from_table="nowhere", apply=False, overwrite=False)


def test_a_platform_that_is_right_has_no_differences(platform):
    done = platform.reconcile(apply=True, delete_objects=True)
    assert (done.tenants, done.found, done.repaired, done.deleted, done.clean) == (2, [], 0, 0, True)


def test_a_dry_run_tells_everything_and_changes_nothing_and_a_repair_leaves_nothing(platform):
    acme = [platform.registry.version("acme", "iris", number) for number in (1, 2)]
    platform.s3.delete_object(Bucket=platform.target.bucket_name, Key=acme[0].name.artifact_key())
    platform.lose("TENANT", f"DIGEST#iris#{acme[1].sha256}")
    platform.lose("VERSION#iris#000002", tenant="globex")
    stray = Platform.version("zeta", 4, State.READY)
    platform.store(stray)
    platform.s3.put_object(Bucket=platform.target.bucket_name, Key="models/readme.txt", Body=b"?")
    before = platform.items()
    looked = platform.reconcile()
    assert platform.items() == before
    assert looked.document()["counts"] == {
        "claim-wrong": 1,
        "object-without-record": 2,
        "record-without-object": 1,
        "route-to-missing": 1,
        "tenant-missing": 1,
        "usage-wrong": 1,
    }
    assert (looked.tenants, looked.foreign, looked.clean) == (3, ["models/readme.txt"], False)
    repaired = platform.reconcile(apply=True)
    assert (repaired.repaired, repaired.deleted, repaired.left, repaired.clean) == (5, 0, [], False)
    assert platform.registry.model("acme", "iris").route.version == str(acme[1].id)
    assert [platform.registry.version("acme", "iris", number).state for number in (1, 2)] == [State.PURGED, State.ACTIVE]
    left = platform.reconcile()
    assert left.document()["counts"] == {"object-without-record": 2}
    done = platform.reconcile(apply=True, delete_objects=True)
    assert (done.deleted, done.clean) == (2, True)
    keys = [item["Key"] for item in platform.s3.list_objects_v2(Bucket=platform.target.bucket_name)["Contents"]]
    assert keys == [
        acme[1].name.artifact_key(),
        f"models/globex/iris/{platform.registry.version('globex', 'iris', 1).id}.tar.gz",
        "models/readme.txt",
    ]
    assert platform.reconcile().clean


def test_usage_is_set_to_what_the_records_add_up_to(platform):
    table = DynamoMaintenance(platform.dynamodb, platform.target.table_name)
    assert table.set_usage(Usage("acme", 9, 9), table.partition("acme").usage_rev)
    assert not table.set_usage(Usage("acme", 8, 8), 1)
    assert platform.reconcile(tenant="acme", apply=True).clean
    assert platform.registry.read(usage_key("acme"), usage_key("globex")) == (Usage("acme", 1, 20), Usage("globex", 1, 20))


def test_old_items_are_brought_over_once_in_parts_and_none_is_lost(platform):
    new = platform.items()
    for key, item in new.items():
        old = {name: value for name, value in item.items() if name not in ALWAYS_WRITTEN}
        platform.dynamodb.put_item(TableName=platform.target.table_name, Item=to_item(old | {"schema": 1}))
        if key[1] == "USAGE":
            platform.lose("USAGE", tenant=key[0].split("#")[1])
    counted = migrate(platform.target, apply=False)
    assert (counted.old, counted.upgraded, counted.finished) == (len(new) - 2, 0, True)
    first = migrate(platform.target, apply=True, limit=4, page=2)
    assert (first.finished, 0 < first.upgraded < counted.old) == (False, True)
    rest = migrate(platform.target, apply=True, page=3)
    assert (first.upgraded + rest.upgraded, rest.finished) == (counted.old, True)
    assert migrate(platform.target, apply=True).old == 0
    after = platform.items()
    assert {key: item for key, item in after.items() if key[1] != "USAGE"} == {key: item for key, item in new.items() if key[1] != "USAGE"}
    assert platform.registry.read(usage_key("acme"), usage_key("globex")) == (Usage("acme", 1, 20), Usage("globex", 1, 20))
    assert platform.reconcile().clean


def test_an_item_that_changes_during_its_migration_is_left_to_the_next_run(platform):
    table = DynamoMaintenance(platform.dynamodb, platform.target.table_name)
    key = {PARTITION_KEY: "TENANT#acme", SORT_KEY: "MODEL#iris"}
    read = from_item(platform.dynamodb.get_item(TableName=platform.target.table_name, Key=to_item(key))["Item"]) | {"schema": 1}
    platform.dynamodb.put_item(TableName=platform.target.table_name, Item=to_item(read))
    model = platform.registry.model("acme", "iris")
    platform.registry.write(Change(model, model.count_up(NOW)))
    assert not table.upgrade(read)
    assert platform.registry.model("acme", "iris").last_version == 3
    assert migrate(platform.target, apply=True).upgraded == 1


def test_without_a_local_cloud_table_and_bucket_must_be_named(platform):
    with pytest.raises(UsageError, match="does not tell the table: pass --table"):
        registry_target(platform.asked, table=None, bucket="b")
    with pytest.raises(UsageError, match="does not tell the bucket: pass --bucket"):
        registry_target(platform.asked, table="t", bucket=None)


def test_the_commands_print_one_document_and_their_status_tells_whether_something_is_left(platform, tmp_path, monkeypatch):
    monkeypatch.setattr(sessions, "open_session", lambda **_given: platform.asked)
    where = ["--table", platform.target.table_name]
    run, file = CliRunner(), str(tmp_path / "registry.jsonl")

    def call(*arguments):
        done = run.invoke(app, ["registry", *arguments, *where, "--json"])
        return done.exit_code, json.loads(done.stdout)

    assert call("export", file) == (0, {"file": file, "items": 12})
    assert call("reconcile", "--bucket", platform.target.bucket_name)[0] == 0
    platform.lose("MODEL#iris")
    status, document = call("reconcile", "--bucket", platform.target.bucket_name)
    assert (status, document["counts"], document["clean"]) == (1, {"active-not-routed": 1, "model-missing": 1, "usage-wrong": 1}, False)
    assert call("import", file)[0] == 1
    status, document = call("import", file, "--apply")
    assert (status, document["missing"], document["clean"]) == (0, 1, True)
    assert call("reconcile", "--bucket", platform.target.bucket_name)[0] == 0
    assert call("migrate") == (0, {"old": 0, "upgraded": 0, "finished": True})
    assert call("restore", "--latest")[0] == 0
    text = run.invoke(app, ["registry", "reconcile", *where, "--bucket", platform.target.bucket_name])
    assert text.stdout.strip() == "2 tenants, 0 differences, 0 repaired, 0 artifacts deleted"
    assert commands.Migrated().document() == {"old": 0, "upgraded": 0, "finished": False}
