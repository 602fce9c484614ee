"""The demo's story, step by step: train, start the cloud, deploy, onboard, predict, check; returns what happened."""

from __future__ import annotations

import math
import statistics
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from mme_cli.cdk import deploy
from mme_cli.cloud import running_cloud
from mme_cli.console import Steps
from mme_cli.demo import models as demo_models
from mme_cli.demo.models import DemoModel
from mme_cli.demo.onboard import Activated, onboard, predict
from mme_cli.errors import CommandError
from mme_cli.platform import LocalPlatform, endpoint_status
from mme_cli.signed_http import SignedClient
from mme_facts.grammar import ArtifactName, VersionId

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TOLERANCE", "DemoReport", "DemoRow", "run_demo"]

TOLERANCE = 1e-6
"""Greatest difference between a served and a local prediction."""
_WARM_CALLS = 5
_ROUNDS = 2
_ONBOARD_SECONDS = 120.0
_MODELS_PER_INSTANCE = 2


@dataclass(frozen=True, slots=True)
class DemoRow:
    """One model in the demo's table.

    Attributes:
        cold_ms: its first invocation, which loads it, as the platform measured it at admission, in milliseconds.
        warm_ms: median of the calls through the API that found it loaded, in milliseconds.
        instance: an instance that holds it at the end, or None when it was evicted everywhere.
        cold_loads: how often it was loaded in the whole run.
        difference: greatest difference between a served and a local prediction.
    """

    tenant: str
    model: str
    version: str
    cold_ms: float
    warm_ms: float
    instance: str | None
    cold_loads: int
    difference: float


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What the demo saw: one row a model and the counters of the whole run."""

    rows: list[DemoRow]
    requests: int
    evictions: int
    hit_ratio: float

    @property
    def wrong(self) -> list[DemoRow]:
        """The models with a wrong prediction."""
        return [row for row in self.rows if not row.difference <= TOLERANCE]

    def document(self) -> dict[str, object]:
        """The report as a JSON document."""
        return {**asdict(self), "tolerance": TOLERANCE, "holds": not self.wrong}


@dataclass(slots=True)
class _Observed:
    warm: list[float]
    difference: float = 0.0


def run_demo(project: Path, steps: Steps, models_folder: Path | None = None) -> DemoReport:
    """Run the whole story.

    Args:
        project: the folder of ``app.py`` and ``cdk.json``.
        steps: where progress shows.
        models_folder: models prepared earlier; None trains them in a temporary folder.

    Raises:
        CommandError: a step failed.
    """
    with TemporaryDirectory(prefix="mme-demo-") as scratch:
        folder = models_folder or Path(scratch)
        with steps.step("training two models for each of three tenants"):
            prepared = demo_models.load(folder) if models_folder else _train(folder, steps)
        with ExitStack() as stack:
            with steps.step("starting the local cloud"):
                state = stack.enter_context(running_cloud(models_per_instance=_MODELS_PER_INSTANCE))
            with steps.step("cdk bootstrap and cdk deploy, the real CLI"):
                platform = LocalPlatform(deploy(state, project, steps.detail))
            with steps.step("onboarding six models over HTTP through API Gateway"):
                versions = _onboard_all(platform, prepared, folder, steps)
            with steps.step("predictions through the API, each compared with the model's own"):
                observed = _predict_all(platform, prepared, steps)
            endpoint = endpoint_status(platform.state)
    return _report(prepared, versions, observed, endpoint)


def _train(folder: Path, steps: Steps) -> list[DemoModel]:
    done = []
    for model in demo_models.prepare(folder):
        done.append(model)
        steps.detail(f"{model.tenant}/{model.model}")
    return done


def _onboard_all(platform: LocalPlatform, prepared: list[DemoModel], folder: Path, steps: Steps) -> dict[tuple[str, str], Activated]:
    admin = platform.admin_client()
    tenants = sorted({model.tenant for model in prepared})
    for tenant in tenants:
        admin.expect((200, 201), "PUT", f"/tenants/{tenant}", {})

    def tenant_models(tenant: str) -> dict[tuple[str, str], Activated]:
        client = platform.tenant_client(tenant)
        return {
            (tenant, model.model): onboard(
                client,
                tenant,
                model.model,
                (folder / model.artifact).read_bytes(),
                model.rows[0],
                deadline_seconds=_ONBOARD_SECONDS,
                tell=lambda state, model=model: steps.detail(f"{tenant}/{model.model} is {state}"),  # type: ignore[misc]
            )
            for model in prepared
            if model.tenant == tenant
        }

    with ThreadPoolExecutor(len(tenants)) as pool:
        return {key: value for done in pool.map(tenant_models, tenants) for key, value in done.items()}


def _predict_all(platform: LocalPlatform, prepared: list[DemoModel], steps: Steps) -> dict[tuple[str, str], _Observed]:
    clients: dict[str, SignedClient] = {}
    observed = {(model.tenant, model.model): _Observed([]) for model in prepared}
    for number in range(_ROUNDS):
        for model in prepared:
            client = clients.setdefault(model.tenant, platform.tenant_client(model.tenant))
            seen = observed[model.tenant, model.model]
            for _ in range(_WARM_CALLS):
                loads = platform.loads()
                predictions, _answer, seconds = predict(client, model.tenant, model.model, model.rows)
                if platform.loads() == loads:
                    seen.warm.append(seconds * 1000)
                seen.difference = max(seen.difference, _difference(predictions, model.expected))
            steps.detail(f"round {number + 1} of {_ROUNDS}: {model.tenant}/{model.model}")
    for (tenant, name), seen in observed.items():
        if not seen.warm:
            raise CommandError(f"every call to {tenant}/{name} had to load it: the instances' memory is too small for the demo")
    return observed


def _difference(got: list[list[float]], expected: list[list[float]]) -> float:
    """Greatest absolute difference; infinite when the shapes differ or a value is not a number."""
    if [len(row) for row in got] != [len(row) for row in expected]:
        return float("inf")
    differences = [abs(a - b) for row, other in zip(got, expected, strict=True) for a, b in zip(row, other, strict=True)]
    return float("inf") if any(map(math.isnan, differences)) else max(differences)


def _report(
    prepared: list[DemoModel],
    versions: Mapping[tuple[str, str], Activated],
    observed: Mapping[tuple[str, str], _Observed],
    endpoint: Mapping[str, Any],
) -> DemoReport:
    holders = {resident["target_model"]: instance["id"] for instance in endpoint["instances"] for resident in instance["models"]}
    rows = []
    for model in prepared:
        key = (model.tenant, model.model)
        target_model = ArtifactName(model.tenant, model.model, VersionId.parse(versions[key].version)).target_model
        seen = observed[key]
        rows.append(
            DemoRow(
                tenant=model.tenant,
                model=model.model,
                version=versions[key].version,
                cold_ms=versions[key].first_invocation_seconds * 1000,
                warm_ms=statistics.median(seen.warm),
                instance=holders.get(target_model),
                cold_loads=endpoint["loads_by_model"].get(target_model, 0),
                difference=seen.difference,
            )
        )
    return DemoReport(rows, endpoint["requests"], endpoint["evictions"], endpoint["hits"] / max(1, endpoint["requests"]))
