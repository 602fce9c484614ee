"""The bodies that tenants and operators send, field by field: what the handlers check, and what the OpenAPI document says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mme_facts.api import ACTIVATION_SECONDS
from mme_facts.grammar import SHA256_PATTERN, SHA256_RULE, VERSION_PATTERN
from mme_facts.limits import SAMPLE_BODY_BYTES
from mme_tenancy.shapes import Absent, Choice, Flag, Many, Member, Number, Obj, Text, Whole, nullable
from mme_tenancy.tenants import Tier
from mme_tenancy.uploads import GREATEST_UPLOAD_BYTES

__all__ = ["ACTIVATION", "BASE64", "ENCODINGS", "NOTHING", "percent_of", "registration_shape", "request_shapes", "tenant_shape"]

_NOTES_CHARACTERS = 1000
_SAMPLE_CHARACTERS = -(-SAMPLE_BODY_BYTES // 3) * 4
"""Of the payload in base64. As plain text it may have as many bytes as `SAMPLE_BODY_BYTES`, whatever its characters."""

BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
"""What whole base64 matches."""
ENCODINGS = ("utf-8", "base64")
NOTHING = Obj({})
"""The body of calls that take none: nothing, or an empty object."""

_MEDIA_TYPE = Text(
    "a media type such as text/csv",
    pattern=r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+*-]{1,127}(?: {0,9};[ -~]{1,200})?",
)

SAMPLE = Obj(
    {
        "content_type": Member(_MEDIA_TYPE, "media type of the payload", example="text/csv"),
        "accept": Member(nullable(_MEDIA_TYPE), "media type of the answer; left to the container without it", default=None),
        "body": Member(
            Text("the payload as text that is not empty", least_characters=1, greatest_characters=_SAMPLE_CHARACTERS, too_large=True),
            f"the payload, at most {SAMPLE_BODY_BYTES} bytes",
            example="5.1,3.5,1.4,0.2",
        ),
        "encoding": Member(Choice(ENCODINGS), "how the payload is written in `body`", default="utf-8"),
    },
    extra={
        "if": {"properties": {"encoding": {"const": "base64"}}, "required": ["encoding"]},
        "then": {"properties": {"body": {"pattern": f"^{BASE64}$"}}},
        "else": {"properties": {"body": {"maxLength": SAMPLE_BODY_BYTES}}},
    },
)
"""A request that the model must be able to answer before it gets traffic."""


_LEAST_PERCENT = 0.01

ACTIVATION = Obj(
    {
        "version": Member(
            Text("a version's id such as v3-0123456789ab", pattern=VERSION_PATTERN),
            "id of a version that is ready or active",
            example="v1-0123456789ab",
        ),
        "canary": Member(
            nullable(
                Obj(
                    {
                        "percent": Member(
                            Number(0, 100, "a percentage"),
                            "its part of the sticky keys, to a hundredth; 0 ends the canary, 100 gives it all requests",
                            example=10,
                        )
                    }
                )
            ),
            "the version becomes a canary beside the active one; without it, it gets all requests",
            default=None,
        ),
        "warm": Member(
            Flag(),
            "whether the version is loaded before it gets more requests than now: its sample payload is called until it answers, for at "
            f"most {ACTIVATION_SECONDS} s; `false` switches at once, and its next request may have to wait for the load",
            default=True,
        ),
    }
)
"""Which version gets a model's requests, or a part of them."""


def percent_of(canary: Mapping[str, Any] | None) -> float:
    """The part of the requests that ``canary`` of `ACTIVATION` asks for, in percent: to a hundredth, and what is some stays some."""
    if canary is None:
        return 100.0
    percent: float = canary["percent"]
    return percent if percent in (0, 100) else min(max(round(percent, 2), _LEAST_PERCENT), 100 - _LEAST_PERCENT)


def registration_shape(*, max_artifact_bytes: int, frameworks: Sequence[str]) -> Obj:
    """The body of a registration.

    Args:
        max_artifact_bytes: greatest admissible artifact.
        frameworks: what the platform serves.
    """
    return Obj(
        {
            "sha256": Member(
                Text(SHA256_RULE, pattern=SHA256_PATTERN), "SHA-256 of the artifact, lower-case hexadecimal", example="0123456789abcdef" * 4
            ),
            "size_bytes": Member(
                Whole(1, min(max_artifact_bytes, GREATEST_UPLOAD_BYTES), what="the artifact's size in bytes", too_large=True),
                "size of the artifact",
                example=48_213,
            ),
            "framework": Member(Choice(frameworks), "what the artifact is made for", example=frameworks[0] if frameworks else None),
            "sample": Member(SAMPLE, "a request that the model must be able to answer before it gets traffic"),
            "activate": Member(
                Flag(),
                "whether the version takes the route by itself once it is admitted; if not, it waits as `ready` for a call",
                default=True,
            ),
            "notes": Member(
                nullable(Text(f"text of at most {_NOTES_CHARACTERS} characters", greatest_characters=_NOTES_CHARACTERS)),
                "the tenant's own words",
                default=None,
            ),
        }
    )


def tenant_shape(frameworks: Sequence[str]) -> Obj:
    """The settings of a tenant; members that are left out stay as they are.

    Args:
        frameworks: what the platform serves.
    """
    by_itself = "in each container of the function by itself"
    rate, held = f"invocations a second, {by_itself}", f"invocations under way, {by_itself}"
    loaded = f"models that are being loaded, {by_itself}"
    quotas = {
        "models": Member(Whole(0, 1_000_000, "models"), "models at the same time", Absent, example=100),
        "stored_bytes": Member(Whole(0, 2**50, "bytes"), "compressed bytes of all its artifacts", Absent, example=10 * 2**30),
        "requests_per_second": Member(Whole(1, 100_000, "requests"), rate, Absent, example=50),
        "in_flight": Member(Whole(1, 10_000, "requests"), held, Absent, example=64),
        "cold_loads": Member(Whole(1, 1_000, "models"), loaded, Absent, example=8),
    }
    formats = nullable(Many(Choice(frameworks), 1, max(len(frameworks), 1)))
    says = "frameworks whose artifacts it may bring; `null`: all that the platform serves"
    return Obj(
        {
            "tier": Member(Choice([tier.value for tier in Tier]), "how far it is trusted: only `trusted` may bring code", Absent),
            "quotas": Member(Obj(quotas), "what it may use", Absent),
            "formats": Member(formats, says, Absent, example=list(frameworks[:1]) or None),
        }
    )


def request_shapes(*, max_artifact_bytes: int, frameworks: Sequence[str]) -> dict[str, Obj]:
    """Every body, by its name in the OpenAPI document; arguments as those of `registration_shape`."""
    return {
        "Activation": ACTIVATION,
        "Nothing": NOTHING,
        "TenantSettings": tenant_shape(frameworks),
        "Registration": registration_shape(max_artifact_bytes=max_artifact_bytes, frameworks=frameworks),
    }
