"""Access keys of a principal."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

__all__ = ["Credentials"]

_KEY_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client signs with.

    Attributes:
        access_key_id: ``AKIA...`` of a user or ``ASIA...`` of a session.
        secret_access_key: never shown in a representation.
        session_token: of a session only.
    """

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)

    @classmethod
    def generate(cls) -> Credentials:
        """New long-term keys in the form AWS gives to users."""
        return cls("AKIA" + "".join(secrets.choice(_KEY_ALPHABET) for _ in range(16)), secrets.token_urlsafe(30))
