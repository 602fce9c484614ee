"""What an artifact of a framework must hold, and what it must not."""

from __future__ import annotations

from pathlib import PurePosixPath

__all__ = ["CODE_SUFFIXES", "MANIFESTS", "XGBOOST_MODEL", "carries_code"]

XGBOOST_MODEL = "xgboost-model"
"""The model file of SageMaker's XGBoost image, at the root of the archive."""
CODE_SUFFIXES = (".py", ".pyc", ".pyd", ".so", ".pth", ".dylib", ".egg")
"""Files that Python may run. multi-model-server puts an artifact's folder before the installed packages on its worker's import
path, so a member ``numpy.py`` or ``numpy/__init__.py`` would run instead of numpy, beside the other tenants' models."""
MANIFESTS = ("MAR-INF", "MANIFEST.json")
"""Members at the root that replace the handler of multi-model-server."""


def carries_code(path: str) -> bool:
    """Whether a file of this path inside an artifact could run as code, or choose what does."""
    name = PurePosixPath(path)
    return name.suffix.lower() in CODE_SUFFIXES or (len(name.parts) > 0 and name.parts[0] in MANIFESTS)
