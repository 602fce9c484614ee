"""One model: registered, uploaded, and waited for until it is active or rejected."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mme_cli.errors import CommandError
from mme_cli.onboarding.artifact import ModelFiles, digest_of
from mme_cli.onboarding.outcome import DECIDED, Outcome, outcome_of
from mme_cli.onboarding.uploading import register_and_upload
from mme_cli.onboarding_client import OnboardingClient, StoppedError

__all__ = ["onboard_one", "wait_until_decided"]

_FIRST_WAIT_SECONDS, _GREATEST_WAIT_SECONDS = 0.2, 5.0
_ROUTE_SECONDS = 15.0
"""A version that is ready for so long will not get the route by itself: another one keeps it."""
_UNSEEN_SECONDS = 60.0
"""A version that awaits its upload so long after it is said to be complete: its event may be lost."""


def onboard_one(
    client: OnboardingClient,
    files: ModelFiles,
    *,
    timeout_seconds: float,
    sent: Callable[[int], object],
    tell: Callable[[str], object],
) -> Outcome:
    """Bring one model to its end.

    Args:
        client: calls the API for the tenant.
        files: the model.
        timeout_seconds: how long admission may take after the upload.
        sent: is told of bytes as they are sent.
        tell: is told what is done, and the version's states.

    Raises:
        CommandError: a call failed for good, or the time is over.
        StoppedError: the program stops.
    """
    sha256 = digest_of(files.artifact, client.retries.stop)
    uploaded = register_and_upload(client, files, sha256, sent)
    tell(f"uploaded as {uploaded.version}" if uploaded.new else f"the platform has the artifact already: {uploaded.version}")
    return outcome_of(wait_until_decided(client, files.tenant, files.model, uploaded.version, timeout_seconds=timeout_seconds, tell=tell))


def wait_until_decided(
    client: OnboardingClient, tenant: str, model: str, version: str, *, timeout_seconds: float, tell: Callable[[str], object]
) -> dict[str, Any]:
    """The version's document once admission has ended; raises `CommandError` when the time is over."""
    started, wait, seen = time.monotonic(), _FIRST_WAIT_SECONDS, ""
    ready_since: float | None = None
    said = started
    while True:
        document = client.version(tenant, model, version)
        state = str(document["state"])
        now = time.monotonic()
        if state != seen:
            tell(state)
            seen = state
        if state == "ready" and ready_since is None:
            ready_since = now
        if state in DECIDED or (ready_since is not None and now - ready_since > _ROUTE_SECONDS):
            return document
        if state == "awaiting_upload" and now - said > _UNSEEN_SECONDS:
            client.complete(tenant, model, version)
            said = now
        if now - started > timeout_seconds:
            raise CommandError(
                f"{tenant}/{model} {version} is still {state} after {timeout_seconds:.0f} s: look again with 'mme models {tenant} {model}'"
            )
        if client.retries.stop.wait(wait):
            raise StoppedError
        wait = min(wait * 1.3, _GREATEST_WAIT_SECONDS)
