"""Fixtures that several packages' tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mme_local import LocalCloud


@pytest.fixture(scope="session")
def shared_cloud() -> Iterator[LocalCloud]:
    """One local cloud per test worker; its state is whatever earlier tests left: take `local_cloud` instead."""
    with LocalCloud() as cloud:
        yield cloud


@pytest.fixture
def local_cloud(shared_cloud: LocalCloud) -> LocalCloud:
    """The worker's local cloud, empty but for its administrator (the keys stay the same)."""
    shared_cloud.reset()
    return shared_cloud


@pytest.fixture(scope="module")
def module_cloud(shared_cloud: LocalCloud) -> LocalCloud:
    """The worker's local cloud, emptied once for a whole test module (do not mix with `local_cloud` in one module)."""
    shared_cloud.reset()
    return shared_cloud
