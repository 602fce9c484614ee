"""IAM policy variables: ``${aws:PrincipalTag/tenant}`` in resources and condition values.

Pure: works on strings. Source of the rules: IAM user guide, "IAM policy elements: Variables and tags".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

__all__ = ["NOTHING", "literal", "pattern", "pattern_matches", "substitute", "substitute_all"]

NOTHING = "\ue003"
"""A resource pattern that matches no resource: every ARN starts with ``arn:``."""

_VARIABLE = re.compile(r"\$\{\s*([^{}]*?)\s*\}")
_DEFAULT = re.compile(r"(?P<key>[^,]+?)\s*,\s*'(?P<default>[^']*)'")
_ESCAPES = {"*": "\ue000", "?": "\ue001", "$": "\ue002"}
_LITERALS = {escape: character for character, escape in _ESCAPES.items()}
_TO_ESCAPES = str.maketrans(_ESCAPES)
_TO_LITERALS = str.maketrans(_LITERALS)


def substitute(text: str, resolve: Callable[[str], object]) -> str | None:
    """Replace the policy variables of ``text``.

    Wildcards that come out of a variable, and ``${*}``, ``${?}`` and ``${$}``, are literal characters: the result
    marks them so that `pattern` and `literal` can tell them from wildcards that the policy's author wrote.

    Args:
        text: a resource pattern or a condition value.
        resolve: condition key -> its value in the request; None when absent, a list when it has several values.

    Returns:
        The substituted text, or None when a variable without a default has no single value: it then matches nothing.
    """
    missing = False

    def value_of(match: re.Match[str]) -> str:
        nonlocal missing
        key, default = match[1], None
        if key in _ESCAPES:
            return _ESCAPES[key]
        if with_default := _DEFAULT.fullmatch(key):
            key, default = with_default["key"], with_default["default"]
        value = resolve(key)
        if isinstance(value, list):
            value = value[0] if len(value) == 1 else None
        if value is None:
            value = default
        if value is None:
            missing = True
            return ""
        return str(value).translate(_TO_ESCAPES)

    substituted = _VARIABLE.sub(value_of, text)
    return None if missing else substituted


def literal(substituted: str) -> str:
    """The plain text of a `substitute` result, for operators without wildcards."""
    return substituted.translate(_TO_LITERALS)


@lru_cache(maxsize=4096)
def pattern(substituted: str) -> re.Pattern[str]:
    """The compiled IAM pattern of a `substitute` result: ``*`` and ``?`` are wildcards, marked characters are not."""
    parts = []
    for character in substituted:
        if character == "*":
            parts.append(".*")
        elif character == "?":
            parts.append(".")
        else:
            parts.append(re.escape(_LITERALS.get(character, character)))
    return re.compile("".join(parts), re.DOTALL)


def pattern_matches(value: str, substituted: str) -> bool:
    """Case-sensitive match of the whole value, as IAM does for Resource, StringLike and the Arn operators."""
    return pattern(substituted).fullmatch(value) is not None


def substitute_all(texts: Sequence[str], resolve: Callable[[str], object]) -> list[str]:
    """`substitute` for a list; what cannot be resolved becomes `NOTHING`."""
    return [NOTHING if (text := substitute(item, resolve)) is None else text for item in texts]
