from __future__ import annotations

import gzip
import hashlib
import io
import random
import tarfile
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mme_tenancy.archive import ArchiveInspector, ArchiveLimits, inspect_artifact
from mme_tenancy.tar_walk import ArchiveFault, Member, TarWalk
from mme_tenancy.testing import booster

MODEL = ("xgboost-model", booster().ljust(700))


def inspect(artifact, chunk_bytes=1 << 16, limits=None, **declared):
    chunks = (artifact[start : start + chunk_bytes] for start in range(0, len(artifact), chunk_bytes))
    facts = {"sha256": hashlib.sha256(artifact).hexdigest(), "size_bytes": len(artifact), "framework": "xgboost", **declared}
    return inspect_artifact(chunks, limits=limits, **facts)


def rules(artifact, **options):
    return [finding.rule for finding in inspect(artifact, **options).findings]


def header(name, kind=tarfile.REGTYPE, size=0, linkname=""):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, linkname
    return info


def raw(*blocks):
    """A .tar.gz of blocks as they stand, with an end mark."""
    return gzip.compress(b"".join(blocks) + bytes(1024))


def block(name, kind=tarfile.REGTYPE, content=b"", size=None):
    info = header(name, kind, len(content) if size is None else size)
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def pax_record(keyword, value):
    length = len(keyword) + len(value) + 3
    while len(f"{length}") + len(keyword) + len(value) + 3 != length:
        length = len(f"{length}") + len(keyword) + len(value) + 3
    return f"{length} {keyword}={value}\n".encode()


def with_mode(name, mode):
    info = tarfile.TarInfo(name)
    info.mode = mode
    return info


MODEL_BLOCK = block(*MODEL[:1], content=MODEL[1])


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("name", ["xgboost-model", "./xgboost-model"])
@pytest.mark.parametrize("chunk_bytes", [1, 7, 511, 1 << 16])
def test_a_right_artifact_has_no_finding(make_archive, tar_format, name, chunk_bytes):
    result = inspect(make_archive((name, MODEL[1]), tar_format=tar_format), chunk_bytes)
    assert result.findings == ()
    assert result.members == 1


def test_what_tar_writes_for_a_whole_folder_is_right(make_archive):
    folders = (header("./", tarfile.DIRTYPE), header("./docs", tarfile.DIRTYPE))
    assert rules(make_archive(*folders, MODEL, ("./docs/readme.txt", b"hello"))) == []


@pytest.mark.parametrize("name", ["numpy/__init__.py", "./lib/deep/NUMPY.PY", "lib/evil.so", "lib/evil.pth", "MAR-INF/MANIFEST.json"])
def test_code_and_manifests_beside_the_model_are_refused_by_name(make_archive, name):
    findings = inspect(make_archive(MODEL, (name, b"evil"))).findings
    assert [(finding.rule, finding.member) for finding in findings] == [("code", name)]


def test_long_names_that_need_an_extension_are_right(make_archive):
    for tar_format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert rules(make_archive(MODEL, (f"docs/{'n' * 200}.txt", b"hello"), tar_format=tar_format)) == []


def test_names_beyond_ascii_are_right(make_archive):
    assert rules(make_archive(MODEL, ("docs/größe.txt", b"hello"))) == []


def test_a_comment_in_a_global_pax_header_as_git_writes_it_is_right():
    assert rules(raw(block("pax_global_header", tarfile.XGLTYPE, pax_record("comment", "f" * 40)), MODEL_BLOCK)) == []


def test_a_pax_size_counts_as_unpackers_count_it():
    content = MODEL[1]
    pax = block("pax", tarfile.XHDTYPE, pax_record("size", "700"))
    assert rules(raw(pax, block("xgboost-model", size=0) + content + bytes(324))) == []


HOSTILE = {
    "absolute path": ("absolute-path", "/etc/passwd", [("/etc/passwd", b"x")]),
    "parent path": ("parent-path", "docs/../../x", [("docs/../../x", b"x")]),
    "parent path at the start": ("parent-path", "../x", [("../x", b"x")]),
    "symbolic link": ("member-type", "docs/link", [header("docs/link", tarfile.SYMTYPE, linkname="/etc/passwd")]),
    "hard link": ("member-type", "docs/link", [header("docs/link", tarfile.LNKTYPE, linkname="xgboost-model")]),
    "character device": ("member-type", "docs/null", [header("docs/null", tarfile.CHRTYPE)]),
    "block device": ("member-type", "docs/sda", [header("docs/sda", tarfile.BLKTYPE)]),
    "fifo": ("member-type", "docs/fifo", [header("docs/fifo", tarfile.FIFOTYPE)]),
    "duplicate": ("duplicate", "docs/a", [("docs/a", b"1"), ("docs/a", b"2")]),
    "duplicate in disguise": ("duplicate", "./docs//a", [("docs/a", b"1"), ("./docs//a", b"2")]),
    "second model": ("duplicate", "./xgboost-model", [("./xgboost-model", b"2")]),
    "control character": ("name", "docs/a\\nb", [("docs/a\nb", b"x")]),
    "escape sequence": ("name", "docs/\\x1b[2Jb", [("docs/\x1b[2Jb", b"x")]),
    "direction override": ("name", "docs/\\u202egnp.exe", [("docs/\u202egnp.exe", b"x")]),
    "backslash": ("name", "docs\\\\a", [("docs\\a", b"x")]),
    "very long name": ("name", f"{'n' * 120}...", [("docs/" + "n" * 1100, b"x")]),
    "setuid": ("setuid", "docs/a", [with_mode("docs/a", 0o4755)]),
    "setgid": ("setuid", "docs/a", [with_mode("docs/a", 0o2755)]),
    "deep folders": ("depth", "a/" * 16 + "a", [("a/" * 16 + "a", b"x")]),
    "same name in capitals": ("case-collision", "docs/A", [("docs/a", b"1"), ("docs/A", b"2")]),
    "same folder in capitals": ("case-collision", "Docs/b", [("docs/a", b"1"), ("Docs/b", b"2")]),
    "same name in another Unicode form": ("case-collision", "docs/a\\u0308", [("docs/\xe4", b"1"), ("docs/a\u0308", b"2")]),
    "model in capitals": ("case-collision", "XGBoost-Model", [("XGBoost-Model", b"2")]),
    "file where a folder is": ("file-and-folder", "docs", [("docs/a", b"1"), ("docs", b"2")]),
    "folder where a file is": ("file-and-folder", "docs/a/b", [("docs/a", b"1"), ("docs/a/b", b"2")]),
    "file and folder": ("file-and-folder", "docs", [header("docs", tarfile.DIRTYPE), ("docs", b"2")]),
    "other file at the root": ("xgboost-root", "model.bin", [("model.bin", b"x")]),
    "hidden file at the root": ("xgboost-root", "._xgboost-model", [("._xgboost-model", b"x")]),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_member_is_refused_by_rule_name_and_fix(make_archive, case):
    rule, member, entries = HOSTILE[case]
    (finding,) = inspect(make_archive(MODEL, *entries)).findings
    assert finding.rule == rule
    assert finding.member == member or (case == "very long name" and finding.member.startswith("docs/nnn"))
    assert finding.detail
    assert finding.fix


def test_a_name_that_is_not_utf_8_is_refused(make_archive):
    name = b"docs/\xff\xfe".decode("utf-8", "surrogateescape")
    assert rules(make_archive(MODEL, (name, b"x"), tar_format=tarfile.GNU_FORMAT)) == ["name"]


def test_every_broken_member_is_named(make_archive):
    artifact = make_archive(MODEL, ("/a", b""), ("../b", b""), header("c", tarfile.SYMTYPE, linkname="x"))
    assert rules(artifact) == ["absolute-path", "parent-path", "member-type"]


def test_the_list_of_findings_is_bounded(make_archive):
    assert len(rules(make_archive(MODEL, *[(f"../{number}", b"") for number in range(100)]))) == 20


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [("XGBoost-model", b"x")],
        [header("xgboost-model", tarfile.DIRTYPE)],
        [header("xgboost-model", tarfile.SYMTYPE, linkname="other")],
    ],
)
def test_an_archive_without_the_model_at_its_root_is_refused(make_archive, entries):
    findings = inspect(make_archive(*entries)).findings
    assert findings[-1].rule == "xgboost-model"
    assert findings[-1].member == "xgboost-model"


def test_an_empty_model_is_refused(make_archive):
    assert rules(make_archive(("xgboost-model", b""))) == ["xgboost-model"]


@pytest.mark.parametrize("artifact", [b"PK\x03\x04zip", b"BZh91AY", b"\xfd7zXZ", b"x", b"\x1fno", bytes(1000)])
def test_a_file_that_is_not_gzip_is_refused(artifact):
    assert rules(artifact) == ["gzip"]
    assert rules(artifact, chunk_bytes=1) == ["gzip"]


def test_gzip_that_holds_no_tar_is_refused():
    assert rules(gzip.compress(b"hello" * 1000)) == ["tar-header"]
    assert rules(gzip.compress(b"hello")) == ["tar-truncated"]
    assert rules(gzip.compress(b"")) == ["tar-truncated"]


def test_every_truncation_is_refused(artifact):
    for length in range(1, len(artifact)):
        assert set(rules(artifact[:length])) <= {"gzip-truncated", "gzip"}, length
        assert rules(artifact[:length]), length


def test_a_truncated_upload_is_told_by_its_size_and_its_digest(artifact):
    declared = {"sha256": hashlib.sha256(artifact).hexdigest(), "size_bytes": len(artifact)}
    assert rules(artifact[:-1], **declared) == ["size", "gzip-truncated"]
    assert rules(artifact[:-1], size_bytes=len(artifact) - 1, sha256=declared["sha256"]) == ["sha256", "gzip-truncated"]


def test_an_upload_that_is_longer_than_declared_is_read_no_further(artifact):
    consumed = []

    def chunks():
        for _ in range(1000):
            consumed.append(len(artifact))
            yield artifact

    result = inspect_artifact(chunks(), sha256="0" * 64, size_bytes=len(artifact), framework="xgboost")
    assert result.findings[0].rule == "size"
    assert len(consumed) == 2


def test_a_tar_that_ends_at_any_block_is_refused(make_archive):
    content = make_archive(MODEL, ("docs/a", b"x" * 600), tar_format=tarfile.GNU_FORMAT, compress="")
    end = content.rstrip(b"\0")
    last_block = -(-len(end) // 512)
    for blocks in range(last_block + 2):
        assert rules(gzip.compress(content[: blocks * 512])) == ["tar-truncated"], blocks
    assert rules(gzip.compress(content[: (last_block + 2) * 512])) == []


def test_any_flipped_byte_is_refused_without_an_exception(make_archive):
    artifact = make_archive(MODEL, ("docs/a", random.Random(7).randbytes(3000)))
    digest = hashlib.sha256(artifact).hexdigest()
    dice = random.Random(42)
    for _ in range(300):
        damaged = bytearray(artifact)
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        assert rules(bytes(damaged), sha256=digest)[0] == "sha256"


@pytest.mark.parametrize("tail", [b"\0" * 512, b"x", b"\x1f", b"junk" * 10_000])
def test_data_behind_the_gzip_stream_are_refused(artifact, tail):
    assert rules(artifact + tail) == ["gzip-trailer"]
    assert rules(artifact + tail, chunk_bytes=1) == ["gzip-trailer"]


def test_several_gzip_streams_in_a_row_are_refused(artifact, make_archive):
    hidden = make_archive(("../evil", b"x"))
    assert rules(artifact + hidden) == ["gzip-members"]
    content = make_archive(MODEL, compress="")
    assert rules(gzip.compress(content[:700]) + gzip.compress(content[700:])) == ["gzip-members"]


def test_a_wrong_checksum_of_the_gzip_stream_is_refused(artifact):
    assert rules(artifact[:-8] + b"\0\0\0\0" + artifact[-4:]) == ["gzip"]
    assert rules(artifact[:-4] + b"\0\0\0\0") == ["gzip"]


def test_a_member_behind_the_end_mark_is_refused():
    assert rules(raw(MODEL_BLOCK, bytes(1024), block("../evil", content=b"x"))) == ["tar-end"]
    assert rules(raw(MODEL_BLOCK, bytes(512), block("../evil", content=b"x"))) == ["tar-end"]


def test_padding_of_zeros_behind_the_end_mark_is_right():
    assert rules(raw(MODEL_BLOCK, bytes(100_000 // 512 * 512))) == []


def test_a_broken_header_in_the_middle_is_refused_though_tarfile_would_stop_silently():
    broken = bytearray(block("docs/a", content=b"x"))
    broken[0] ^= 1
    artifact = raw(MODEL_BLOCK, bytes(broken), block("../evil", content=b"x"))
    with tarfile.open(fileobj=io.BytesIO(artifact)) as archive:
        assert archive.getnames() == ["xgboost-model"]
    (finding,) = inspect(artifact).findings
    assert (finding.rule, finding.member) == ("tar-header", "xgboost-model")


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_SPARSE, tarfile.CONTTYPE, b"M", b"V", b"Z", b"\x01"])
def test_an_unknown_type_of_member_ends_the_inspection(kind):
    assert rules(raw(MODEL_BLOCK, block("docs/a", kind, b"x" * 10))) == ["tar-unsupported"]


@pytest.mark.parametrize("kind", [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_content_where_unpackers_disagree_about_it_is_refused(kind):
    assert rules(raw(MODEL_BLOCK, block("docs/a", kind, b"x" * 10))) == ["tar-header"]


@pytest.mark.parametrize("keyword", ["GNU.sparse.major", "GNU.sparse.realsize", "hdrcharset", "SCHILY.realsize"])
def test_pax_records_that_change_the_reading_are_refused(keyword):
    pax = block("pax", tarfile.XHDTYPE, pax_record(keyword, "1"))
    assert rules(raw(pax, MODEL_BLOCK)) == ["tar-unsupported"]


@pytest.mark.parametrize("payload", [b"x", b"0 a=b\n", b"99 a=b\n", b"6 a=bc", b"5 ab\n", b"\0" * 20, b"9999999999 a=b\n"])
def test_a_broken_pax_header_is_refused(payload):
    assert rules(raw(block("pax", tarfile.XHDTYPE, payload), MODEL_BLOCK)) == ["tar-header"]


def test_a_hostile_name_in_an_extension_is_seen():
    for extension in (
        block("pax", tarfile.XHDTYPE, pax_record("path", "../evil")),
        block("././@LongLink", tarfile.GNUTYPE_LONGNAME, b"../evil\0"),
    ):
        (finding,) = inspect(raw(MODEL_BLOCK, extension, block("docs/harmless", content=b"x"))).findings
        assert (finding.rule, finding.member) == ("parent-path", "../evil")


def test_a_global_pax_header_that_renames_is_refused():
    pax = block("pax", tarfile.XGLTYPE, pax_record("path", "xgboost-model"))
    assert rules(raw(pax, MODEL_BLOCK)) == ["tar-header"]


@pytest.mark.parametrize("size", ["-1", "1e3", "", "9" * 16, "0x10"])
def test_a_pax_size_that_is_no_number_is_refused(size):
    assert rules(raw(block("pax", tarfile.XHDTYPE, pax_record("size", size)), MODEL_BLOCK)) == ["tar-header"]


def test_repeated_empty_or_dangling_extensions_are_refused():
    name = block("././@LongLink", tarfile.GNUTYPE_LONGNAME, b"docs/a\0")
    assert rules(raw(name, name, MODEL_BLOCK)) == ["tar-header"]
    assert rules(raw(block("pax", tarfile.XHDTYPE, b""), MODEL_BLOCK)) == ["tar-header"]
    assert rules(raw(MODEL_BLOCK, name)) == ["tar-header"]


def test_a_negative_or_absurd_size_is_refused():
    for field in (b"\xff" * 12, b"\x80" + b"\xff" * 11):
        info = bytearray(block("docs/a"))
        info[124:136] = field
        info[148:156] = b" " * 8
        info[148:156] = f"{sum(info):06o}\0 ".encode()
        assert rules(raw(MODEL_BLOCK, bytes(info))) == ["tar-header"]


def test_too_many_members_end_the_inspection(make_archive):
    artifact = make_archive(MODEL, *[(f"docs/{number}", b"") for number in range(50)])
    assert rules(artifact, limits=ArchiveLimits(members=50)) == ["member-count"]
    assert rules(artifact, limits=ArchiveLimits(members=51)) == []


def test_a_folder_with_the_setgid_bit_is_right(make_archive):
    folder = header("docs", tarfile.DIRTYPE)
    folder.mode = 0o2775
    assert rules(make_archive(folder, MODEL, ("docs/a", b"x"))) == []


def test_folders_up_to_the_limit_are_right(make_archive):
    assert rules(make_archive(MODEL, ("a/" * 15 + "a", b"x"))) == []


@pytest.mark.parametrize("names", [["model/xgboost-model"], ["./model/xgboost-model", "model/notes.txt"]])
def test_a_folder_around_the_model_is_told_apart_from_a_missing_model(make_archive, names):
    (finding,) = inspect(make_archive(*[(name, b"x") for name in names])).findings
    assert (finding.rule, finding.member) == ("root-folder", names[0])


def test_too_large_a_member_ends_the_inspection_at_its_header(make_archive):
    artifact = make_archive(MODEL, ("docs/a", bytes(3 << 20)), ("../evil", b"x"))
    result = inspect(artifact, limits=ArchiveLimits(member_bytes=1 << 20))
    assert [(finding.rule, finding.member) for finding in result.findings] == [("member-size", "docs/a")]


def test_too_much_unpacked_ends_the_inspection(make_archive):
    artifact = make_archive(MODEL, ("docs/a", bytes(3 << 20)))
    result = inspect(artifact, limits=ArchiveLimits(unpacked_bytes=1 << 20))
    assert [finding.rule for finding in result.findings] == ["unpacked-size"]
    assert result.unpacked_bytes <= 2 << 20


def test_a_bomb_is_refused_by_its_ratio_without_being_unpacked(make_archive):
    artifact = make_archive(MODEL, ("docs/zeros", bytes(64 << 20)))
    limits = ArchiveLimits(ratio_floor_bytes=4 << 20)
    tracemalloc.start()
    result = inspect(artifact, limits=limits)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [finding.rule for finding in result.findings] == ["ratio"]
    assert result.unpacked_bytes < 8 << 20
    assert peak_bytes < 8 << 20


@pytest.mark.parametrize(
    "kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.SOLARIS_XHDTYPE]
)
def test_an_extension_bomb_is_refused_before_it_is_read(kind):
    size = 200 << 20
    packer = zlib.compressobj(wbits=31)
    pieces = [packer.compress(block("bomb", kind, size=size))]
    pieces += [packer.compress(b"a" * (1 << 20)) for _ in range(size >> 20)]
    artifact = b"".join([*pieces, packer.flush()])
    tracemalloc.start()
    (finding,) = inspect(artifact).findings
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert finding.rule == "tar-extension"
    assert peak_bytes < 8 << 20


def test_an_extension_at_the_limit_is_read_and_one_byte_more_is_not():
    def walk(size):
        return list(TarWalk(1024).feed(block("x", tarfile.GNUTYPE_LONGNAME, b"a" * size) + block("xgboost-model")))

    assert walk(1024)[0].name == "a" * 1024
    with pytest.raises(ArchiveFault, match="at most 1024"):
        walk(1025)


def test_an_unknown_framework_cannot_be_inspected():
    with pytest.raises(ValueError, match="xgboost"):
        ArchiveInspector("cobol", ArchiveLimits())


@given(content=st.binary(max_size=4096))
def test_any_bytes_in_gzip_end_in_findings(content):
    assert rules(gzip.compress(content))


@given(cuts=st.lists(st.integers(1, 3000), min_size=1, max_size=10))
def test_members_do_not_depend_on_how_the_bytes_are_cut(cuts):
    data = block("docs/a", content=b"x" * 700) + MODEL_BLOCK + block("docs", tarfile.DIRTYPE) + bytes(1024)
    walk, members, start = TarWalk(1024), [], 0
    for cut in cuts:
        members += walk.feed(data[start : start + cut])
        start += cut
    members += walk.feed(data[start:])
    walk.close()
    assert [(member.name, member.kind, member.size_bytes) for member in members if isinstance(member, Member)] == [
        ("docs/a", "file", 700),
        ("xgboost-model", "file", 700),
        ("docs", "folder", 0),
    ]


def gnu_long_name(name):
    return block("././@LongLink", tarfile.GNUTYPE_LONGNAME, name.encode() + b"\0")


def pax_path(name):
    return block("PaxHeaders/x", tarfile.XHDTYPE, pax_record("path", name))


@pytest.mark.parametrize("naming", [(pax_path("numpy.py"), gnu_long_name("data/x")), (gnu_long_name("data/x"), pax_path("numpy.py"))])
def test_two_names_of_one_member_are_refused_because_unpackers_differ_in_which_wins(naming):
    assert rules(raw(MODEL_BLOCK, *naming, block("data/x", content=b"evil"))) == ["tar-header"]


def test_a_prefix_in_a_header_that_has_none_is_refused_because_unpackers_differ_in_whether_it_counts():
    header = bytearray(block("MAR-INF/MANIFEST.json", content=b"{}"))
    header[345:349] = b"data"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    assert rules(raw(MODEL_BLOCK, bytes(header))) == ["tar-header"]


def test_a_pax_record_without_a_keyword_is_refused_because_some_unpackers_stop_there():
    pax = block("PaxHeaders/x", tarfile.XHDTYPE, b"5 =a\n" + pax_record("path", "data/x"))
    assert rules(raw(MODEL_BLOCK, pax, block("numpy.py", content=b"evil"))) == ["tar-header"]
