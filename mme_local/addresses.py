"""Where the local cloud serves what has another address on AWS."""

from __future__ import annotations

import re

__all__ = ["local_api_url"]

_STAGE = re.compile(r"https://(?P<api>[^./]+)\.execute-api\.[^/]+/(?P<path>.*)")


def local_api_url(url: str, endpoint_url: str) -> str:
    """The local address of an API Gateway URL: names of ``*.execute-api`` do not resolve locally.

    Args:
        url: such as ``https://abc123.execute-api.us-east-1.amazonaws.com/v1/``, as a stack's output has it.
        endpoint_url: the gateway's.

    Raises:
        ValueError: it is no such URL.
    """
    match = _STAGE.fullmatch(url)
    if match is None:
        raise ValueError(f"{url!r} is not the URL of an API Gateway stage: https://<id>.execute-api.<region>.<suffix>/<stage>/")
    return f"{endpoint_url}/_aws/execute-api/{match['api']}/{match['path']}"
