"""The rules of each framework's archives, by the framework's name; a framework's module is loaded when its first archive comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mme_tenancy.formats.shape import Shape

__all__ = ["FRAMEWORKS", "shape_of"]


def _xgboost(_allow_code: bool) -> Shape:
    from mme_tenancy.formats.xgboost import XGBoostShape

    return XGBoostShape()


def _sklearn(allow_code: bool) -> Shape:
    from mme_tenancy.formats.single_file import SKLEARN, SingleFileShape

    return SingleFileShape(SKLEARN, allow_code)


def _onnx(_allow_code: bool) -> Shape:
    from mme_tenancy.formats.onnx import OnnxShape

    return OnnxShape()


def _pytorch(allow_code: bool) -> Shape:
    from mme_tenancy.formats.single_file import PYTORCH, SingleFileShape

    return SingleFileShape(PYTORCH, allow_code)


def _tensorflow(_allow_code: bool) -> Shape:
    from mme_tenancy.formats.saved_model import TensorFlowShape

    return TensorFlowShape()


def _triton(allow_code: bool) -> Shape:
    from mme_tenancy.formats.triton import TritonShape

    return TritonShape(allow_code)


_SHAPES: Mapping[str, Callable[[bool], Shape]] = {
    "xgboost": _xgboost,
    "sklearn": _sklearn,
    "onnx": _onnx,
    "pytorch": _pytorch,
    "tensorflow": _tensorflow,
    "triton": _triton,
}
FRAMEWORKS = tuple(_SHAPES)
"""The frameworks whose artifacts can be inspected."""


def shape_of(framework: str, *, allow_code: bool) -> Shape:
    """The rules of one archive; raises `ValueError` for an unknown framework."""
    if framework not in _SHAPES:
        raise ValueError(f"framework {framework!r} cannot be inspected: use one of {', '.join(FRAMEWORKS)}")
    return _SHAPES[framework](allow_code)
