"""How applications' values become payloads and answers become values: JSON, CSV and NumPy's own format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mme_tenancy.errors import ModelFailedError
from mme_tenancy.invocation import ModelReply

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

__all__ = ["AnswerUnreadableError", "Csv", "Json", "Numpy", "Serializer"]

_Value_contra = TypeVar("_Value_contra", contravariant=True)
_Answer_co = TypeVar("_Answer_co", covariant=True)


class AnswerUnreadableError(ModelFailedError):
    """The model's answer is not in the format that was asked for (502)."""

    @classmethod
    def of_reply(cls, wanted: str, content_type: str | None) -> AnswerUnreadableError:
        """The error for an answer that is not what is ``wanted``."""
        return cls(f"the model's answer, of type {content_type!r}, is not {wanted}", field="answer", value=content_type, allowed=wanted)


class Serializer(Protocol[_Value_contra, _Answer_co]):
    """Turns a value into a payload, and the model's answer into a value."""

    @property
    def content_type(self) -> str:
        """Media type of the payload, and of the answer that is asked for."""
        ...

    def dump(self, value: _Value_contra) -> bytes:
        """The payload; raises `ValueError` or `TypeError` for what the format cannot hold."""
        ...

    def load(self, reply: ModelReply) -> _Answer_co:
        """The answer's value; raises `AnswerUnreadableError`."""
        ...


class Json:
    """JSON in UTF-8; NaN and infinities are refused, because most servers do not read them."""

    content_type = "application/json"

    def dump(self, value: object) -> bytes:
        """The payload."""
        return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode()

    def load(self, reply: ModelReply) -> Any:
        """The answer's value; raises `AnswerUnreadableError`."""
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError) as error:
            raise AnswerUnreadableError.of_reply("JSON", reply.content_type) from error


class Csv:
    """Rows of values, without a header line; answers come as rows of text."""

    content_type = "text/csv"

    def dump(self, value: Iterable[Sequence[object]]) -> bytes:
        """The payload."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(value)
        return text.getvalue().encode()

    def load(self, reply: ModelReply) -> list[list[str]]:
        """The answer's rows; raises `AnswerUnreadableError`."""
        try:
            return [row for row in csv.reader(io.StringIO(reply.body.decode())) if row]
        except (ValueError, csv.Error) as error:
            raise AnswerUnreadableError.of_reply("CSV in UTF-8", reply.content_type) from error


class Numpy:
    """Arrays in NumPy's ``.npy`` format, without pickled objects; NumPy is needed only by who uses it."""

    content_type = "application/x-npy"

    def dump(self, value: ArrayLike) -> bytes:
        """The payload."""
        import numpy as np

        payload = io.BytesIO()
        np.save(payload, np.asarray(value), allow_pickle=False)
        return payload.getvalue()

    def load(self, reply: ModelReply) -> np.ndarray[Any, Any]:
        """The answer's array; raises `AnswerUnreadableError`."""
        import numpy as np

        try:
            array: np.ndarray[Any, Any] = np.load(io.BytesIO(reply.body), allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise AnswerUnreadableError.of_reply("a NumPy array", reply.content_type) from error
        return array
