"""Artifacts are unpacked only where they may, and only what may be there."""

import gzip
import io
import os
import tarfile

import pytest

from mme_local.dataplane import DataPlaneSettings, FleetSpec
from mme_local.dataplane.mms import MultiModelServer
from mme_local.dataplane.servers import image_repository, server_for
from mme_local.dataplane.unpack import BrokenArtifactError, unpack

KIND = MultiModelServer("/handler.py:handle", refuses_code=True)


def extract(content: bytes, folder, limit: int = 1_000_000, abandoned=lambda: False) -> int:
    return unpack(io.BytesIO(content), folder, KIND, limit, abandoned)


def special(name: str, kind: bytes, **fields) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo(name)
        info.type = kind
        for field, value in fields.items():
            setattr(info, field, value)
        tar.addfile(info)
    return buffer.getvalue()


def test_files_and_folders_are_unpacked(archive, tmp_path):
    assert extract(archive({"./xgboost-model": b"abc", "extra/notes.txt": b"de"}), tmp_path / "m") == 5
    assert (tmp_path / "m" / "xgboost-model").read_bytes() == b"abc"
    assert (tmp_path / "m" / "extra" / "notes.txt").read_bytes() == b"de"


@pytest.mark.parametrize("name", ["../up", "a/../../up", "/etc/absolute"])
def test_members_that_leave_the_folder_are_refused(archive, tmp_path, name):
    with pytest.raises(BrokenArtifactError, match=name):
        extract(archive({name: b"x"}), tmp_path / "m")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (tarfile.SYMTYPE, {"linkname": "/etc/passwd"}),
        (tarfile.LNKTYPE, {"linkname": "other"}),
        (tarfile.FIFOTYPE, {}),
        (tarfile.CHRTYPE, {}),
    ],
)
def test_links_and_devices_are_refused(tmp_path, kind, fields):
    with pytest.raises(BrokenArtifactError, match="'special'"):
        extract(special("special", kind, **fields), tmp_path / "m")


@pytest.mark.parametrize("name", ["numpy.py", "pkg/__init__.PY", "MAR-INF/MANIFEST.json"])
def test_members_that_the_server_would_run_are_refused(archive, tmp_path, name):
    with pytest.raises(BrokenArtifactError, match=name):
        extract(archive({name: b"x"}), tmp_path / "m")


def test_an_artifact_that_grows_beyond_the_limit_is_refused(archive, tmp_path):
    with pytest.raises(BrokenArtifactError, match="100000 bytes"):
        extract(archive({"zeros": bytes(5_000_000)}), tmp_path / "m", limit=100_000)


def test_headers_count_against_the_limit(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("small")
        info.pax_headers = {"comment": "x" * 1_000_000}
        tar.addfile(info)
    with pytest.raises(BrokenArtifactError):
        extract(buffer.getvalue(), tmp_path / "m", limit=100_000)


@pytest.mark.parametrize("cut", [5, 40, -8, -1])
def test_a_truncated_artifact_is_refused(tmp_path, archive, cut):
    content = archive({"xgboost-model": os.urandom(20_000)})
    with pytest.raises(BrokenArtifactError, match="sound"):
        extract(content[:cut], tmp_path / "m")


def test_a_damaged_checksum_is_noticed(tmp_path, archive):
    content = bytearray(archive({"xgboost-model": b"abc"}))
    content[-5] ^= 1
    with pytest.raises(BrokenArtifactError, match="sound"):
        extract(bytes(content), tmp_path / "m")


@pytest.mark.parametrize("content", [b"", b"plain text", gzip.compress(b"no tar", mtime=0), gzip.compress(b"", mtime=0)])
def test_what_is_no_tar_gz_is_refused(tmp_path, content):
    with pytest.raises(BrokenArtifactError):
        extract(content, tmp_path / "m")


def test_a_name_that_is_a_file_and_a_folder_is_refused(tmp_path, archive):
    with pytest.raises(BrokenArtifactError, match="'a'"):
        extract(archive({"a": b"x", "a/b": b"y"}), tmp_path / "m")


def test_abandoned_work_ends(tmp_path, archive):
    with pytest.raises(BrokenArtifactError, match="abandoned"):
        extract(archive({"a": b"x"}), tmp_path / "m", abandoned=lambda: True)


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1", "sagemaker-xgboost"),
        ("localhost:5000/team/sagemaker-xgboost@sha256:00", "sagemaker-xgboost"),
        ("sagemaker-xgboost", "sagemaker-xgboost"),
    ],
)
def test_an_image_uri_names_its_repository(image, repository):
    assert image_repository(image) == repository
    assert server_for(spec(image), DataPlaneSettings()).handler.endswith("xgboost_handler.py:handle")


def spec(image, **values):
    return FleetSpec("e", "v", 1, image, "b", "models/", **values)


def test_own_handlers_serve_their_repositories_and_others_get_a_refusal():
    assert server_for(spec("x/mine:1"), DataPlaneSettings(handlers={"mine": "/h.py:handle"})).handler == "/h.py:handle"
    refusal = server_for(spec("x/yours:1"), DataPlaneSettings(handlers={"mine": "/h.py:handle"})).refusal
    assert "x/yours:1" in refusal
    assert "mine, sagemaker-xgboost" in refusal


def test_the_handler_of_an_image_goes_before_its_repository_and_a_refusal_before_both():
    image = "x/sagemaker-xgboost:1"
    assert server_for(spec(image, handler="/own.py:handle"), DataPlaneSettings()).handler == "/own.py:handle"
    assert (
        server_for(spec(image, handler="/own.py:handle", refusal="no pipelines"), DataPlaneSettings()).refusal
        == f"no pipelines (image {image})"
    )


@pytest.mark.parametrize(
    "wrong",
    [{"instance_memory_bytes": 0}, {"invoke_timeout_seconds": 0}, {"load_wait_seconds": -1}, {"handlers": {"mine": "relative.py:handle"}}],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=r"use"):
        DataPlaneSettings(**wrong)
