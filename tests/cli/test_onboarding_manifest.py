"""The manifest is checked as a whole, with the numbers of its lines; the journal is the old one or the new one."""

import io
import json
import tarfile

import pytest

from mme_cli.errors import UsageError
from mme_cli.onboarding.artifact import content_type_of, framework_of
from mme_cli.onboarding.journal import Entry, Journal, journal_of, only_run
from mme_cli.onboarding.manifest import read_manifest, write_manifest

HEADER = "tenant,model,artifact,sample"


def archive(path, *names):
    with tarfile.open(path, "w:gz") as file:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 1
            file.addfile(info, io.BytesIO(b"x"))


@pytest.fixture
def folder(tmp_path):
    archive(tmp_path / "a.tar.gz", "xgboost-model")
    (tmp_path / "row.csv").write_text("1,2\n")
    return tmp_path


def manifest(folder, *lines, header=HEADER):
    path = folder / "models.csv"
    path.write_text("\n".join([header, *lines]) + "\n", "utf-8")
    return path


def refused(folder, *lines, **options):
    with pytest.raises(UsageError) as error:
        read_manifest(manifest(folder, *lines, **options))
    return str(error.value)


def test_a_right_manifest_is_read_with_what_the_files_tell(folder):
    path = manifest(
        folder,
        "acme,iris,a.tar.gz,row.csv,,,,",
        '"acme",wine,a.tar.gz,row.csv,text/csv,sklearn,application/json,"two words, a comma"',
        header="\ufefftenant,model,artifact,sample,content_type,framework,accept,notes",
    )
    first, second = read_manifest(path)
    assert (first.line, first.name, first.files.framework, first.files.content_type) == (2, "acme/iris", "xgboost", "text/csv")
    assert first.files.artifact == folder / "a.tar.gz"
    assert (second.files.framework, second.files.accept, second.files.notes) == ("sklearn", "application/json", "two words, a comma")


def test_all_wrong_lines_are_told_with_their_numbers(folder):
    (folder / "empty.csv").touch()
    (folder / "large.csv").write_bytes(bytes(300_000))
    (folder / "text.tar.gz").write_text("no archive")
    archive(folder / "many.tar.gz", "a.onnx", "b.skops")
    text = refused(
        folder,
        "Acme,iris,a.tar.gz,row.csv",
        "acme,iris,missing.tar.gz,row.csv",
        "acme,iris,a.tar.gz,empty.csv",
        "acme,iris,a.tar.gz,large.csv",
        "acme,iris,text.tar.gz,row.csv",
        "acme,iris,many.tar.gz,row.csv",
        "acme,iris,,row.csv",
        "acme,iris,a.tar.gz,row.csv,more",
        "acme,iris,a.tar.gz,row.csv",
        "acme,iris,a.tar.gz,row.csv",
    )
    assert "9 wrong lines, nothing was sent" in text
    for line, part in enumerate(
        (
            "tenant 'Acme' is not allowed",
            "missing.tar.gz' does not exist",
            "empty.csv' is empty",
            "at most 262144 are allowed",
            "no .tar.gz that can be read",
            "tells several frameworks",
            "artifact is missing",
            "more values than the header has columns",
        ),
        start=2,
    ):
        assert f"line {line}: " in text
        assert part in next(row for row in text.splitlines() if f"line {line}: " in row)
    assert "line 11: acme/iris stands on line 10 already" in text


@pytest.mark.parametrize(
    ("column", "value", "part"),
    [("framework", "caffe", "framework 'caffe'"), ("content_type", "text", "sample.content_type 'text'"), ("notes", "x" * 1001, "notes")],
)
def test_values_that_the_api_would_refuse_are_refused_here(folder, column, value, part):
    assert part in refused(folder, f"acme,iris,a.tar.gz,row.csv,{value}", header=f"{HEADER},{column}")


def test_only_the_first_wrong_lines_are_shown(folder):
    text = refused(folder, *["acme,iris,none,row.csv"] * 30)
    assert text.count("line ") == 20
    assert "and 10 more" in text


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("tenant,model,artifact", "no column 'sample'"),
        (f"{HEADER},colour", "unknown column 'colour'"),
        (f"{HEADER},notes,notes", "a column twice"),
    ],
)
def test_a_wrong_header_is_told(folder, header, part):
    assert part in refused(folder, header=header)


def test_a_manifest_without_models_or_of_another_kind_is_told(folder):
    assert "lists no models" in refused(folder)
    (folder / "models.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is not UTF-8"):
        read_manifest(folder / "models.csv")
    with pytest.raises(UsageError, match="cannot be read"):
        read_manifest(folder / "none.csv")
    assert "line 2: " in refused(folder, 'acme,"iris,a.tar.gz,row.csv')


def test_failed_rows_are_a_manifest_again(folder):
    rows = read_manifest(manifest(folder, "acme,iris,a.tar.gz,row.csv"))
    below = folder / "below"
    below.mkdir()
    write_manifest(below / "failed.csv", [(rows[0], 'it said "no", twice')])
    (again,) = read_manifest(below / "failed.csv")
    assert again.files.artifact.samefile(rows[0].files.artifact)
    assert 'it said ""no"", twice' in (below / "failed.csv").read_text()
    assert [path.name for path in below.iterdir()] == ["failed.csv"]


@pytest.mark.parametrize(
    ("names", "framework"),
    [
        (["./xgboost-model"], "xgboost"),
        (["README.md", "model.onnx", "model.onnx.data"], "onnx"),
        (["m/1/model.onnx", "m/config.pbtxt"], "triton"),
        (["1/saved_model.pb", "1/variables/variables.index"], "tensorflow"),
        (["model.skops"], "sklearn"),
        (["model.pt"], "pytorch"),
    ],
)
def test_the_members_tell_the_framework(tmp_path, names, framework):
    archive(tmp_path / "a.tar.gz", *names)
    assert framework_of(tmp_path / "a.tar.gz") == framework


def test_the_name_of_a_sample_tells_its_media_type(tmp_path):
    types = [content_type_of(tmp_path / name) for name in ("a.csv", "a.JSON", "a.bin")]
    assert types == ["text/csv", "application/json", "application/octet-stream"]


def test_the_journal_remembers_by_artifact(tmp_path):
    path = journal_of(tmp_path / "models.csv")
    journal = Journal(path)
    journal.save()
    assert not path.exists(), "nothing to say yet"
    entry = Entry("a" * 64, "v1-aaaaaaaaaaaa", "rejected", ({"rule": "gzip"},))
    journal.put("acme/iris", entry)
    journal.put("acme/wine", Entry("b" * 64, "v2-bbbbbbbbbbbb"))
    journal.save()
    again = Journal(path)
    assert again.get("acme/iris", "a" * 64) == entry
    assert again.get("acme/iris", "c" * 64) is None, "another artifact begins anew"
    assert again.get("acme/wine", "b" * 64) == Entry("b" * 64, "v2-bbbbbbbbbbbb")
    assert [file.name for file in tmp_path.iterdir()] == ["models.csv.journal"]
    again.remove()
    assert Journal(path).get("acme/iris", "a" * 64) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 2, "models": {}}', json.dumps({"format": 1, "models": {"a/b": {"x": 1}}})])
def test_a_file_that_is_no_journal_is_told(tmp_path, text):
    (tmp_path / "j").write_text(text)
    with pytest.raises(UsageError, match="is no journal of this command: move it away"):
        Journal(tmp_path / "j")


def test_two_runs_do_not_have_one_manifest(tmp_path):
    path = tmp_path / "models.csv"
    path.touch()
    with only_run(path), pytest.raises(UsageError, match="another run is under way"), only_run(path):
        pass
    with only_run(path):
        pass
