"""Serves artifacts as SageMaker's XGBoost image does, inside a multi-model-server worker.

Modelled on the behaviour of aws/sagemaker-xgboost-container in its algorithm mode: ``xgboost-model`` at the root of the
archive; ``text/csv`` (the default) or libsvm in; ``application/json`` (the default, as of the inference toolkit) or ``text/csv``
out. JSON is a list with one number, or one list of numbers, a row; CSV joins the same values by commas in one line, so that the
rows of a multi-class model look like lists: no good CSV, but what the image answers. What differs, on purpose:

- A pickled booster is refused: unpickling runs the tenant's code. Save with ``Booster.save_model`` (JSON or UBJSON).
- A body without rows gives 400; the image answers 204 without a body.
- No RecordIO-protobuf, no JSON Lines, no selectable inference content, one model an archive.

Function style, because multi-model-server swallows what class-style handlers raise while they initialize. The module
imports only numpy, scipy, xgboost and the standard library.
"""

from __future__ import annotations

import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

# xgboost imports scikit-learn and pandas where they are installed: 3 of 4 parts of a worker's start and memory, for nothing.
sys.modules.update(dict.fromkeys(("sklearn", "pandas")))  # type: ignore[arg-type]

import numpy as np  # noqa: E402
import xgboost  # noqa: E402
from scipy.sparse import csr_matrix  # type: ignore[import-untyped]  # noqa: E402

__all__ = ["FAILURE_FILE", "MODEL_FILE", "handle"]

MODEL_FILE = "xgboost-model"
FAILURE_FILE = "load-failure.txt"
"""Beside the model's folder: why a load failed, because the server's own answer does not say."""

_CSV, _JSON, _ANY = "text/csv", "application/json", "*/*"
_ACCEPTS = {_CSV: _CSV, "csv": _CSV, _JSON: _JSON, "json": _JSON}


class Context(Protocol):
    """What this handler uses of multi-model-server's context."""

    @property
    def system_properties(self) -> Mapping[str, Any]:
        """Holds ``model_dir``."""

    def get_all_request_header(self, idx: int) -> Mapping[str, Any]:
        """The headers of one request of the batch."""

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        """Set the HTTP status of one answer."""

    def set_response_content_type(self, idx: int, value: str) -> None:
        """Set the Content-Type of one answer."""


class _RequestError(Exception):
    def __init__(self, status: int, message: str) -> None:
        self.status = status
        super().__init__(message)


_booster: xgboost.Booster | None = None


def handle(data: Sequence[Mapping[str, Any]] | None, context: Context) -> list[bytes | str] | None:
    """The entry point: called once with ``None`` to load the model, then with every batch of requests.

    Raises:
        ValueError: at the load, if the artifact does not hold a model; the server answers 500.
        MemoryError: at the load, if it does not fit; the server answers 507.
    """
    global _booster  # noqa: PLW0603 - one process serves one model
    if data is None:
        folder = Path(context.system_properties["model_dir"])
        try:
            _booster = _load(folder)
        except Exception as error:
            (folder.parent / FAILURE_FILE).write_text(str(error), "utf-8")
            raise
        return None
    assert _booster is not None
    return [_answer(_booster, item, context, index) for index, item in enumerate(data)]


def _load(folder: Path) -> xgboost.Booster:
    path = folder / MODEL_FILE
    if not path.is_file():
        raise ValueError(f"the artifact has no file {MODEL_FILE!r} at its root")
    content = bytearray(path.read_bytes())
    # xgboost ends the whole process on some content that is no model at all, so look first.
    if content[:1] == b"\x80":
        raise ValueError(f"{MODEL_FILE} is a Python pickle, which would run code to load: save the model with Booster.save_model")
    if content[:1] != b"{" or len(content) < 3:
        raise ValueError(f"{MODEL_FILE} is neither JSON nor UBJSON: save the model with Booster.save_model")
    booster = xgboost.Booster()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            booster.load_model(content)
    except xgboost.core.XGBoostError as error:
        raise ValueError(f"xgboost {xgboost.__version__} cannot read {MODEL_FILE}: {_first_line(error)}") from error
    booster.set_param({"nthread": 1})
    return booster


def _answer(booster: xgboost.Booster, item: Mapping[str, Any], context: Context, index: int) -> bytes | str:
    headers = {name.lower(): value for name, value in context.get_all_request_header(index).items() if isinstance(value, str)}
    try:
        accept = _negotiate(headers.get("accept"))
        matrix = _parse(bytes(item.get("body") or b""), headers.get("content-type"), booster.num_features())
        scores = booster.predict(matrix, validate_features=False)
    except _RequestError as error:
        return _refuse(context, index, error.status, str(error))
    except (xgboost.core.XGBoostError, ValueError) as error:
        return _refuse(context, index, 400, f"Unable to evaluate payload provided: {_first_line(error)}")
    context.set_response_content_type(index, accept)
    rows = scores.tolist()
    return json.dumps(rows) if accept == _JSON else ",".join(map(str, rows))


def _refuse(context: Context, index: int, status: int, message: str) -> str:
    context.set_response_status(code=status, phrase="", idx=index)
    context.set_response_content_type(index, "text/plain")
    return message


def _negotiate(accept: str | None) -> str:
    """The media type to answer with: the caller's, or the container's default where it names none."""
    wanted = (accept or _ANY).strip().lower()
    if wanted == _ANY:
        wanted = os.environ.get("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", _JSON)
    if wanted not in _ACCEPTS:
        raise _RequestError(415, f"Accept type {accept!r} is not supported: use {_CSV} or {_JSON}")
    return _ACCEPTS[wanted]


def _parse(body: bytes, content_type: str | None, features: int) -> xgboost.DMatrix:
    media_type = (content_type or _CSV).partition(";")[0].strip().lower()
    parser = _PARSERS.get(media_type)
    if parser is None:
        raise _RequestError(415, f"Content-Type {content_type!r} is not supported: use {' or '.join(_PARSERS)}")
    try:
        lines = [line for line in body.decode("utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise _RequestError(400, f"the body is not UTF-8 text: {error}") from error
    if not lines:
        raise _RequestError(400, "the body has no rows")
    return xgboost.DMatrix(parser(lines, features), nthread=1)


def _parse_csv(lines: Sequence[str], features: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Rows of numbers without label and header; an empty field is a missing value."""
    rows = []
    for number, line in enumerate(lines, 1):
        fields = line.split(",")
        if len(fields) != features:
            raise _RequestError(400, f"row {number} has {len(fields)} columns: the model has {features} features")
        rows.append([_number(field, number) if field.strip() else math.nan for field in fields])
    return np.array(rows, dtype=np.float32)


def _parse_libsvm(lines: Sequence[str], features: int) -> csr_matrix:
    """Rows ``[label] index:value ...`` with indices from 0, as the image reads them; what is absent is missing."""
    values: list[float] = []
    columns: list[int] = []
    ends = [0]
    for number, line in enumerate(lines, 1):
        for position, token in enumerate(line.split()):
            index, colon, value = token.partition(":")
            if not colon and position == 0:
                _number(token, number)  # the label, which is not used
                continue
            if not (index.isascii() and index.isdigit()) or int(index) >= features:
                raise _RequestError(400, f"row {number} has {token!r}: use index:value with an index from 0 to {features - 1}")
            columns.append(int(index))
            values.append(_number(value, number))
        ends.append(len(columns))
    return csr_matrix((np.array(values, dtype=np.float32), np.array(columns, dtype=np.int32), np.array(ends)), shape=(len(lines), features))


def _number(text: str, row: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise _RequestError(400, f"row {row} has {text!r}, which is not a number") from None


def _first_line(error: Exception) -> str:
    """Keep the statement of an error of xgboost: the rest is a time, a source line and a stack trace of its own."""
    text = str(error).partition("Stack trace")[0].strip()
    return " ".join(text.split())


_PARSERS: Mapping[str, Callable[[Sequence[str], int], Any]] = {
    _CSV: _parse_csv,
    "text/libsvm": _parse_libsvm,
    "text/x-libsvm": _parse_libsvm,
    "application/x-libsvm": _parse_libsvm,
}
