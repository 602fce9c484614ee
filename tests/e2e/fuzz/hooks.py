"""What schemathesis needs to know of the API beside its document: how calls are signed, and a model that is there.

A module of its own because schemathesis loads it in its own process (``SCHEMATHESIS_HOOKS``).
"""

from __future__ import annotations

import os
import re
from typing import Any

import requests
import schemathesis
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from mme_facts.grammar import ID_PATTERN


class SigV4(requests.auth.AuthBase):
    """Signs requests as they are sent, with the keys of the environment."""

    def __init__(self) -> None:
        keys = Credentials(os.environ["FUZZ_KEY"], os.environ["FUZZ_SECRET"], os.environ["FUZZ_TOKEN"])
        self._auth = SigV4Auth(keys, "execute-api", os.environ["FUZZ_REGION"])

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        body = request.body or b""
        signed = AWSRequest(request.method, request.url, data=body.encode() if isinstance(body, str) else body)
        self._auth.add_auth(signed)
        request.headers.update(signed.headers)
        return request


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Half of the names that are right become those of the model that is there: other calls end at 404."""
    for name in ("tenant", "model"):
        value = (path_parameters or {}).get(name)
        if isinstance(value, str) and re.fullmatch(ID_PATTERN, value) and sum(value.encode()) % 2:
            path_parameters[name] = os.environ[f"FUZZ_{name.upper()}"]
    return path_parameters


schemathesis.auth.set_from_requests(SigV4())
