"""Every hostile artifact is refused for its own reason, every right one is admitted, in bounded memory."""

from __future__ import annotations

import gzip
import hashlib
import pickle
import random
import struct
import tracemalloc
from pathlib import Path

import joblib
import pytest
import xgboost
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mme_tenancy.archive import ArchiveLimits, inspect_artifact
from mme_tenancy.findings import RULES
from mme_tenancy.formats.frameworks import FRAMEWORKS
from tests.tenancy.artifact_corpus import HOSTILE, MIB, MODEL, RIGHT, onnx, pack, saved_model, skops, torch_script, tree, triton

PEAK_BYTES = 24 * MIB


def inspect(artifact, framework, *, allow_code=False, chunk_bytes=1 << 16, **declared):
    chunks = (artifact[start : start + chunk_bytes] for start in range(0, len(artifact), chunk_bytes))
    facts = {"sha256": hashlib.sha256(artifact).hexdigest(), "size_bytes": len(artifact), **declared}
    return inspect_artifact(chunks, framework=framework, allow_code=allow_code, **facts)


def broken_rules(result):
    return {finding.rule for finding in result.findings}


def test_the_corpora_are_as_large_as_they_must_be():
    assert len(HOSTILE) >= 60
    assert len(RIGHT) >= 20
    assert {framework for framework, _, _ in HOSTILE.values()} == {framework for framework, _, _ in RIGHT.values()} == set(FRAMEWORKS)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_artifact_is_admitted(name):
    framework, allow_code, artifact = RIGHT[name]
    result = inspect(artifact, framework, allow_code=allow_code)
    assert (result.findings, result.warnings) == ((), ())


@pytest.mark.parametrize("name", RIGHT)
def test_the_verdict_does_not_depend_on_how_the_bytes_are_cut(name):
    framework, allow_code, artifact = RIGHT[name]
    assert inspect(artifact, framework, allow_code=allow_code, chunk_bytes=1).findings == ()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_artifact_is_refused_for_its_own_reason_in_bounded_memory(name):
    framework, artifact, rules = HOSTILE[name]
    tracemalloc.start()
    result = inspect(artifact, framework)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert broken_rules(result) == rules
    assert all(finding.detail and finding.fix for finding in result.findings)
    assert peak < PEAK_BYTES


def test_every_rule_is_broken_by_an_artifact_of_the_corpus():
    broken = {rule for _, _, rules in HOSTILE.values() for rule in rules}
    told_elsewhere = {
        "size",
        "sha256",
        "unpacked-size",
        "unsafe-code",
        "unscanned-code",
        "inspection-time",
    }  # test_archive, test_code_scan, test_admission
    assert broken | told_elsewhere == {name for name, rule in RULES.items() if not rule.warns}
    assert not broken & told_elsewhere


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_nothing_of_another_framework_is_admitted(framework):
    foreign = {"sklearn": "pytorch"}.get(framework, "sklearn")
    artifacts = [artifact for name, (owner, allow_code, artifact) in RIGHT.items() if owner == foreign and not allow_code]
    assert artifacts
    assert all(inspect(artifact, framework).findings for artifact in artifacts)


@pytest.mark.parametrize("name", [name for name, (_, allow_code, _) in RIGHT.items() if allow_code])
def test_what_carries_code_is_refused_unless_it_is_allowed(name):
    framework, _, artifact = RIGHT[name]
    assert "code-format" in broken_rules(inspect(artifact, framework))


@pytest.mark.parametrize("name", [name for name, (framework, *_) in HOSTILE.items() if framework in {"xgboost", "onnx", "tensorflow"}])
def test_permission_for_code_changes_nothing_where_no_format_needs_it(name):
    framework, artifact, rules = HOSTILE[name]
    if len(artifact) < MIB // 4:
        assert broken_rules(inspect(artifact, framework, allow_code=True)) == rules


def test_what_a_multi_model_endpoint_ignores_is_admitted_with_a_warning():
    cases = [
        ("sklearn", pack(("model.skops", skops()), ("code/inference.py", b"x"), ("requirements.txt", b"x")), 2),
        ("pytorch", pack(("model.pt", torch_script()), ("code/inference.py", b"x"), ("code/requirements.txt", b"x")), 1),
        ("tensorflow", tree({"1/saved_model.pb": saved_model(), "code/requirements.txt": b"x"}), 1),
        ("triton", triton(**{"requirements.txt": b"x"}), 1),
    ]
    for framework, artifact, warnings in cases:
        result = inspect(artifact, framework, allow_code=True)
        assert result.findings == (), framework
        assert [finding.rule for finding in result.warnings] == ["ignored"] * warnings, framework
        assert all(finding.member and finding.fix for finding in result.warnings)


def test_a_manifest_is_refused_even_where_code_is_allowed():
    for framework, artifact in [
        ("sklearn", pack(("model.skops", skops()), ("MAR-INF/MANIFEST.json", b"{}"))),
        ("pytorch", pack(("model.pt", torch_script()), ("MAR-INF/MANIFEST.json", b"{}"))),
        ("triton", triton(**{"MAR-INF/MANIFEST.json": b"{}"})),
    ]:
        assert "code" in broken_rules(inspect(artifact, framework, allow_code=True))


def test_a_pickle_that_is_none_is_refused_even_where_code_is_allowed():
    for content in (b"hello", b"\x80\x09.", b"\x80", b"\x80\x04x"):
        assert broken_rules(inspect(pack(("model.pkl", content)), "sklearn", allow_code=True)) == {"sklearn-model"}


def test_two_hundred_flipped_bytes_are_refused_each_by_its_digest():
    dice = random.Random(20261129)
    right = sorted(RIGHT)
    for place in range(200):
        framework, allow_code, artifact = RIGHT[right[place % len(right)]]
        damaged = bytearray(artifact)
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        result = inspect(bytes(damaged), framework, allow_code=allow_code, sha256=hashlib.sha256(artifact).hexdigest())
        assert result.findings[0].rule == "sha256"


def test_two_hundred_flips_inside_sealed_artifacts_end_in_a_verdict_and_never_in_an_exception():
    dice = random.Random(42)
    right = sorted(RIGHT)
    refused = 0
    for place in range(200):
        framework, allow_code, artifact = RIGHT[right[place % len(right)]]
        plain = bytearray(gzip.decompress(artifact))
        plain[dice.randrange(len(plain.rstrip(b"\0")))] ^= 1 << dice.randrange(8)
        refused += bool(inspect(gzip.compress(bytes(plain)), framework, allow_code=allow_code).findings)
    assert refused >= 60


@pytest.mark.parametrize(
    "name", ["xgboost: packed as a whole folder", "onnx: with weights", "pytorch: TorchScript", "triton: ensemble of five"]
)
def test_a_truncation_at_every_boundary_of_the_structure_is_refused(name):
    framework, _, artifact = RIGHT[name]
    for cut in (0, 1, 2, 3, 9, 10, 11, len(artifact) - 9, len(artifact) - 8, len(artifact) - 4, len(artifact) - 1):  # of gzip
        assert broken_rules(inspect(artifact[:cut], framework)) <= {"gzip", "gzip-truncated"}, cut
        assert inspect(artifact[:cut], framework).findings, cut
    plain = gzip.decompress(artifact)
    end = -(-len(plain.rstrip(b"\0")) // 512)
    for blocks in range(end + 2):  # of tar
        for shift in (-1, 0, 1):
            cut = blocks * 512 + shift
            if 0 <= cut < (end + 2) * 512:
                assert "tar-truncated" in broken_rules(inspect(gzip.compress(plain[:cut]), framework)), cut


@pytest.mark.parametrize(
    ("framework", "name", "content"),
    [("onnx", "model.onnx", onnx()), ("pytorch", "model.pt", torch_script()), ("tensorflow", "1/saved_model.pb", saved_model("Const"))],
)
def test_a_model_that_is_cut_off_anywhere_is_refused(framework, name, content):
    assert inspect(pack((name, content)), framework).findings == ()
    for length in range(len(content)):
        assert inspect(pack((name, content[:length])), framework).findings, length


def test_no_finding_of_one_artifact_is_lost_behind_that_of_its_content():
    artifact = pack((MODEL[0], b"hello"), ("../x", b""), ("a.py", b""))
    assert [finding.rule for finding in inspect(artifact, "xgboost").findings] == ["xgboost-model", "parent-path", "code"]


def test_the_header_of_safetensors_is_checked_to_its_last_field():
    def refused(text, data=b""):
        return inspect(pack(("m.safetensors", struct.pack("<Q", len(text)) + text + data)), "pytorch").findings

    assert not refused(b'{"__metadata__": {"a": "b"}}')
    for text in (
        b"[]",
        b"{,}",
        b'{"a": 1}',
        b'{"a": {"data_offsets": [0]}}',
        b'{"a": {"data_offsets": [0, 9]}}',
        b'{"a": {"data_offsets": [true, 1]}}',
    ):
        assert [finding.rule for finding in refused(text, b"x")] == ["pytorch-model"], text


@pytest.mark.parametrize("compress", [0, 3, ("bz2", 3), ("xz", 3), ("lzma", 3), ("gzip", 3)])
def test_what_joblib_and_pickle_write_of_a_real_pipeline_is_admitted_where_code_is_allowed(tmp_path, compress):
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit([[0.0, 1.0], [1.0, 0.0], [2.0, 3.0]], [0, 1, 1])
    joblib.dump(pipeline, tmp_path / "model.joblib", compress=compress)
    for name, content in [("model.joblib", (tmp_path / "model.joblib").read_bytes()), ("model.pkl", pickle.dumps(pipeline))]:
        assert inspect(pack((name, content)), "sklearn", allow_code=True).findings == ()
        assert broken_rules(inspect(pack((name, content)), "sklearn")) == {"code-format"}


@pytest.mark.parametrize("file_format", ["ubj", "json"])
def test_what_xgboost_writes_is_admitted(file_format):
    trained = xgboost.train({"max_depth": 2, "nthread": 1}, xgboost.DMatrix([[0.0], [1.0], [2.0]], [0, 1, 1]), 3)
    content = bytes(trained.save_raw(file_format))
    assert inspect(pack(("xgboost-model", content)), "xgboost").findings == ()
    assert inspect(triton('backend: "fil"', model=f"xgboost.{file_format}", content=content), "triton").findings == ()


def test_the_page_of_the_rules_lists_every_rule_as_it_is():
    page = (Path(__file__).parents[2] / "docs" / "artifact-rules.md").read_text("utf-8")
    rows = [line for line in page.partition("## The rules")[2].splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{name}` | {rule.refuses}{' (a warning only)' if rule.warns else ''} | {rule.fix} |" for name, rule in RULES.items()
    ]
    limits = ArchiveLimits()
    for shown in (
        f"unpacked size | {limits.unpacked_bytes >> 30} GiB",
        f"size of one member | {limits.member_bytes >> 30} GiB",
        f"members | {limits.members:,}",
        f"itself included | {limits.depth}",
        f"name of a member | {limits.name_bytes:,} bytes",
        f"beyond {limits.ratio_floor_bytes >> 20} MiB unpacked | {limits.ratio}",
        f"long name | {limits.extension_bytes >> 10} KiB",
        *(f"| `{framework}` |" for framework in FRAMEWORKS),
    ):
        assert shown in page
