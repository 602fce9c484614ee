"""What schemathesis needs to know of the API beside its document: how calls are signed, and a model that is there.

A module of its own because schemathesis loads it in its own process (``SCHEMATHESIS_HOOKS``).
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import requests
import schemathesis
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from mme_facts.grammar import ID_PATTERN, RESULT_PATTERN, VERSION_PATTERN


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


KNOWN, DOOMED = json.loads(os.environ["FUZZ_KNOWN"]), json.loads(os.environ["FUZZ_DOOMED"])
"""Names of a tenant, model, version and later answer that stay, and of those that calls may delete, by the operation."""


@schemathesis.hook
def map_path_parameters(_context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Half of the names that are right become those of the model that is there: other calls end at 404."""
    for name, rule in (("tenant", ID_PATTERN), ("model", ID_PATTERN), ("version", VERSION_PATTERN), ("result", RESULT_PATTERN)):
        _make_known(path_parameters or {}, name, rule)
    return path_parameters


@schemathesis.hook
def map_body(_context: Any, body: Any) -> Any:
    """The same for the version in a body."""
    if isinstance(body, dict):
        _make_known(body, "version", VERSION_PATTERN)
    return body


def _make_known(values: dict[str, Any], name: str, rule: str) -> None:
    value = values.get(name)
    if isinstance(value, str) and re.fullmatch(rule, value) and sum(value.encode()) % 2:
        values[name] = KNOWN[name]


@schemathesis.hook
def filter_case(_context: Any, case: schemathesis.Case) -> bool:
    """No forms for the model: multi-model-server, as in SageMaker's images, takes them apart and fails at those that are none."""
    return case.media_type not in ("multipart/form-data", "application/x-www-form-urlencoded")


@schemathesis.hook
def before_call(_context: Any, case: schemathesis.Case, _kwargs: Any) -> None:
    """Deletions leave the model alone that the other calls need."""
    # Other calls are tried with DELETE, too: API Gateway refuses methods that a path does not have.
    doomed = DOOMED.get(case.operation.definition.raw["operationId"])
    if doomed and case.method == "DELETE" and (case.path_parameters or {}).get("tenant") == KNOWN["tenant"]:
        case.path_parameters.update({name: doomed[name] for name in case.path_parameters if case.path_parameters[name] == KNOWN[name]})


schemathesis.auth.set_from_requests(SigV4())
