"""The OpenAPI document says what the handlers do: it is generated, current, true of the answers, and as strict as the validator."""

from __future__ import annotations

import base64
import copy
import json
import re
from dataclasses import dataclass

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mme_cli.openapi.document import DOCUMENT, build, text_of
from mme_cli.openapi.operations import ANSWERS
from mme_cli.openapi.page import PAGE, page_of
from mme_cli.openapi.records import Schemas
from mme_facts.api import KEY_OPERATIONS, OPERATIONS
from mme_facts.environment import Callers, CallerSource, Pool
from mme_facts.grammar import ID_PATTERN, VERSION_PATTERN, GrammarError, VersionId, check_tenant_id
from mme_facts.limits import SAMPLE_BODY_BYTES
from mme_facts.problems import PROBLEMS
from mme_tenancy.activation import Activator
from mme_tenancy.artifacts import Upload, UploadPart
from mme_tenancy.bodies import request_shapes
from mme_tenancy.errors import InvalidRequestError, TenancyError
from mme_tenancy.handlers.onboarding import Onboarding
from mme_tenancy.idempotency import KEY, IdempotencyKey
from mme_tenancy.registration import Registered, Registrar
from mme_tenancy.retirement import Retirer
from mme_tenancy.routes import Canary, Model, Route
from mme_tenancy.shapes import Choice, Flag, Many, Number, Obj, Required, Text, Whole
from mme_tenancy.tenant_settings import TenantStatus
from mme_tenancy.tenants import Quotas, Tenant, Tier, Usage
from mme_tenancy.testing import FakeClock, MemoryIdempotencyStore, MemoryRegistry, MemorySigner
from mme_tenancy.versions import Reason, Sample, State, Version
from tests.closed_schema import closed

SHA256 = "0123456789abcdef" * 4
LIMIT_BYTES = 10_000_000


@pytest.fixture(scope="module")
def document():
    return build()


def validator(document, schema):
    components = closed(document["components"]["schemas"])
    return jsonschema_rs.Draft202012Validator(
        {"$ref": f"#/components/schemas/{schema}", "components": {"schemas": components}},
        validate_formats=True,
        ignore_unknown_formats=True,
    )


class TestTheCommittedFiles:
    def test_the_document_is_what_the_code_says(self, document):
        assert DOCUMENT.read_text("utf-8") == text_of(document), "run: make openapi"

    def test_the_page_is_what_the_document_says(self, document):
        assert PAGE.read_text("utf-8") == page_of(document), "run: make openapi"

    def test_the_page_names_every_call_and_every_schema_with_members(self, document):
        page = page_of(document)
        for operation in EVERY:
            assert f"## {operation.method} {operation.path} {{ #{operation.id} }}" in page
        for name, schema in document["components"]["schemas"].items():
            assert (f"### {name} {{" in page) == bool(schema.get("properties"))


class TestTheDocument:
    def test_every_call_has_a_contract_and_no_other(self):
        assert set(ANSWERS) == {operation.id for operation in EVERY}

    def test_every_reference_leads_somewhere(self, document):
        for reference in set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(document))):
            place = document
            for part in reference.removeprefix("#/").split("/"):
                place = place[part]

    def test_every_link_names_a_call_and_its_parameters(self, document):
        known = {operation.id: set(re.findall(r"{(\w+)}", operation.path)) for operation in EVERY}
        links = [
            (name, link) for contract in ANSWERS.values() for answer in contract.answers.values() for name, link in answer.links.items()
        ]
        assert len(links) > 5
        for name, parameters in links:
            assert set(parameters) == known[name]

    def test_every_schema_is_one_and_its_examples_are_right(self, document):
        for name, schema in document["components"]["schemas"].items():
            for shown in schema.get("examples", []):
                validator(document, name).validate(shown)
        for response in document["components"]["responses"].values():
            ((_, content),) = response["content"].items()
            for shown in content["examples"].values():
                validator(document, "Problem").validate(shown["value"])

    def test_every_problem_of_a_call_has_its_own_status(self, document):
        for operation in EVERY:
            responses = document["paths"][operation.path][operation.method.lower()]["responses"]
            for slug in ANSWERS[operation.id].problems:
                named = responses[str(PROBLEMS[slug].status)]["$ref"].rpartition("/")[2]
                assert slug in named.split(".")

    def test_a_shown_member_that_is_no_documented_field_stops_the_generator(self):
        @dataclass(frozen=True)
        class Thing:
            """A thing."""

            size: int = 1

            def document(self):
                return {"size": self.size}

        with pytest.raises(LookupError, match=r"Thing\.document\(\) shows 'size'"):
            Schemas({}).of(Thing())


@pytest.fixture(scope="module")
def served_api():
    clock = FakeClock()
    pools = [Pool("shared", "xgboost", "endpoint-a", "AllTraffic"), Pool("onnx", "onnx", "endpoint-b", "AllTraffic")]
    registrar = Registrar(MemoryRegistry(), MemorySigner(clock), pools, clock, lambda: 0.5)
    registry = registrar._registry
    activator = Activator(registry, pools, clock, lambda: 0.5)
    retirer = Retirer(registry, clock, lambda: 0.5, grace_seconds=1)
    return Onboarding(registry, registrar, activator, retirer, MemoryIdempotencyStore(), LIMIT_BYTES, clock)


@pytest.fixture(scope="module")
def served(served_api, load_event):
    answer = served_api(load_event("get_openapi"), None)
    assert (answer["statusCode"], answer["multiValueHeaders"]["Content-Type"]) == (200, ["application/json"])
    return json.loads(answer["body"])


class TestTheServedDocument:
    def test_it_has_the_address_the_limits_and_the_frameworks_of_the_deployment(self, served):
        assert served["servers"] == [{"url": "https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/v1"}]
        registration = served["components"]["schemas"]["Registration"]["properties"]
        assert registration["framework"]["enum"] == ["xgboost", "onnx"]
        assert registration["size_bytes"]["maximum"] == LIMIT_BYTES

    def test_it_is_the_committed_one_in_everything_else(self, served, document):
        alike = []
        for one in (served, document):
            copy = json.loads(text_of({**one, "servers": None}))
            for operation in KEY_OPERATIONS:  # the platform that serves it has no usage plans
                copy["paths"].pop(operation.path, None)
            copy["components"]["schemas"]["Registration"]["properties"] |= {"framework": None, "size_bytes": None}
            copy["components"]["schemas"]["TenantSettings"]["properties"] |= {"formats": None}
            alike.append(copy)
        assert alike[0] == alike[1]

    @pytest.mark.parametrize(
        ("callers", "scheme"),
        [
            (Callers(CallerSource.COGNITO, "custom:tenant", "admins", ("app",)), ("http", "bearer")),
            (Callers(CallerSource.LAMBDA, "tenant", "role", header="X-Key"), ("apiKey", "X-Key")),
        ],
    )
    def test_it_tells_how_callers_are_known(self, served, served_api, load_event, callers, scheme):
        assert served["security"] == [{"sigv4": []}]
        registrar = Registrar(None, None, [], FakeClock(), None)
        api = Onboarding(None, registrar, None, None, served_api._store, 1000, FakeClock(), callers)
        event = load_event("get_openapi")
        claims = {"sub": "ann", "token_use": "id", "aud": "app", "custom:tenant": "acme"}
        event["requestContext"]["authorizer"] = {"claims": claims, "tenant": "acme"}
        document = json.loads(api(event, None)["body"])
        assert document["security"] == [{"token": []}]
        ((name, told),) = document["components"]["securitySchemes"].items()
        assert (name, told["type"], told.get("scheme", told.get("name"))) == ("token", *scheme)

    @pytest.mark.parametrize(
        ("path", "address"), [("/openapi.json", "https://api.example.com"), ("/ml/openapi.json", "https://api.example.com/ml")]
    )
    def test_behind_a_domain_name_of_its_own_it_has_that_address(self, served_api, load_event, path, address):
        event = load_event("get_openapi")
        event["requestContext"] |= {"domainName": "api.example.com", "path": path}
        assert json.loads(served_api(event, None)["body"])["servers"] == [{"url": address}]


IDS = st.from_regex(ID_PATTERN, fullmatch=True)
TIMESTAMPS = st.sampled_from(["2026-11-29T12:00:00.000Z", "2030-01-01T00:00:00.001Z"])
SHA256S = st.text("0123456789abcdef", min_size=64, max_size=64)
REASONS = st.builds(Reason, st.text(), st.text(), st.text(), st.none() | st.text())
EVERY = (*OPERATIONS, *KEY_OPERATIONS)
SIZES = st.integers(0, 2**40)
VERSIONS = st.builds(
    Version,
    tenant=IDS,
    model=IDS,
    number=st.integers(1, 999_999),
    sha256=SHA256S,
    size_bytes=SIZES,
    framework=st.text(),
    pool=st.text(),
    sample=st.builds(Sample, st.text(), st.binary(), st.none()),
    state=st.sampled_from(State),
    created_at=TIMESTAMPS,
    updated_at=TIMESTAMPS,
    notes=st.none() | st.text(),
    reasons=st.lists(REASONS, max_size=3).map(tuple),
    warnings=st.lists(REASONS, max_size=3).map(tuple),
    timings=st.dictionaries(st.text(), st.floats(0, 900)),
    memory_bytes=st.none() | SIZES,
    purge_after=st.none() | TIMESTAMPS,
)
TENANTS = st.builds(
    Tenant,
    tenant=IDS,
    created_at=TIMESTAMPS,
    updated_at=TIMESTAMPS,
    tier=st.sampled_from(Tier),
    quotas=st.builds(Quotas, SIZES, SIZES, SIZES, SIZES, SIZES),
    formats=st.none() | st.lists(st.text()).map(tuple),
    deleted_at=st.none() | TIMESTAMPS,
    retiring_after=st.none() | st.just(""),
).flatmap(lambda tenant: st.builds(TenantStatus, st.just(tenant), st.builds(Usage, st.just(tenant.tenant), SIZES, SIZES)))
VERSION_IDS = st.builds(VersionId.of, st.integers(1, 999_999), SHA256S).map(str)
CANARIES = st.builds(Canary, st.text(), st.text(), VERSION_IDS, st.text(), st.floats(0.01, 99.99))
ROUTES = st.builds(Route, st.text(), st.text(), VERSION_IDS, st.text(), st.none() | CANARIES)
MODELS = st.builds(
    Model,
    IDS,
    IDS,
    SIZES,
    TIMESTAMPS,
    TIMESTAMPS,
    st.none() | ROUTES,
    retired_at=st.none() | TIMESTAMPS,
    retiring_below=st.none() | SIZES,
)
URLS, HEADERS = st.just("https://bucket/key"), st.dictionaries(st.text(), st.text())
PARTS = st.builds(UploadPart, SIZES, SIZES, SIZES, URLS, HEADERS, st.booleans())
UPLOADS = st.builds(Upload, st.just("PUT"), st.none() | URLS, HEADERS, TIMESTAMPS, st.lists(PARTS, max_size=2).map(tuple))
REGISTERED = st.builds(
    Registered, VERSIONS.filter(lambda version: version.state is State.AWAITING_UPLOAD), st.none() | UPLOADS, st.booleans()
)


@pytest.mark.parametrize(
    ("schema", "records"),
    [("Version", VERSIONS), ("Tenant", TENANTS), ("Model", MODELS), ("Registered", REGISTERED)],
    ids=lambda value: str(value)[:10],
)
def test_what_records_show_is_what_the_document_says(document, schema, records):
    check = validator(document, schema)

    @settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
    @given(records)
    def holds(record):
        check.validate(json.loads(json.dumps(record.document())))

    holds()


GOOD = {
    "sha256": SHA256,
    "size_bytes": 1000,
    "framework": "xgboost",
    "sample": {"content_type": "text/csv", "body": "1,2", "accept": "text/csv", "encoding": "utf-8"},
    "notes": "first",
}
AS_BASE64 = [base64.b64encode(b"x" * size).decode() for size in (1, 2, 3, SAMPLE_BODY_BYTES, SAMPLE_BODY_BYTES + 3)]
MEDIA_TYPES = ["text/csv", "text/csv\n", "text/csv; charset=utf-8", "text/csv ;", "*/*"]
LONG = ["x" * 1000, "é" * 1001, "x" * SAMPLE_BODY_BYTES, "x" * (SAMPLE_BODY_BYTES + 1), "x" * 400_000]
WORDS = ["", "a", "\n", "\0", "utf-8", "base64", "latin-1", "xgboost", "onnx", "triton"]
DIGESTS = [SHA256, SHA256.upper(), f"{SHA256}\n", SHA256[1:]]
TEXTS = [*WORDS, *MEDIA_TYPES, *DIGESTS, *LONG, *AS_BASE64, "AA", "A===", "AB==AB=="]
NUMBERS = [0, 1, -1, 1.0, 1.5, -0.0, 1000, LIMIT_BYTES, LIMIT_BYTES + 1, float(LIMIT_BYTES), 2**70, 1e30]
VALUES = (
    st.sampled_from(TEXTS)
    | st.sampled_from(NUMBERS)
    | st.sampled_from([None, True, False, [], {}, ["xgboost"], {"body": "x"}])
    | st.text(max_size=8)
    | st.integers()
)


@st.composite
def bodies(draw):
    """A right body with up to three changes: other values, missing members, more members, anywhere."""
    body = json.loads(json.dumps(GOOD))
    for _ in range(draw(st.integers(0, 3))):
        sample = body.get("sample")
        place = draw(st.sampled_from([body, sample])) if isinstance(sample, dict) else body
        name = draw(st.sampled_from([*place, "extra", "accept", "encoding", "notes"]))
        if draw(st.booleans()):
            place[name] = copy.deepcopy(draw(VALUES))
        else:
            place.pop(name, None)
    return draw(st.sampled_from([body, body, body, draw(VALUES)]))


def test_the_validator_refuses_what_the_schema_refuses_and_nothing_else(served, served_api, load_event):
    schema = served["components"]["schemas"]["Registration"]
    check = jsonschema_rs.Draft202012Validator(schema)
    served_api(load_event("put_tenant"), None)
    seen = set()

    @settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(bodies())
    @example(GOOD)
    @example({**GOOD, "notes": 7})
    @example({**GOOD, "size_bytes": LIMIT_BYTES + 1})
    @example({**GOOD, "sample": {**GOOD["sample"], "body": LONG[3]}})
    @example({**GOOD, "sample": {**GOOD["sample"], "body": "é" * (SAMPLE_BODY_BYTES // 2 + 1)}})
    @example({**GOOD, "sample": {**GOOD["sample"], "body": AS_BASE64[-1], "encoding": "base64"}})
    def agree(body):
        answer = served_api(load_event("register", body=json.dumps(body).encode()), None)
        refused = answer["statusCode"] in (400, 413, 415)
        told = json.loads(answer["body"])
        if not refused:
            assert answer["statusCode"] in (200, 201), told
        # JSON Schema counts characters, the limit of a payload is in bytes.
        in_bytes = told["status"] == 413 and told["field"] == "sample.body" if refused else False
        assert check.is_valid(body) == (not refused) or in_bytes, (body, told)
        seen.add(answer["statusCode"])

    agree()
    assert seen == {200, 201, 400, 413}


def right(shape):
    """Values that a shape takes, by its own words."""
    match shape:
        case Obj():
            needed = {name: right(member.shape) for name, member in shape.members.items() if member.default is Required}
            others = {name: right(member.shape) for name, member in shape.members.items() if member.default is not Required}
            return st.fixed_dictionaries(needed, optional=others)
        case Choice():
            return st.sampled_from(shape.values)
        case Whole():
            return st.integers(shape.least, shape.greatest) | st.sampled_from([shape.least, shape.greatest, float(shape.greatest)])
        case Number():
            return st.floats(shape.least, shape.greatest) | st.sampled_from([shape.least, shape.greatest])
        case Flag():
            return st.booleans()
        case Many():
            return st.lists(right(shape.of), min_size=shape.least, max_size=min(shape.greatest, 4), unique_by=repr)
        case Text(pattern=str()):
            return st.from_regex(shape.pattern, fullmatch=True)
        case Text():
            return st.text(min_size=shape.least_characters, max_size=min(shape.greatest_characters or 9, 9))
        case _:
            return st.none() | right(shape.shape)


@st.composite
def bent(draw, shape):
    """A right object with up to two changes, anywhere in it."""
    body = copy.deepcopy(draw(right(shape)))
    for _ in range(draw(st.integers(0, 2))):
        places = [body, *(value for value in body.values() if isinstance(value, dict))]
        place = draw(st.sampled_from(places))
        name = draw(st.sampled_from([*place, *shape.members, "extra"]))
        if draw(st.integers(0, 3)):
            place[name] = copy.deepcopy(draw(VALUES | EDGES))
        else:
            place.pop(name, None)
    return body


EDGES = st.sampled_from(
    [0, -1, 0.5, 99.99, 100, 100.0, 101, 2**31, 2**53, 2**63, [], ["xgboost"], ["xgboost", "xgboost"], [1], [[]], {"models": 1}]
)
SHAPES = request_shapes(max_artifact_bytes=LIMIT_BYTES, frameworks=("xgboost", "onnx"))


def one_by_one(schema):
    """A schema without its rules between members, which are checked behind the shape."""
    if not isinstance(schema, dict):
        return schema
    return {key: one_by_one(value) for key, value in schema.items() if key not in ("if", "then", "else")}


@pytest.mark.parametrize("name", SHAPES)
def test_the_schema_and_the_check_of_every_body_agree(name):
    shape, outcomes = SHAPES[name], set()
    check = jsonschema_rs.Draft202012Validator(one_by_one(shape.schema()))

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(bent(shape), right(shape))
    def agree(body, whole):
        for given_body in (body, whole):
            read = json.loads(json.dumps(given_body))
            try:
                shape.check("body", read)
                refused = None
            except TenancyError as error:
                refused = error.document()
            assert check.is_valid(read) == (refused is None), (read, refused)
            outcomes.add(refused is None)

    agree()
    assert outcomes == {True, False}


@pytest.mark.parametrize("operation", [operation for operation in EVERY if ANSWERS[operation.id].body], ids=lambda operation: operation.id)
def test_every_call_with_a_body_checks_it(served_api, load_event, operation):
    event = load_event("register" if operation.method == "POST" else "put_tenant")
    names = {"tenant": "acme", "model": "iris", "version": "v1-0123456789ab"}
    event |= {"resource": operation.path, "path": operation.path.format(**names), "httpMethod": operation.method, "pathParameters": names}

    def answer(body, media_type="application/json"):
        encoded = base64.b64encode(body).decode()
        told = served_api({**event, "headers": {"Content-Type": media_type}, "body": encoded, "isBase64Encoded": True}, None)
        return told["statusCode"], json.loads(told["body"]).get("field")

    assert answer(b'{"surely-unknown": 1}') == (400, "surely-unknown")
    assert answer(b"[]") == (400, "body")
    assert answer(b"{}", "text/plain") == (415, "Content-Type")
    if not ANSWERS[operation.id].body_optional:
        assert answer(b"") == (400, "body")


def test_ids_and_keys_have_the_same_rule_in_paths_headers_and_handlers(document):
    def accepted(check, text):
        try:
            check(text)
        except (GrammarError, InvalidRequestError):
            return False
        return True

    texts = st.text(max_size=70) | st.from_regex(ID_PATTERN) | st.from_regex(VERSION_PATTERN) | st.text("az09-", max_size=64)
    rules = [
        ({"type": "string", "pattern": f"^{ID_PATTERN}$"}, check_tenant_id),
        ({"type": "string", "pattern": f"^{VERSION_PATTERN}$"}, VersionId.parse),
        (KEY.schema(), lambda text: IdempotencyKey("acme", "POST /", text)),
    ]
    assert all(json.dumps(schema["pattern"]) in json.dumps(document) for schema, _check in rules)

    @settings(max_examples=300, deadline=None)
    @given(texts, st.sampled_from(rules))
    def agree(text, rule):
        schema, check = rule
        assert jsonschema_rs.is_valid(schema, text) == accepted(check, text)

    agree()


@pytest.mark.parametrize("name", ["list_models", "list_versions"])
def test_a_limit_has_the_same_rule_in_the_document_and_in_the_handler(document, served_api, load_event, name):
    served_api(load_event("put_tenant"), None)
    served_api(load_event("register"), None)
    (operation,) = (operation for operation in EVERY if operation.id == name)
    (limit,) = (p for p in document["paths"][operation.path]["get"]["parameters"] if p["name"] == "limit")
    for value in (-1, 0, 1, 50, 200, 201, 10**12):
        status = served_api(load_event(name, query={"limit": str(value)}), None)["statusCode"]
        assert (status == 200) == jsonschema_rs.is_valid(limit["schema"], value)
    for text in ("01", "+1", " 1", "1.0", "1_0", "٣"):
        assert served_api(load_event(name, query={"limit": text}), None)["statusCode"] == 400
