"""The rules of each framework's archives, by the framework's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from mme_tenancy.formats.onnx import OnnxShape
from mme_tenancy.formats.saved_model import TensorFlowShape
from mme_tenancy.formats.shape import Shape
from mme_tenancy.formats.single_file import PYTORCH, SKLEARN, SingleFileShape
from mme_tenancy.formats.triton import TritonShape
from mme_tenancy.formats.xgboost import XGBoostShape

__all__ = ["FRAMEWORKS", "shape_of"]

_SHAPES: Mapping[str, Callable[[bool], Shape]] = {
    "xgboost": lambda _allow_code: XGBoostShape(),
    "sklearn": partial(SingleFileShape, SKLEARN),
    "onnx": lambda _allow_code: OnnxShape(),
    "pytorch": partial(SingleFileShape, PYTORCH),
    "tensorflow": lambda _allow_code: TensorFlowShape(),
    "triton": TritonShape,
}
FRAMEWORKS = tuple(_SHAPES)
"""The frameworks whose artifacts can be inspected."""


def shape_of(framework: str, *, allow_code: bool) -> Shape:
    """The rules of one archive; raises `ValueError` for an unknown framework."""
    if framework not in _SHAPES:
        raise ValueError(f"framework {framework!r} cannot be inspected: use one of {', '.join(FRAMEWORKS)}")
    return _SHAPES[framework](allow_code)
