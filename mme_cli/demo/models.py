"""The demo's models: small XGBoost models on the data sets that scikit-learn ships, with their own local predictions."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from mme_cli.errors import CommandError

__all__ = ["DEMO_MODELS", "DemoModel", "load", "prepare"]

_ROWS = 20
_INDEX = "models.json"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one model is trained."""

    tenant: str
    model: str
    dataset: str
    objective: str
    rounds: int
    depth: int


DEMO_MODELS = (
    Recipe("acme", "iris", "iris", "multi:softprob", 40, 4),
    Recipe("acme", "wine", "wine", "multi:softprob", 40, 4),
    Recipe("globex", "breast-cancer", "breast_cancer", "binary:logistic", 60, 4),
    Recipe("globex", "digits", "digits", "multi:softprob", 30, 5),
    Recipe("initech", "diabetes", "diabetes", "reg:squarederror", 80, 3),
    Recipe("initech", "iris-deep", "iris", "multi:softprob", 20, 8),
)
"""Two models for each of three tenants."""


@dataclass(frozen=True, slots=True)
class DemoModel:
    """One trained model.

    Attributes:
        tenant: who owns it.
        model: its id.
        artifact: name of the ``.tar.gz`` in the folder it was prepared in.
        rows: feature rows as CSV lines.
        expected: the model's own local prediction of each row.
    """

    tenant: str
    model: str
    artifact: str
    rows: list[str]
    expected: list[list[float]]


def prepare(folder: Path) -> Iterator[DemoModel]:
    """Train every demo model into ``folder``: artifacts and an index that `load` reads. Yields each as it is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"folder {str(folder)!r} cannot be used: {error.strerror}; name another") from None
    done = []
    for recipe in DEMO_MODELS:
        done.append(_train(recipe, folder))
        yield done[-1]
    (folder / _INDEX).write_text(json.dumps([asdict(model) for model in done]), "utf-8")


def load(folder: Path) -> list[DemoModel]:
    """The models of an earlier `prepare`; raises `CommandError`."""
    try:
        return [DemoModel(**item) for item in json.loads((folder / _INDEX).read_text("utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise CommandError(f"folder {str(folder)!r} holds no prepared demo models ({error}): leave the option out to train them") from None


def _train(recipe: Recipe, folder: Path) -> DemoModel:
    import numpy
    import sklearn.datasets
    import xgboost

    loader: Callable[..., tuple[numpy.ndarray, numpy.ndarray]] = getattr(sklearn.datasets, f"load_{recipe.dataset}")
    features, target = loader(return_X_y=True)
    parameters: dict[str, object] = {"objective": recipe.objective, "max_depth": recipe.depth, "seed": 7, "nthread": 1}
    if recipe.objective.startswith("multi:"):
        parameters["num_class"] = int(target.max()) + 1
    booster = xgboost.train(parameters, xgboost.DMatrix(features, target), num_boost_round=recipe.rounds)
    chosen = features[numpy.linspace(0, len(features) - 1, _ROWS).astype(int)]
    predicted = booster.predict(xgboost.DMatrix(chosen)).reshape(_ROWS, -1)
    artifact = f"{recipe.tenant}-{recipe.model}.tar.gz"
    # Without times, so that the same model is the same artifact on every machine.
    with gzip.GzipFile(folder / artifact, "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        content = bytes(booster.save_raw("ubj"))
        member = tarfile.TarInfo("xgboost-model")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    rows = [",".join(repr(float(value)) for value in row) for row in chosen]
    return DemoModel(recipe.tenant, recipe.model, artifact, rows, [[float(value) for value in row] for row in predicted])
