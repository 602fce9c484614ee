"""The key grammar: tenant, model and version ids, and every S3 key, TargetModel and IAM pattern that is built from them.

No other module may put a key together or take one apart.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime

__all__ = [
    "ARTIFACT_SUFFIX",
    "HEAT_NOTE_KEY",
    "HEAT_PREFIX",
    "ID_PATTERN",
    "INCOMING_PREFIX",
    "MODELS_PREFIX",
    "PREFETCH_PREFIX",
    "RESULTS_PREFIX",
    "RESULT_PATTERN",
    "SHA256_PATTERN",
    "SHA256_RULE",
    "TENANT_TAG",
    "VERSION_PATTERN",
    "ArtifactName",
    "GrammarError",
    "HeatKey",
    "VersionId",
    "check_model_id",
    "check_pool_name",
    "check_prefix",
    "check_result_id",
    "check_sha256",
    "check_tenant_id",
    "component_name",
    "component_name_prefix",
    "artifact_pattern",
    "heat_moment",
    "heat_prefix",
    "prefetch_key",
    "result_key",
    "tenant_pattern",
    "tenant_tag_value",
]

MODELS_PREFIX = "models/"
"""The MME prefix. It always ends in a slash: the service joins it with TargetModel as it stands."""
INCOMING_PREFIX = "incoming/"
"""Where tenants upload; objects expire after a day."""
HEAT_PREFIX = "heat/"
HEAT_NOTE_KEY = f"{HEAT_PREFIX}recounted.json"
"""Where the collector of heat notes up to when it counted all windows again."""
PREFETCH_PREFIX = "prefetch/"
"""Where the function that warms models remembers how each pool's are used."""
RESULTS_PREFIX = "results/"
ARTIFACT_SUFFIX = ".tar.gz"
TENANT_TAG = "tenant"
"""The session tag that says whose session it is, and the resource tag that says whose inference component it is."""

ID_PATTERN = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
"""What a whole tenant or model id matches; in Python and in ECMAScript, as the other patterns."""
VERSION_PATTERN = "v([1-9][0-9]{0,5})-([0-9a-f]{12})"
"""What a whole version id matches: its number and its digits of the digest."""
SHA256_PATTERN = "[0-9a-f]{64}"
"""What a whole digest matches."""
RESULT_PATTERN = "[0-9a-f]{32}"
"""What the whole id of an answer that comes later matches."""
_ID, _VERSION, _SHA256 = re.compile(ID_PATTERN), re.compile(VERSION_PATTERN), re.compile(SHA256_PATTERN)
_RESULT = re.compile(RESULT_PATTERN)
_POOL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_HEAT = re.compile(r"([0-9]{8}T[0-9]{6}Z)-([1-9][0-9]{0,5})s\.json\.gz")
_HEAT_MOMENT = "%Y%m%dT%H%M%SZ"
_PREFIX = re.compile(r"(?:[A-Za-z0-9!_.*'()-]+/)+")
SHA256_RULE = "the 64 lower-case hexadecimal digits of the artifact's SHA-256"
"""The same in words."""
_ID_RULE = "1 to 63 lower-case letters, digits and inner hyphens"


class GrammarError(ValueError):
    """A name outside the grammar.

    Attributes:
        field: which name it is (``tenant``, ``model``, ``version`` ...).
        value: the value got.
        allowed: the rule in words.
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        super().__init__(f"{field} {value!r} is not allowed: use {allowed}")


def _check_id(field: str, value: object) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise GrammarError(field, value, _ID_RULE)
    return value


def check_tenant_id(value: object) -> str:
    """Return ``value`` if it is a tenant id, else raise `GrammarError`."""
    return _check_id("tenant", value)


def check_model_id(value: object) -> str:
    """Return ``value`` if it is a model id, else raise `GrammarError`."""
    return _check_id("model", value)


def check_sha256(value: object) -> str:
    """Return ``value`` if it is a SHA-256 in lower-case hexadecimal, else raise `GrammarError`."""
    if not isinstance(value, str) or not _SHA256.fullmatch(value):
        raise GrammarError("sha256", value, SHA256_RULE)
    return value


def check_result_id(value: object) -> str:
    """Return ``value`` if it is the id of an answer that comes later, else raise `GrammarError`."""
    if not isinstance(value, str) or not _RESULT.fullmatch(value):
        raise GrammarError("result", value, "the 32 lower-case hexadecimal digits that the invocation was answered with")
    return value


def result_key(tenant: str, result: str, part: str = "") -> str:
    """The key of an answer that comes later, or of what lies beside it: ``part`` is ``request`` or ``begun``."""
    key = f"{RESULTS_PREFIX}{check_tenant_id(tenant)}/{check_result_id(result)}"
    return f"{key}.{part}" if part else key


def check_prefix(value: object) -> str:
    """Return ``value`` if it is an S3 prefix of whole folders (``models/``), else raise `GrammarError`."""
    if not isinstance(value, str) or not _PREFIX.fullmatch(value) or value.endswith(f"{ARTIFACT_SUFFIX}/"):
        raise GrammarError("prefix", value, "folder names that each end in '/', such as 'models/'")
    return value


@dataclass(frozen=True, slots=True)
class VersionId:
    """A version id ``v<number>-<first 12 hex of the artifact's SHA-256>``.

    Attributes:
        number: 1 to 999,999, counted up within the model.
        digest: the first 12 hexadecimal digits of the SHA-256.
    """

    number: int
    digest: str

    @classmethod
    def of(cls, number: int, sha256: str) -> VersionId:
        """The id of version ``number`` with this SHA-256 (64 hexadecimal digits)."""
        return cls.parse(f"v{number}-{check_sha256(sha256)[:12]}")

    @classmethod
    def parse(cls, text: object) -> VersionId:
        """Parse an id as it appears in paths and keys; raises `GrammarError`."""
        match = _VERSION.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise GrammarError("version", text, "v<number>-<12 hexadecimal digits>, such as v1-0123456789ab")
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"v{self.number}-{self.digest}"


@dataclass(frozen=True, slots=True)
class ArtifactName:
    """Names one artifact: ``<tenant>/<model>/<version>.tar.gz`` below a prefix."""

    tenant: str
    model: str
    version: VersionId

    def __post_init__(self) -> None:
        check_tenant_id(self.tenant)
        check_model_id(self.model)

    @classmethod
    def parse(cls, target_model: str) -> ArtifactName:
        """Parse a TargetModel, or a key without its prefix; raises `GrammarError`."""
        parts = target_model.removesuffix(ARTIFACT_SUFFIX).split("/")
        if len(parts) != 3 or not target_model.endswith(ARTIFACT_SUFFIX):
            raise GrammarError("artifact", target_model, f"<tenant>/<model>/<version>{ARTIFACT_SUFFIX}")
        return cls(parts[0], parts[1], VersionId.parse(parts[2]))

    @classmethod
    def parse_incoming(cls, key: str) -> ArtifactName:
        """Parse the S3 key of an upload; raises `GrammarError`."""
        if not key.startswith(INCOMING_PREFIX):
            raise GrammarError("key", key, f"{INCOMING_PREFIX}<tenant>/<model>/<version>{ARTIFACT_SUFFIX}")
        return cls.parse(key[len(INCOMING_PREFIX) :])

    @property
    def target_model(self) -> str:
        """What InvokeEndpoint takes as TargetModel."""
        return f"{self.tenant}/{self.model}/{self.version}{ARTIFACT_SUFFIX}"

    @property
    def incoming_key(self) -> str:
        """Where the tenant uploads it."""
        return INCOMING_PREFIX + self.target_model

    def artifact_key(self, models_prefix: str = MODELS_PREFIX) -> str:
        """Where the admitted artifact lies for good."""
        return models_prefix + self.target_model


def artifact_pattern() -> str:
    """The IAM pattern of every version's artifact, relative to a prefix; nothing shorter or of another kind matches."""
    return "*/*/v*-*.tar.gz"


@dataclass(frozen=True, slots=True, order=True)
class HeatKey:
    """Names the heat of one pool in one window: ``heat/<pool>/<start>-<seconds>s.json.gz``. Keys of a pool sort by time.

    Attributes:
        pool: the pool's name.
        start: the window's beginning, epoch seconds.
        seconds: its length.
    """

    pool: str
    start: int
    seconds: int

    def __post_init__(self) -> None:
        check_pool_name(self.pool)

    @classmethod
    def parse(cls, key: str) -> HeatKey:
        """Parse an S3 key; raises `GrammarError`."""
        pool, _, name = key.removeprefix(HEAT_PREFIX).partition("/")
        match = _HEAT.fullmatch(name)
        allowed = f"{HEAT_PREFIX}<pool>/<start>-<seconds>s.json.gz"
        if match is None or not key.startswith(HEAT_PREFIX):
            raise GrammarError("key", key, allowed)
        try:
            start = datetime.strptime(match[1], _HEAT_MOMENT).replace(tzinfo=UTC)
        except ValueError:
            raise GrammarError("key", key, allowed) from None
        return cls(pool, int(start.timestamp()), int(match[2]))

    @property
    def end(self) -> int:
        """The window's end, epoch seconds, which is not of it."""
        return self.start + self.seconds

    @property
    def key(self) -> str:
        """The S3 key."""
        return f"{heat_prefix(self.pool)}{heat_moment(self.start)}-{self.seconds}s.json.gz"


def check_pool_name(value: object) -> str:
    """Return ``value`` if it can name a pool in keys, else raise `GrammarError`."""
    if not isinstance(value, str) or not _POOL.fullmatch(value):
        raise GrammarError("pool", value, "1 to 63 letters, digits and inner dots, hyphens and underscores")
    return value


def heat_prefix(pool: str) -> str:
    """What the keys of a pool's heat start with."""
    return f"{HEAT_PREFIX}{check_pool_name(pool)}/"


def prefetch_key(pool: str) -> str:
    """Where it is remembered how the models of a pool are used."""
    return f"{PREFETCH_PREFIX}{check_pool_name(pool)}.json.gz"


def heat_moment(epoch_seconds: float) -> str:
    """A moment as it stands in the keys of heat, such as ``20261130T012000Z``: it sorts by time."""
    return datetime.fromtimestamp(epoch_seconds, UTC).strftime(_HEAT_MOMENT)


def tenant_pattern(tenant: str) -> str:
    """The IAM pattern of everything of one tenant, relative to a prefix: ``acme/*``.

    The literal part ends in ``/``, so ``acme`` never matches ``acme-evil/``. ``tenant`` is an id or an IAM policy
    variable such as ``${aws:PrincipalTag/tenant}``.
    """
    if not (tenant.startswith("${") and tenant.endswith("}")):
        check_tenant_id(tenant)
    return f"{tenant}/*"


def tenant_tag_value(tenant: str) -> str:
    """What the tag `TENANT_TAG` must equal in a policy: a tenant id or an IAM policy variable; raises `GrammarError`."""
    return tenant_pattern(tenant).removesuffix("/*")


def component_name_prefix(endpoint_name: str) -> str:
    """What the names of all inference components of one dedicated endpoint start with; it says nothing about tenants."""
    return f"c{hashlib.sha256(endpoint_name.encode()).hexdigest()[:10]}-"


def component_name(endpoint_name: str, tenant: str, model: str) -> str:
    """The name of the inference component that serves a tenant's model on a dedicated endpoint, 44 characters.

    It holds a digest instead of the ids, so that the components of ``acme`` and ``acme-evil`` share no prefix that a policy could name.
    The name stays over versions: a new version updates the component.

    Raises:
        GrammarError: tenant or model is outside the grammar.
    """
    whose = f"{check_tenant_id(tenant)}/{check_model_id(model)}"
    return component_name_prefix(endpoint_name) + hashlib.sha256(whose.encode()).hexdigest()[:32]
