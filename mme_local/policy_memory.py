"""Policies are parsed once, and what they decide for the same question is remembered.

A remembered decision is never out of date, because nothing has to be forgotten: the question holds everything that the evaluation
reads - the texts of all policies that apply, the principal with its tags, the action, the resource, the request's context. Whoever
changes any of them asks another question. Policies that look at the clock, or at what is not part of the question, are always asked anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

__all__ = ["Decisions", "ParsedPolicy", "remember_parsed"]

_DOCUMENTS = 2048
_DECISIONS = 16384
_BEYOND_THE_QUESTION = ("aws:currenttime", "aws:epochtime", "aws:principalorgid")


class ParsedPolicy(list[Any]):
    """The statements of one policy's text; equal only to itself, so that it stands for the text.

    Attributes:
        timeless: whether it reads nothing but the question.
    """

    __slots__ = ("timeless",)

    def __init__(self, statements: Iterable[Any]) -> None:
        super().__init__(statements)
        text = repr(list(self)).lower()
        self.timeless = not any(key in text for key in _BEYOND_THE_QUESTION)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


def remember_parsed(parse: Callable[[Any], list[Any]]) -> Callable[[Any], list[Any]]:
    """``parse`` for texts once each; other documents, which may be changed in place, every time.

    Args:
        parse: a policy's text or document -> its statements, which nobody changes.
    """

    @lru_cache(maxsize=_DOCUMENTS)
    def parsed(text: str) -> ParsedPolicy:
        return ParsedPolicy(parse(text))

    def remembered(document: Any) -> list[Any]:
        return parsed(document) if isinstance(document, str) else parse(document)

    return remembered


class Decisions:
    """Remembers the results of an evaluation.

    Args:
        evaluate: the emulator's: context, policies, and layers that limit them -> result.
    """

    def __init__(self, evaluate: Callable[..., Any]) -> None:
        self._evaluate = evaluate
        self._known: dict[Hashable, Any] = {}

    def __call__(self, context: Any, policies: Sequence[Any], *limits: Sequence[Any]) -> Any:
        """The result for a question, as ``evaluate`` gives it."""
        question = _question(context, policies, limits)
        if question is None:
            return self._evaluate(context, policies, *limits)
        result = self._known.get(question)
        if result is None:
            if len(self._known) >= _DECISIONS:
                self._known.clear()
            result = self._known[question] = self._evaluate(context, policies, *limits)
        # A copy: callers write into results.
        return type(result)(**vars(result))


def _question(context: Any, policies: Sequence[Any], limits: Sequence[Sequence[Any]]) -> Hashable | None:
    """Everything that the answer depends on; ``None`` when that cannot be said."""
    layers = (tuple(policies), *map(tuple, limits))
    if not all(type(policy) is ParsedPolicy and policy.timeless for layer in layers for policy in layer):
        return None
    try:
        return (
            layers,
            context.principal_arn,
            context.principal_type,
            context.principal_account,
            context.action,
            context.resource_arn,
            context.region,
            context.source_ip,
            context.secure_transport,
            _frozen(context.request_tags),
            tuple(context.tag_keys),
            _frozen(context.service_context),
            _frozen(context.principal_keys),
        )
    except TypeError:
        return None


def _frozen(values: Mapping[str, Any]) -> Hashable:
    """Names and values; values that are equal and print differently (1 and true) stay different. Raises `TypeError` for odd ones."""
    return tuple(
        (name, value) if value is None or type(value) is str else (name, type(value), _printed(value)) for name, value in values.items()
    )


def _printed(value: object) -> Hashable:
    if isinstance(value, list):
        return tuple(_printed(item) for item in value)
    if isinstance(value, str | bool | int | float):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no value of a condition key")
