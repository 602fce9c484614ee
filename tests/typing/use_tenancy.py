"""Type-checked only: a user wires the run-time's parts and a runtime of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mme_facts.environment import Pool
from mme_tenancy import (
    MOVES,
    RULES,
    Admission,
    AdmissionDelayedError,
    Admitted,
    Answer,
    ArchiveLimits,
    AsyncTenantClient,
    Change,
    Csv,
    Failure,
    Inspection,
    InvocationRequest,
    Invoker,
    Json,
    Model,
    ModelReply,
    Numpy,
    Outcome,
    Page,
    PathSettings,
    Reason,
    Registrar,
    Registration,
    Registry,
    Route,
    Rule,
    RuntimeFault,
    Sample,
    State,
    TenancyError,
    Tenant,
    TenantClient,
    Version,
    inspect_artifact,
    parse_registration,
)
from mme_tenancy.artifacts import UploadedObject
from mme_tenancy.testing import FakeClock, MemoryArtifacts, MemoryRegistry, MemorySigner, ScriptedRuntime


def reasons(artifact: bytes, sha256: str) -> Sequence[Reason]:
    inspection: Inspection = inspect_artifact(
        [artifact], sha256=sha256, size_bytes=len(artifact), framework="xgboost", limits=ArchiveLimits(members=10)
    )
    return inspection.findings


def story(pools: Sequence[Pool], clock: FakeClock, runtime: ScriptedRuntime, artifacts: MemoryArtifacts, upload: UploadedObject) -> Outcome:
    registry: Registry = MemoryRegistry()
    registry.write(Change(None, Tenant("acme", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.000Z")))
    registration: Registration = parse_registration(b"{}", max_artifact_bytes=1, frameworks=["xgboost"])
    registered = Registrar(registry, MemorySigner(clock), pools, clock, lambda: 0.5).register("acme", "iris", registration)
    version: Version = registered.version
    sample: Sample = version.sample
    invoker = Invoker(runtime, clock, lambda: 0.5)
    try:
        admitted: Admitted = Admission(registry, artifacts, invoker, pools, clock).admit(upload, deadline=clock.monotonic() + 60)
        steps: tuple[State, ...] = admitted.steps
        assert all(MOVES[state] is not None for state in steps)
    except AdmissionDelayedError as error:
        raise SystemExit(str(error)) from error
    page: Page[Model] = registry.models("acme", limit=10)
    route: Route | None = page.items[0].route
    assert route is not None
    return invoker.invoke(route.active, InvocationRequest(sample.body, sample.content_type), deadline=clock.monotonic() + 10)


def status_of(outcome: Outcome) -> int:
    rules: Mapping[Failure, Rule] = RULES
    error: TenancyError | None = outcome.error
    reply: ModelReply | None = outcome.reply
    assert reply is not None or error is not None
    fault = RuntimeFault("ModelError", 424, 500)
    return error.problem.status if error is not None else len(rules) + fault.http_status


def application(client: TenantClient) -> list[list[str]]:
    answer: Answer = client.invoke("acme", "iris", b"1,2", content_type="text/csv", timeout_seconds=2, idempotent=False)
    assert client.predict("acme", "iris", {"rows": [[1, 2]]}, serializer=Json()) is not None
    assert client.predict("acme", "iris", [[1.0, 2.0]], serializer=Numpy(), sticky_key="user-1").shape
    return client.predict("acme", "iris", [[answer.version, 2]], serializer=Csv())


def streamed(client: TenantClient) -> list[bytes]:
    with client.stream("acme", "assistant", b"1", timeout_seconds=30, first_part_seconds=2) as answer:
        first: bytes = next(answer)
        return [first, answer.version.encode(), *answer]


async def streamed_at_once(client: AsyncTenantClient) -> list[bytes]:
    return [part async for part in client.stream("acme", "assistant", b"1")]


async def service() -> Answer:
    client = TenantClient(table_name="registry", settings=PathSettings(routes=8), log=print)
    async with AsyncTenantClient(client) as several:
        rows: list[list[str]] = await several.predict("acme", "iris", [[1]], serializer=Csv())
        return await several.invoke("acme", "iris", str(rows).encode())
