"""Ten thousand requests that nobody should send, over raw sockets: no failure of ours, and no answer tells what is behind the API."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import random
import re
import socket
import threading
import urllib.parse
from collections import Counter
from dataclasses import dataclass, field

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SigningKeys

from mme_facts.limits import api_binary_body_bytes
from mme_facts.problems import CONTENT_TYPE, PROBLEMS
from tests.e2e.support import onboard_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

REQUESTS, THREADS = 10_000, 6
SEED = int(os.environ.get("MME_FUZZ_SEED", "20261130"))
HUSHED = "hushed-corp"
"""A tenant that no request names."""
UNKNOWN_METHODS = ("FOO", "post")
OURS = {slug for slug, problem in PROBLEMS.items() if problem.status < 500} | {"model-failed", "model-loading", "unavailable", "timeout"}
NOISE = [
    "",
    "0",
    "-1",
    "1e309",
    "nan",
    "null",
    "*/*",
    "a" * 300,
    "a" * 1025,
    "\x7f",
    "\xe4\xf6\xfc",
    "%00",
    "../..",
    "'\"<>",
    ",",
    ";;;",
    "\t",
    "{}",
]
TYPES = [
    "text/csv",
    "TEXT/CSV",
    "application/json",
    "application/x-npy",
    "application/octet-stream",
    "text/csv; charset=utf-16",
    "multipart/form-data",
]


@dataclass
class Request:
    """What goes over the wire.

    Attributes:
        who: whose keys sign it; ``None`` for nobody's.
        method: its method.
        path: below the stage, as it is sent.
        headers: lines beside those of the signature, in order, repeated ones too.
        body: the payload.
        chunked: whether it has no length but chunks.
    """

    who: str | None
    method: str
    path: str
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    chunked: bool = False


class Generator:
    """Makes requests: most of them would be right but for one or a few things."""

    def __init__(self, seed, row):
        self.random, self.row = random.Random(seed), row

    def request(self):
        chance = self.random
        path = self._path() if chance.random() < 0.35 else "/tenants/acme/models/iris/invocations"
        method = "POST"
        if path.partition("?")[0].endswith("/invocations") and chance.random() < 0.1:  # elsewhere a method may be a right one
            method = chance.choice(["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", *UNKNOWN_METHODS])
        who = chance.choices(["acme", "admin", "globex", None], [12, 6, 2, 1])[0]
        return Request(who, method, path, self._headers(), self._body(), chunked=chance.random() < 0.04)

    def _path(self):
        chance = self.random
        tenant = chance.choice(
            ["acme", "globex", "nobody", "ACME", "acme%2Fx", "acme%00", "..", "%2e%2e", "", "a" * 300, "{tenant}", "%F0%9F%92%A9"]
        )
        model = chance.choice(
            ["iris", "none", "Iris", "..", "%2E%2E%2Fglobex", "iris%20", "iris;x=1", "%ff", "iris%0d%0aX-Evil:1", "-", "a" * 64, "*"]
        )
        shape = chance.choice(
            [
                *["/tenants/{t}/models/{m}/invocations"] * 6,
                *(
                    "/tenants/{t}/models/{m}/invocations/",
                    "/tenants/{t}/models/{m}/../{m}/invocations",
                    "/tenants//{t}/models/{m}/invocations",
                ),
                *("/tenants/{t}/models/{m}", "/tenants/{t}", "/tenants/{t}/models/{m}/versions/{m}", "/", "/openapi.json", "/{m}"),
            ]
        )
        query = chance.choice(["", "", "", "?x=1", "?x=%zz&x=2", "?" + "q" * 500, "?TargetModel=globex/iris/v1.tar.gz"])
        return shape.format(t=tenant, m=model) + query

    def _headers(self):
        chance = self.random
        headers = (
            [("Content-Type", self._value([*["text/csv"] * 12, *TYPES])), ("Accept", self._value([*["text/csv", "*/*"] * 6, *TYPES]))]
            if chance.random() < 0.9
            else []
        )
        odd = {
            "X-Request-Timeout": ["1", "2", "5", "0.5", "1e9", "inf", "1_0", "\uff10"],
            "X-Mme-Sticky-Key": ["u1", "a" * 256, "a" * 257, " a", "ü"],
            "Prefer": ["respond-async", "Respond-Async, wait=1", "return=minimal", "wait=1"],
            "traceparent": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-" + "0" * 32 + "-b7ad6b7169203331-01"],
            "X-Amzn-Trace-Id": ["Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1", "Root=;;=;"],
            "Idempotency-Key": ["k", "k" * 300],
            "X-Amzn-SageMaker-Target-Model": ["globex/iris/v1.tar.gz"],
            "X-Amzn-SageMaker-Custom-Attributes": ["mme-memory-bytes=1"],
            "X-HTTP-Method-Override": ["DELETE"],
            "X-Forwarded-Host": ["evil.invalid"],
            "Content-Encoding": ["gzip", "br", "identity"],
            "Expect": ["nothing"],
            "Cookie": ["a=b"],
            "Range": ["bytes=0-1"],
            "If-Match": ['"x"'],
            "X-Long": ["a" * 6000],
        }
        for name in chance.sample(sorted(odd), chance.choice([0, 0, 1, 1, 2, 4])):
            headers += [(chance.choice([name, name.lower(), name.upper()]), self._value(odd[name]))] * chance.choice([1, 1, 1, 2])
        chance.shuffle(headers)
        return headers

    def _value(self, likely):
        return self.random.choice(likely if self.random.random() < 0.88 else NOISE)

    def _body(self):
        chance = self.random
        kind = chance.choices(range(8), [40, 10, 20, 10, 6, 6, 4, 0.15])[0]
        match kind:
            case 0:
                return self.row
            case 1:
                return b""
            case 2:
                return chance.randbytes(chance.choice([1, 3, 100, 5000]))
            case 3:
                return b"\n".join([self.row] * chance.choice([2, 50, 1000]))
            case 4:
                return chance.choice([b"{", b"[[1,2],[3]]", b'{"a":NaN}', b"[" * 2000, b'"\\ud800"', b"null"])
            case 5:
                return b"\x93NUMPY\x01\x00" + chance.randbytes(120)
            case 6:
                return gzip.compress(self.row)
            case _:
                return b"1," * (api_binary_body_bytes() // 2 + chance.choice([-10, 0, 10, 3_000_000]))


class Wire:
    """One caller's connection: requests go out byte by byte as they are, answers come back with every header."""

    def __init__(self, url, keys, region):
        address = urllib.parse.urlsplit(url)
        self.host, self.port, self.stage = address.hostname, address.port, address.path.rstrip("/")
        self.keys, self.region = keys, region
        self.socket = None

    def send(self, request):
        for fresh in (self.socket is None, True):
            if fresh:
                self.close()
                self.socket = socket.create_connection((self.host, self.port), timeout=40)
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                return self._exchange(request)
            except (ConnectionError, http.client.HTTPException):
                # A connection that was kept may have been closed meanwhile; a new one must answer.
                if fresh:
                    raise
        raise AssertionError("unreachable")

    def _exchange(self, request):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before all of the body was sent: there is an answer
            self.socket.sendall(self._bytes(request))
        answer = http.client.HTTPResponse(self.socket, method=request.method)
        answer.begin()
        body = answer.read()
        if answer.will_close:
            self.close()
        return answer.status, answer.getheaders(), body

    def close(self):
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def _bytes(self, request):
        lines = [("Host", f"{self.host}:{self.port}"), *self._signature(request), *request.headers]
        payload = request.body
        if request.chunked:
            lines.append(("Transfer-Encoding", "chunked"))
            pieces = [payload[at : at + 1000] for at in range(0, len(payload), 1000)]
            payload = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        else:
            lines.append(("Content-Length", str(len(payload))))
        head = f"{request.method} {self.stage}{request.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines)
        return head.encode("utf-8") + b"\r\n" + payload

    def _signature(self, request):
        if request.who is None:
            return []
        keys = self.keys[request.who]
        signed = AWSRequest(request.method, f"http://{self.host}:{self.port}{self.stage}{request.path}", data=request.body)
        SigV4Auth(SigningKeys(keys.access_key_id, keys.secret_access_key, keys.session_token), "execute-api", self.region).add_auth(signed)
        return [(name, signed.headers[name]) for name in ("X-Amz-Date", "X-Amz-Security-Token", "Authorization")]


@pytest.fixture(scope="module")
def platform(own_platform, demo_models):
    """A platform with one model each of a tenant that calls, of one that is called, and of one that nobody names."""
    folder, prepared = demo_models
    admin = own_platform.admin_client()
    artifact = (folder / prepared[0].artifact).read_bytes()
    for tenant, model in (("acme", "iris"), ("globex", "iris"), (HUSHED, "hushed-model")):
        admin.expect((201,), "PUT", f"/tenants/{tenant}", {"quotas": {"requests_per_second": 10_000}})
        onboard_model(own_platform.tenant_client(tenant), tenant, model, artifact, prepared[0].rows[0])
    return own_platform


@pytest.fixture(scope="module")
def internal(platform):
    """Everything that has a name behind the API, and what only our own code would say."""

    def every(service, operation, member, name=None):
        pages = platform.client(service).get_paginator(operation).paginate()
        return [item if name is None else item[name] for page in pages for item in page[member]]

    names = {
        *every("lambda", "list_functions", "Functions", "FunctionName"),
        *every("dynamodb", "list_tables", "TableNames"),
        *every("sagemaker", "list_endpoints", "Endpoints", "EndpointName"),
        *every("sagemaker", "list_models", "Models", "ModelName"),
        *every("s3", "list_buckets", "Buckets", "Name"),
        *every("iam", "list_roles", "Roles", "RoleName"),
    }
    assert len(names) > 10
    words = {"arn:aws", "Traceback", "botocore", "boto3", "mme_tenancy", "mme_local", "/var/task", "site-packages", "localstack", "moto"}
    return {name.lower() for name in {*names, *words, platform.state.account, HUSHED, "hushed-model", "AKIA", "ASIA", ".tar.gz", "s3://"}}


@dataclass
class Findings:
    """What was answered."""

    statuses: Counter = field(default_factory=Counter)
    texts: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def findings(platform, internal, demo_models):
    generator = Generator(SEED, demo_models[1][0].rows[0].encode())
    requests = [generator.request() for _ in range(REQUESTS)]
    keys = {"admin": platform.admin_keys} | {tenant: platform.tenant_keys(tenant) for tenant in ("acme", "globex")}
    found, lock, leaks = Findings(), threading.Lock(), re.compile("|".join(map(re.escape, sorted(internal))) + r"|\.py\b|line \d+, in ")

    def work(numbers):
        wire = Wire(platform.state.output("ApiUrl"), keys, platform.state.region)
        for number in numbers:
            request = requests[number]
            try:
                status, headers, body = wire.send(request)
            except Exception as error:
                status, headers, body, complaint = 0, [], b"", repr(error)
            else:
                complaint = complaint_about(request, status, headers, body, leaks)
            with lock:
                found.statuses[status] += 1
                found.texts[status, body[-120:] if status >= 300 else b""] += 1
                if complaint is not None:
                    found.wrong.append(f"{number} {complaint}: {str(request)[:900]} -> {status} {headers} {body[:600]!r}")
        wire.close()

    threads = [threading.Thread(target=work, args=(range(number, REQUESTS, THREADS),)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def well_formed(request):
    """Whether the request is HTTP."""
    values = "".join(value for _, value in request.headers)
    return request.method not in UNKNOWN_METHODS and all(character == "\t" or character.isprintable() for character in values)


def complaint_about(request, status, headers, body, leaks):
    """What is wrong with an answer; ``None`` if nothing is."""
    text = (f"{headers}".encode() + body).decode("utf-8", "replace").lower()
    if (leak := leaks.search(text)) is not None:
        return f"tells {leak[0]!r}"
    if 200 <= status < 300 or request.method == "HEAD":
        return None if status < 500 else "failed"
    if status == 400 and not well_formed(request):
        return None  # the server in front of everything refused what is no HTTP, as API Gateway's does
    names = {name.lower(): value for name, value in headers}
    if names.get("content-type") != CONTENT_TYPE:
        return "is no problem document"
    document = json.loads(body)
    slug = document["type"].removeprefix("urn:mme:problem:")
    if slug not in OURS or PROBLEMS[slug].status != document["status"] or document["status"] != status:
        return f"is the problem {slug}"
    return None


def test_no_request_makes_the_service_fail_and_no_answer_tells_what_is_behind_it(findings):
    assert findings.wrong == [], f"seed {SEED}, {len(findings.wrong)} findings: " + "\n".join(findings.wrong[:40])


def test_many_requests_reached_the_model_and_many_did_not(findings):
    assert sum(findings.statuses.values()) == REQUESTS
    assert findings.statuses[200] >= REQUESTS // 10, found_most(findings)
    assert {400, 403, 404, 413, 422} <= set(findings.statuses), found_most(findings)


def found_most(findings):
    """What was answered most often."""
    return findings.texts.most_common(40)
