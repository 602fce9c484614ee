"""mme package: right artifacts from models as frameworks leave them, the same bytes every time, one sentence for what is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import stat
import subprocess
import sys
import tarfile

import pytest

from mme_cli.errors import CommandError
from mme_cli.package import package
from mme_tenancy.testing import booster
from tests.tenancy.artifact_corpus import CONFIG, onnx, onnx_graph, saved_model, skops, tensor, torch_script


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def names(artifact):
    with tarfile.open(artifact) as archive:
        return [(member.name, member.isdir()) for member in archive]


ONNX_WITH_DATA = onnx(graph=onnx_graph(initializers=[tensor("w.bin")]))
FILES = {
    "booster.ubj": ("xgboost", booster(), "xgboost-model"),
    "booster.JSON": ("xgboost", booster(), "xgboost-model"),
    "net.onnx": ("onnx", onnx(), "model.onnx"),
    "net.pt": ("pytorch", torch_script(), "model.pt"),
    "pipeline.skops": ("sklearn", skops(), "model.skops"),
}
FOLDERS = {
    "a SavedModel": ("tensorflow", {"saved_model.pb": saved_model("Const"), "assets/a.txt": b"a"}, ["1/assets/a.txt", "1/saved_model.pb"]),
    "a folder of versions": ("tensorflow", {"7/saved_model.pb": saved_model("Const")}, ["7/saved_model.pb"]),
    "a Triton model": (
        "triton",
        {"config.pbtxt": b'backend: "onnxruntime"', "1/model.onnx": onnx()},
        ["folder/1/model.onnx", "folder/config.pbtxt"],
    ),
    "a Triton repository": ("triton", {"m/config.pbtxt": CONFIG.encode(), "m/1/model.onnx": onnx()}, ["m/1/model.onnx", "m/config.pbtxt"]),
    "ONNX with external data": ("onnx", {"net.onnx": ONNX_WITH_DATA, "w.bin": bytes(8)}, ["net.onnx", "w.bin"]),
    "a folder of XGBoost": ("xgboost", {"xgboost-model": booster(), "docs/card.md": b"# card"}, ["docs/card.md", "xgboost-model"]),
}


@pytest.mark.parametrize("name", FILES)
def test_a_models_file_becomes_an_artifact_with_its_member_at_the_root(here, name):
    framework, content, member = FILES[name]
    (here / name).write_bytes(content)
    made = package(here / name)
    artifact = here / f"{name.partition('.')[0]}.tar.gz"
    assert (made.framework, made.members, made.artifact) == (framework, (member,), artifact.name)
    assert names(artifact) == [(member, False)]
    assert made.sha256 == hashlib.sha256(artifact.read_bytes()).hexdigest()
    assert made.size_bytes == artifact.stat().st_size


@pytest.mark.parametrize("name", FOLDERS)
def test_a_models_folder_becomes_an_artifact_of_the_frameworks_layout(here, name):
    framework, files, members = FOLDERS[name]
    made = package(put(here / "folder", files))
    assert (made.framework, list(made.members)) == (framework, members)
    assert names(here / "folder.tar.gz") == [(member, False) for member in members]


def test_the_same_model_is_the_same_artifact_whatever_its_times_modes_and_folder(here):
    files = {"config.pbtxt": b'backend: "onnxruntime"', "1/model.onnx": onnx(), "labels.txt": b"a"}
    first = package(put(here / "a" / "m", files), here / "first.tar.gz")
    other = put(here / "b" / "m", dict(reversed(files.items())))
    for path in other.rglob("*.*"):
        os.utime(path, (1, 1))
        path.chmod(0o400)
    second = package(other, here / "second.tar.gz")
    assert first.sha256 == second.sha256
    assert (here / "first.tar.gz").read_bytes() == (here / "second.tar.gz").read_bytes()


def test_an_empty_version_of_an_ensemble_stays(here):
    ensemble = b'platform: "ensemble" ensemble_scheduling { step [ { model_name: "m" model_version: -1 } ] }'
    put(here / "folder", {"e/config.pbtxt": ensemble, "m/config.pbtxt": CONFIG.encode(), "m/1/model.onnx": onnx()})
    (here / "folder" / "e" / "1").mkdir()
    package(here / "folder")
    assert ("e/1", True) in names(here / "folder.tar.gz")


def test_what_is_no_part_of_a_model_is_left_out_and_told(here):
    junk = {".DS_Store": b"x", "docs/._card.md": b"x", "__pycache__/a.pyc": b"x"}
    made = package(put(here / "folder", {"xgboost-model": booster(), "docs/card.md": b"x", **junk}))
    assert made.members == ("docs/card.md", "xgboost-model")
    assert sorted(made.left_out) == [".DS_Store", "__pycache__", "docs/._card.md"]


def test_a_link_to_a_file_is_packed_as_the_file(here):
    (here / "real").write_bytes(booster())
    (here / "booster.ubj").symlink_to("real")
    package(here / "booster.ubj")
    assert names(here / "booster.tar.gz") == [("xgboost-model", False)]


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (lambda here: here / "nothing", {}, "does not exist"),
        (lambda here: put(here, {"a.bin": b"x"}) / "a.bin", {}, "--framework"),
        (lambda here: put(here, {"a.ubj": booster()}) / "a.ubj", {"framework": "cobol"}, "use one of xgboost"),
        (lambda here: put(here, {"a.ubj": b"hello"}) / "a.ubj", {}, "xgboost-model: the file is neither UBJSON nor JSON"),
        (lambda here: put(here, {"a.pkl": pickle.dumps({})}) / "a.pkl", {}, "--allow-code"),
        (lambda here: put(here, {"a.onnx": ONNX_WITH_DATA}) / "a.onnx", {}, "pack the files of external data"),
        (lambda here: put(here, {"a.pb": b""}) / "a.pb", {"framework": "tensorflow"}, "is a folder"),
        (lambda here: put(here / "f", {"xgboost-model": booster(), "x/numpy.py": b""}), {}, "x/numpy.py"),
        (lambda here: put(here / "f", {".DS_Store": b""}), {"framework": "onnx"}, "holds no files"),
        (lambda here: put(here, {"a.ubj": booster(), "a.tar.gz": b"mine"}) / "a.ubj", {}, "--overwrite"),
        (lambda here: put(here, {"a.ubj": booster()}) / "a.ubj", {"artifact": "none/a.tar.gz"}, "--output"),
    ],
)
def test_what_cannot_be_packed_is_told_in_one_sentence_and_leaves_nothing_behind(here, make, options, words):
    source = make(here)
    before = sorted(here.iterdir())
    if "artifact" in options:
        options = {**options, "artifact": here / options["artifact"]}
    with pytest.raises(CommandError, match=words.replace("(", r"\(")) as caught:
        package(source, **options)
    assert "\n" not in str(caught.value)
    assert sorted(here.iterdir()) == before
    assert not (here / "a.tar.gz").exists() or (here / "a.tar.gz").read_bytes() == b"mine"


def test_links_to_folders_and_pipes_are_refused(here):
    folder = put(here / "f", {"xgboost-model": booster()})
    (folder / "docs").symlink_to(here)
    with pytest.raises(CommandError, match="link to a folder"):
        package(folder)
    (folder / "docs").unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(CommandError, match="no plain file"):
        package(folder)


def test_an_artifact_is_replaced_only_when_asked_and_is_readable_as_any_file(here):
    (here / "a.ubj").write_bytes(booster())
    (here / "a.tar.gz").write_bytes(b"old")
    package(here / "a.ubj", overwrite=True)
    assert names(here / "a.tar.gz") == [("xgboost-model", False)]
    (here / "plain").touch()
    assert stat.S_IMODE((here / "a.tar.gz").stat().st_mode) == stat.S_IMODE((here / "plain").stat().st_mode)


def mme(*arguments):
    return subprocess.run([sys.executable, "-m", "mme_cli.main", "package", *arguments], capture_output=True, text=True, check=False)


def test_the_command_prints_what_a_registration_needs(here):
    put(here / "folder", {"model.pkl": pickle.dumps({}), "requirements.txt": b"x"})
    done = mme("folder", "--allow-code", "--json")
    document = json.loads(done.stdout)
    assert (document["framework"], document["artifact"], document["members"]) == (
        "sklearn",
        "folder.tar.gz",
        ["model.pkl", "requirements.txt"],
    )
    assert document["sha256"] == hashlib.sha256((here / "folder.tar.gz").read_bytes()).hexdigest()
    assert [warning["rule"] for warning in document["warnings"]] == ["ignored"]
    refused = mme("folder", "--overwrite")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("mme: the model would not be admitted as sklearn: model.pkl")
    assert "Traceback" not in refused.stderr
    shown = mme("folder", "--allow-code", "--overwrite")
    assert document["sha256"] in shown.stdout
    assert "requirements.txt" in shown.stderr
