"""Where known servers differ from the rules: one table, which the suite and the documentation use."""

from __future__ import annotations

from dataclasses import dataclass

from mme_local.dataplane.interface import SERVER_NAMES

__all__ = ["DIFFERENCES", "Difference", "differences_of"]


@dataclass(frozen=True, slots=True)
class Difference:
    """A rule that a known server breaks.

    Attributes:
        server: its name in `mme_local.dataplane.DataPlaneSettings.servers`.
        rule: id of the rule.
        seen: what the server does instead.
        consequence: what that means for its users.
        harmful: checking the rule ends the server, so it is not checked.
    """

    server: str
    rule: str
    seen: str
    consequence: str
    harmful: bool = False


DIFFERENCES = (
    Difference(
        "triton",
        "server.survives-malformed",
        "a body that is not JSON ends the server",
        "none: the platform sends JSON",
        harmful=True,
    ),
    Difference(
        "triton",
        "list.json-type",
        "the Content-Type is text/plain",
        "none: the platform reads JSON",
    ),
    Difference(
        "triton",
        "invoke.target-model",
        "a model is found by the header that its load had, not by the name in the path",
        "none: the platform sends the same TargetModel with a model's load, invocations and unload",
    ),
    Difference(
        "mms",
        "load.malformed",
        "answers 500",
        "none: the platform sends JSON",
    ),
    Difference(
        "mms",
        "load.too-large-leaves-nothing",
        "after 507 the model stays registered without workers, and its next load answers 409",
        "unload a model after a 507, as the local cloud does",
    ),
)


def differences_of(server: str | None) -> dict[str, Difference]:
    """The differences of a known server, by rule; none of ``None``. Raises `ValueError` for a server that is not known."""
    if server is not None and server not in SERVER_NAMES:
        raise ValueError(f"there is no server {server!r}: use one of {', '.join(SERVER_NAMES)}")
    return {difference.rule: difference for difference in DIFFERENCES if difference.server == server}
