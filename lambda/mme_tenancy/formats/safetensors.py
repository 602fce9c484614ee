"""safetensors: tensors without code. The format: huggingface/safetensors, README, "Format"."""

from __future__ import annotations

import json

from mme_tenancy.formats.content import ContentFault, Parser

__all__ = ["safetensors"]

_HEADER_BYTES = 2 << 20
"""The library takes 100 MB; a thousand tensors need about 100 kB."""


def safetensors(size_bytes: int) -> Parser:
    """A whole file of ``size_bytes``; raises `ContentFault`."""
    length = int.from_bytes((yield 8), "little")
    if not 2 <= length <= min(_HEADER_BYTES, size_bytes - 8):
        raise ContentFault(f"the file is no safetensors: a header of {length} bytes")
    text = yield length
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContentFault("the header of the safetensors file is not JSON") from error
    if not isinstance(header, dict):
        raise ContentFault("the header of the safetensors file is no object")
    data_bytes = size_bytes - 8 - length
    spans = sorted(_span(name, tensor, data_bytes) for name, tensor in header.items() if name != "__metadata__")
    position = 0
    for begin, end in spans:
        if begin != position:
            raise ContentFault("the tensors of the safetensors file overlap or leave holes")
        position = end
    if position != data_bytes:
        raise ContentFault("the safetensors file is longer than its tensors")
    yield -data_bytes


def _span(name: str, tensor: object, data_bytes: int) -> tuple[int, int]:
    offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(offset) is int for offset in offsets)):
        raise ContentFault(f"tensor {name[:80]!r} of the safetensors file has no data_offsets")
    begin, end = offsets
    if not 0 <= begin <= end <= data_bytes:
        raise ContentFault(f"tensor {name[:80]!r} of the safetensors file lies outside the file")
    return begin, end
