"""Boosters as XGBoost itself writes them, and files that only look like one."""

from __future__ import annotations

import hashlib
import json
import pickle
import random
import struct
import tracemalloc

import numpy
import pytest
import xgboost
from hypothesis import given
from hypothesis import strategies as st

from mme_tenancy.archive import inspect_artifact
from mme_tenancy.formats.content import ContentFault
from mme_tenancy.formats.json_stream import JsonStream
from mme_tenancy.formats.outline import MAX_DEPTH, Outline
from mme_tenancy.formats.xgboost import Booster
from mme_tenancy.testing import booster

PARAMETERS = {
    "trees": {"objective": "reg:squarederror", "max_depth": 4},
    "classes": {"objective": "multi:softprob", "num_class": 3, "max_depth": 3},
    "ranks": {"objective": "rank:pairwise", "max_depth": 2},
    "linear": {"booster": "gblinear", "objective": "binary:logistic"},
    "dart": {"booster": "dart", "objective": "binary:logistic", "rate_drop": 0.2},
    "forest": {"objective": "reg:squarederror", "num_parallel_tree": 3, "subsample": 0.7},
}


@pytest.fixture(scope="module")
def train():
    """Trains a small booster of a kind."""
    dice = numpy.random.default_rng(7)
    features = dice.random((60, 4))
    target = dice.integers(0, 2, 60)

    def make(kind):
        data = xgboost.DMatrix(features, target, feature_names=["größe", 'q"uote', "a\\b", "d"])
        return xgboost.train({**PARAMETERS[kind], "nthread": 1, "seed": 7}, data, num_boost_round=5)

    return make


def read(content, piece_bytes=1 << 20):
    check = Booster()
    for start in range(0, len(content), piece_bytes):
        check.feed(memoryview(content)[start : start + piece_bytes])
    check.close()


def fault(content, piece_bytes=1 << 20):
    with pytest.raises(ContentFault) as caught:
        read(content, piece_bytes)
    return caught.value


@pytest.mark.parametrize("kind", PARAMETERS)
@pytest.mark.parametrize("file_format", ["ubj", "json"])
def test_what_xgboost_writes_is_a_booster_however_it_is_cut(train, kind, file_format):
    content = bytes(train(kind).save_raw(file_format))
    for piece_bytes in (1, 7, 4096, 1 << 20):
        read(content, piece_bytes)


def test_attributes_and_categories_are_part_of_a_booster(train):
    trained = train("trees")
    trained.set_attr(note='{"nested": "json \\" with quotes"}', empty="")
    read(bytes(trained.save_raw("ubj")), 13)
    read(bytes(trained.save_raw("json")), 13)
    frame = xgboost.DMatrix(numpy.array([[0], [1], [2], [1]] * 5), [0, 1, 0, 1] * 5, feature_types=["c"], enable_categorical=True)
    read(bytes(xgboost.train({"max_cat_to_onehot": 1, "nthread": 1}, frame, 3).save_raw("ubj")))


@pytest.mark.parametrize("file_format", ["ubj", "json"])
def test_a_booster_is_refused_wherever_it_is_cut_off(train, file_format):
    content = bytes(train("trees").save_raw(file_format))
    for length in range(0, len(content) - 1, 97):
        assert fault(content[:length]).detail
    assert fault(content + b"x").detail == "there is data behind its end"


def test_the_configuration_of_a_booster_is_no_booster(train):
    assert "gradient_booster.model" in fault(train("trees").save_config().encode()).detail


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"{", "single byte"),
        (b"binf" + bytes(100), "old binary"),
        (b"bs64" + bytes(100), "old binary"),
        (b"not a model", "neither"),
        (bytes(100), "neither"),
        (b"{}", "no learner.gradient_booster"),
        (b'{"learner": {}}', "no learner.gradient_booster"),
        (b'{"learner": [1, 2}', "brackets"),
        (b'{"a": 1,}', "'}' stands"),
        (b'{"a": [1,]}', "']' stands"),
        (b'{"a": [,1]}', "JSON"),
        (b'{"a": [1,,1]}', "JSON"),
        (b'{"a": [1 1, 2]}', "JSON"),
        (b'{"a": [1, 01]}', "JSON"),
        (b'{"a": tru}', "JSON"),
        (b'{"a": "\\x"}', "JSON"),
        (b'{"a": "\xff"}', "JSON"),
        (b'{"a": "\n"}', "JSON"),
        (b'{"a" 1}', "'1' stands"),
        (b"{1: 1}", "a length of the type"),
        (b'{"a": 1} {', "behind its end"),
        (b'{"a": ' + b"[" * 100, "deeper"),
        (b'{"a": {"b": ' * 70, "deeper"),
        (b"{L" + b"\xff" * 8, "a length of -1"),
        (b"{L" + struct.pack(">q", 1 << 40), "a key of"),
        (b"{x", "a length of the type 'x'"),
        (b"{i\x01aH", "a value of the type 'H'"),
        (b"{i\x01aSd", "a length of the type 'd'"),
        (b"{i\x01aSi\xff", "a length of -1"),
        (b"{i\x01a[$[#", "an array of the type '['"),
        (b"{i\x01a[$d]", "an array of the type 'd'"),
        (b"{i\x01a[$d#L\x7f" + b"\xff" * 7, "a length of"),
        (b"{i\x01a[$d#L" + struct.pack(">q", 1 << 49) + bytes(100), "too early"),
        (b"{i\x01a" + b"[" * 100, "deeper"),
        (b"{i\x01a" + b"{i\x01a" * 100, "deeper"),
        (b"{i\x01a[#i\x02ZZ", "too early"),
    ],
)
def test_a_file_that_is_no_booster_is_refused_with_what_was_found(content, words):
    for piece_bytes in (1, 1 << 20):
        assert words in fault(content, piece_bytes).detail


def test_a_pickled_booster_is_refused_as_code(train, make_archive):
    artifact = make_archive(("xgboost-model", pickle.dumps(train("trees"))))
    facts = {"sha256": hashlib.sha256(artifact).hexdigest(), "size_bytes": len(artifact), "framework": "xgboost"}
    for allow_code in (False, True):
        (finding,) = inspect_artifact([artifact], **facts, allow_code=allow_code).findings
        assert (finding.rule, finding.member) == ("code-format", "xgboost-model")


@pytest.mark.parametrize("content", [b'{"a": "' + b"x" * (3 << 20), b'{"a": "' + b'\\"' * (3 << 19), b'{"a": [' + b"1" * (3 << 20)])
def test_an_endless_token_is_refused_in_bounded_memory(content):
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    detail = fault(content, 1 << 16).detail
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "longer than" in detail
    assert peak - before < 16 << 20


def test_many_keys_do_not_grow_the_outline():
    outline = Outline()
    for number in range(100_000):
        outline.enter((), b"%d" % number)
    assert len(outline.paths) <= 256
    assert outline.enter(("a", "b", "c"), b"d") is None


@given(
    document=st.dictionaries(
        st.text(max_size=8),
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
            lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
            max_leaves=30,
        ),
        max_size=6,
    ),
    ascii_only=st.booleans(),
    indent=st.none() | st.integers(0, 3),
    piece_bytes=st.integers(1, 50),
)
def test_any_json_object_is_read_to_its_end(document, ascii_only, indent, piece_bytes):
    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    outline = Outline()
    stream = JsonStream(outline)
    for start in range(0, len(text), piece_bytes):
        stream.feed(memoryview(text)[start : start + piece_bytes])
    stream.close()
    if ascii_only and all(key.isalnum() and key.isascii() for key in document):
        assert {path for path in outline.paths if len(path) == 1} == {(key,) for key in document}


@given(damage=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=3), piece_bytes=st.integers(1, 99))
def test_damaged_json_is_refused_exactly_where_the_standard_library_refuses_it(damage, piece_bytes):
    text = bytearray(b'{"a": [1, -2.5e3, null, true], "b": {"c": "d\\u0041\\n"}, "e": [], "f": {}, "g": [NaN, -Infinity, [0]]}')
    for place, value in damage:
        text[int(place * len(text))] = value
    stream = JsonStream(Outline())

    def ours():
        for start in range(0, len(text), piece_bytes):
            stream.feed(memoryview(bytes(text))[start : start + piece_bytes])
        stream.close()

    try:
        document = json.loads(text.decode("utf-8"))
    except ValueError:
        with pytest.raises(ContentFault):
            ours()
    else:
        assert isinstance(document, dict)
        ours()


def test_depth_up_to_the_limit_is_right():
    inner = b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1)
    stream = JsonStream(Outline())
    stream.feed(memoryview(b'{"a": ' + inner + b"}"))
    stream.close()


def test_a_whole_booster_of_random_flips_never_raises_anything_else(train):
    content = bytes(train("trees").save_raw("ubj"))
    dice = random.Random(11)
    refused = 0
    for _ in range(200):
        damaged = bytearray(content)
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        try:
            read(bytes(damaged), 997)
        except ContentFault:
            refused += 1
    assert refused > 50


def test_the_stand_in_of_our_tests_is_taken():
    read(booster("note"), 3)


@pytest.mark.parametrize("content", [b'{"a":[' + b"[]," * 100, b"{i\x01a[" + b"Z" * 200])
def test_a_file_of_too_many_parts_is_refused_before_it_holds_the_function_up(content, monkeypatch):
    for module in ("content", "json_stream"):
        monkeypatch.setattr(f"mme_tenancy.formats.{module}.MAX_STEPS", 100)
    assert fault(content).detail == "it has more than 100 parts"
