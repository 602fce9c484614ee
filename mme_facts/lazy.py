"""Lazy exports for package ``__init__`` modules (PEP 562), so that importing one name loads only what that name needs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping

__all__ = ["attach"]


def attach(package: str, exports: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` of a package that imports its names on first use.

    Args:
        package: ``__name__`` of the package.
        exports: public name -> submodule (relative to the package) that defines it.

    Returns:
        The two functions to bind as ``__getattr__`` and ``__dir__`` of the package.
    """

    def getattr_(name: str) -> object:
        if name not in exports:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(f"{package}.{exports[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def dir_() -> list[str]:
        return sorted(exports)

    return getattr_, dir_
