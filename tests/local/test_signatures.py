"""Quick verification says yes to what botocore signs, and to nothing else."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from mme_local.signatures import parse_signature, signature_holds

KEY, SECRET = "AKIAEXAMPLE", "a secret"
PATH = "/endpoints/shared/invocations"

printable = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)


def signed(path=PATH, body=b"1,2,3", token=None, service="sagemaker", **headers):
    """Headers as the gateway sees them, signed now by botocore."""
    request = AWSRequest("POST", f"http://127.0.0.1:4566{path}", headers=headers, data=body)
    SigV4Auth(Credentials(KEY, SECRET, token), service, "us-east-1").add_auth(request)
    return {"host": "127.0.0.1:4566", **{name.lower(): value for name, value in request.headers.items()}}


def holds(headers, *, path=PATH, body=b"1,2,3", method="POST", secret=SECRET, later=0.0):
    signature = parse_signature(headers["authorization"])
    assert signature is not None
    now = datetime.now(UTC) + timedelta(seconds=later)
    return signature_holds(signature, secret, method, path, headers, body, now.timestamp())


@given(
    body=st.binary(max_size=200),
    target=printable.map(str.strip),
    attributes=printable,
    token=st.none() | st.text("abcdef/+=", min_size=1),
    service=st.sampled_from(["sagemaker", "application-autoscaling", "dynamodb"]),
)
def test_what_botocore_signs_holds_and_no_change_of_it_does(body, target, attributes, token, service):
    given_headers = {"X-Amzn-SageMaker-Target-Model": target, "X-Amzn-SageMaker-Custom-Attributes": attributes}
    headers = signed(body=body, token=token, service=service, **given_headers)
    assert holds(headers, body=body)
    assert not holds(headers, body=body + b" ")
    assert not holds(headers, body=body, secret="another")
    assert not holds(headers, body=body, method="PUT")
    assert not holds(headers, body=body, path=PATH + "x")
    for name in set(headers) - {"authorization", "content-length"}:
        assert not holds({**headers, name: headers[name] + "x"}, body=body), name
        another = "x" * (len(headers[name]) + 1)
        assert not holds({other: value for other, value in headers.items() if other != name} | {name: another}, body=body), name


@pytest.mark.parametrize("path", ["/", "/a%2Fb/invocations", "/a/./b/../c/", "//a//b", "/a b", "/~tilde_-.", "/a:b@c"])
def test_paths_are_normalized_as_signers_do(path):
    raw = path.replace(" ", "%20")
    assert holds(signed(path=raw), path=raw)


def test_headers_that_are_not_signed_do_not_count():
    headers = signed()
    assert holds({**headers, "user-agent": "anything"})


def test_the_declared_digest_must_be_the_bodys():
    digest = hashlib.sha256(b"1,2,3").hexdigest()
    assert holds(signed(**{"X-Amz-Content-SHA256": digest}))
    for other in ("UNSIGNED-PAYLOAD", hashlib.sha256(b"").hexdigest(), "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"):
        assert not holds(signed(**{"X-Amz-Content-SHA256": other}))


@pytest.mark.parametrize(("later", "expected"), [(0, True), (290, True), (-290, True), (310, False), (-310, False), (86400, False)])
def test_a_signature_holds_for_five_minutes(later, expected):
    assert holds(signed(), later=later) is expected


@pytest.mark.parametrize("date", ["", "20269901T000000Z", "2026-01-01T00:00:00Z", "20260101T000000"])
def test_a_date_that_is_none_does_not_hold(date):
    assert not holds({**signed(), "x-amz-date": date})


def test_a_date_of_another_day_than_the_scopes_does_not_hold():
    headers = signed()
    day = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y%m%d")
    assert not holds({**headers, "x-amz-date": day + headers["x-amz-date"][8:]}, later=86400)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text.replace("AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"),
        lambda text: text.replace("aws4_request", "aws5_request"),
        lambda text: text.replace("Signature=", "Signature="[:-1]),
        lambda text: text[:-1],
        lambda text: text + "0",
        lambda text: text.upper(),
        lambda text: text.replace("/us-east-1", ""),
        lambda text: text + ", Signature=" + "0" * 64,
    ],
)
def test_other_forms_are_left_to_the_emulator(change):
    assert parse_signature(change(signed()["authorization"])) is None
