"""The sweep as it is deployed: its own role, the real index, events and buckets; and the operator's commands on the same platform."""

import io
import json
import tarfile
from contextlib import contextmanager
from dataclasses import asdict, replace

import pytest

from mme_cli.dead_letters import waiting
from mme_cli.registry import reconcile, registry_target
from mme_cli.sessions import Asked
from mme_facts.environment import SWEEP_TIMES, SweepTimes, dump_sweep_times
from mme_facts.grammar import ArtifactName, VersionId
from tests.e2e.support import register, upload, wait_until

pytestmark = pytest.mark.e2e

TENANT, SAMPLE = "sweeper", "5.1,3.5,1.4,0.2"


@pytest.fixture(scope="module")
def platform(own_platform):
    """A platform of its own: a sweep does with every tenant's versions what the test wants of its own."""
    return own_platform


@pytest.fixture(scope="module")
def booster(demo_models):
    """A real artifact."""
    folder, prepared = demo_models
    return (folder / prepared[0].artifact).read_bytes(), prepared[0].rows[0]


class Sweeping:
    """The deployed sweeper, run by hand with times of the test's own."""

    def __init__(self, platform):
        self.platform = platform
        self.functions, self.events, self.s3 = (platform.client(service) for service in ("lambda", "events", "s3"))
        self.dynamodb = platform.client("dynamodb")
        self.bucket, self.table = platform.state.output("BucketName"), platform.state.output("TableName")
        pages = self.functions.get_paginator("list_functions").paginate()
        (self.function,) = [
            function for page in pages for function in page["Functions"] if function["Handler"] == "mme_tenancy.handlers.sweep.handler"
        ]

    def sweep(self, **times):
        variables = self.function["Environment"]["Variables"] | {SWEEP_TIMES: dump_sweep_times(replace(SweepTimes(), **times))}
        name = self.function["FunctionName"]
        self.functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
        answer = self.functions.invoke(FunctionName=name, Payload=b"{}")
        document = json.load(answer["Payload"])
        assert "FunctionError" not in answer, document
        assert document["failures"] == [], "the function's own role suffices"
        return document

    @contextmanager
    def uploads_untold(self):
        """Nobody hears of uploads: the rule is off."""
        (rule,) = [rule["Name"] for rule in self.events.list_rules()["Rules"] if rule.get("Description", "").startswith("An upload landed")]
        self.events.disable_rule(Name=rule)
        try:
            yield
        finally:
            self.events.enable_rule(Name=rule)

    def change(self, model, number, **attributes):
        """Change a version's item by hand: time is real here."""
        key = {"PK": {"S": f"TENANT#{TENANT}"}, "SK": {"S": f"VERSION#{model}#{number:06d}"}}
        names = {f"#{name}": name for name in attributes}
        self.dynamodb.update_item(
            TableName=self.table,
            Key=key,
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in attributes),
            ExpressionAttributeNames=names,
            ExpressionAttributeValues={f":{name}": {"S": value} for name, value in attributes.items()},
        )

    def keys(self, prefix):
        return [item["Key"] for item in self.s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", [])]


@pytest.fixture(scope="module")
def sweeping(platform):
    platform.admin_client().expect((200, 201), "PUT", f"/tenants/{TENANT}", {})
    sweeping = Sweeping(platform)
    yield sweeping
    sweeping.sweep(**asdict(SweepTimes()))


@pytest.fixture(scope="module")
def client(platform):
    return platform.tenant_client(TENANT)


def state_of(client, model, version):
    return client.expect((200,), "GET", f"/tenants/{TENANT}/models/{model}/versions/{version}").json()["state"]


def wait_for(client, model, version, state):
    seen = {}

    def reached():
        seen.update(client.expect((200,), "GET", f"/tenants/{TENANT}/models/{model}/versions/{version}").json())
        return seen["state"] == state

    try:
        wait_until(reached, seconds=120, what=state)
    except AssertionError as error:
        raise AssertionError(f"{model} is {seen}") from error


def bring(sweeping, client, model, artifact, sample, *, told):
    """Register and upload a version; whether the platform is told of the upload."""
    registered = register(client, TENANT, model, artifact, sample).json()
    if told:
        upload(client, registered, artifact)
    else:
        with sweeping.uploads_untold():
            assert upload(client, registered, artifact).status in {200, 204}
    return registered["version"]


def test_an_upload_of_which_nobody_was_told_is_brought_on_and_becomes_active(sweeping, client, booster):
    artifact, sample = booster
    version = bring(sweeping, client, "untold", artifact, sample, told=False)
    assert state_of(client, "untold", version) == "awaiting_upload"
    assert sweeping.sweep()["resumed"] == 0, "it may still be on its way"
    assert sweeping.sweep(stuck_seconds=0)["resumed"] == 1
    wait_for(client, "untold", version, "active")
    assert sweeping.sweep(stuck_seconds=0)["resumed"] == 0


def test_an_upload_that_never_came_expires_and_its_parts_are_gone(sweeping, client):
    registered = register(client, TENANT, "abandoned", b"x" * (20 << 20)).json()
    assert len(sweeping.s3.list_multipart_uploads(Bucket=sweeping.bucket).get("Uploads", [])) == 1
    assert sweeping.sweep(stuck_seconds=0)["expired"] == 0
    assert sweeping.sweep(stuck_seconds=0, expire_seconds=0)["expired"] == 1
    assert state_of(client, "abandoned", registered["version"]) == "expired"
    assert sweeping.s3.list_multipart_uploads(Bucket=sweeping.bucket).get("Uploads", []) == []


def test_a_deleted_model_is_purged_after_its_grace_time_and_not_before(sweeping, client, booster):
    artifact, sample = booster
    version = bring(sweeping, client, "retired", artifact, sample, told=True)
    wait_for(client, "retired", version, "active")
    client.expect((200, 202), "DELETE", f"/tenants/{TENANT}/models/retired")
    assert sweeping.sweep()["purged"] == 0
    (key,) = sweeping.keys(f"models/{TENANT}/retired/")
    sweeping.change("retired", 1, purge_after="2026-01-01T00:00:00.000Z", updated_at="2026-01-01T00:00:00.000Z")
    assert sweeping.sweep()["purged"] == 1
    assert key not in sweeping.keys(f"models/{TENANT}/")
    wait_for(client, "retired", version, "purged")


def test_what_no_record_points_to_is_deleted_and_what_may_be_lost_history_is_kept(sweeping, client, booster):
    rejected = io.BytesIO()
    with tarfile.open(fileobj=rejected, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../evil"))
    version = bring(sweeping, client, "rejected", rejected.getvalue(), SAMPLE, told=True)
    wait_for(client, "rejected", version, "rejected")
    orphan = ArtifactName(TENANT, "rejected", VersionId.parse(version)).artifact_key()
    lost = ArtifactName(TENANT, "rejected", VersionId(9, "0" * 12)).artifact_key()
    for key in (orphan, lost, "models/readme.txt"):
        sweeping.s3.put_object(Bucket=sweeping.bucket, Key=key, Body=b"left behind")
    assert sweeping.sweep()["deleted_artifacts"] == 0, "they are young"
    swept = sweeping.sweep(orphan_seconds=0)
    assert (swept["deleted_artifacts"], swept["unexplained"], swept["foreign"]) == (1, 1, 1)
    assert swept["deleted_uploads"] >= 1
    assert orphan not in sweeping.keys("models/")
    assert {lost, "models/readme.txt"} <= set(sweeping.keys("models/"))
    for key in (lost, "models/readme.txt"):
        sweeping.s3.delete_object(Bucket=sweeping.bucket, Key=key)


def test_after_all_that_registry_and_bucket_fit_and_every_queue_is_known(sweeping, platform):
    keys = platform.state.admin
    import boto3

    session = boto3.Session(keys.access_key_id, keys.secret_access_key, region_name=platform.state.region)
    asked = Asked("the local cloud", True, platform.state, session, platform.state.endpoint_url)
    done = reconcile(registry_target(asked, table=None, bucket=None), apply=False, delete_objects=False, tenant=TENANT)
    assert (done.found, done.clean) == ([], True)
    assert {"admission.handler", "sweep.handler", "fleet_watch.handler"} <= {queue.handler for queue in waiting(asked)}
