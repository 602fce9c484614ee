"""Sending an artifact: whole or in parts, over lost answers, ended addresses and interruptions."""

import hashlib

import pytest

from mme_cli.errors import CommandError, NoAnswerError
from mme_cli.onboarding.artifact import ModelFiles
from mme_cli.onboarding.uploading import register_and_upload
from mme_cli.onboarding_client import ApiError, StoppedError
from mme_cli.signed_http import Answer
from tests.cli.fake_api import FakeApi, Stop, problem

CONTENT = bytes(range(100))
SHA256 = hashlib.sha256(CONTENT).hexdigest()
EXPIRED = Answer(403, {}, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(CONTENT)
    (tmp_path / "row.csv").write_text("1,2\n")
    return ModelFiles("acme", "iris", tmp_path / "a.tar.gz", tmp_path / "row.csv", "text/csv", "xgboost", "text/csv", "mine")


def upload(api, files, **options):
    told = []
    done = register_and_upload(api.client(**options), files, SHA256, told.append)
    return done, sum(told)


def test_a_small_artifact_goes_in_one_request(files):
    api = FakeApi()
    done, sent = upload(api, files)
    assert (done.new, sent) == (True, 100)
    assert api.uploads == {f"acme/iris/{done.version}": CONTENT}
    (version,) = api.versions["acme", "iris"]
    assert version["registration"] == {
        "sha256": SHA256,
        "size_bytes": 100,
        "framework": "xgboost",
        "notes": "mine",
        "sample": {"content_type": "text/csv", "accept": "text/csv", "body": "MSwyCg==", "encoding": "base64"},
    }
    assert api.calls["complete"] == 0, "the store's event says it"


def test_a_large_one_goes_in_parts_and_is_completed(files):
    api = FakeApi(part_bytes=30)
    done, sent = upload(api, files)
    assert api.uploads == {f"acme/iris/{done.version}": CONTENT}
    assert (sent, api.calls) == (100, {"register": 1, "upload": 4, "complete": 1})


def test_parts_that_are_there_are_not_sent_again(files):
    api = FakeApi(part_bytes=30)
    api.trouble["upload"] = [Answer(418, {}, b"no")]
    with pytest.raises(CommandError, match="answered 418: no"):
        upload(api, files)
    there, before = len(api.versions["acme", "iris"][0]["parts"]), api.calls["upload"]
    assert there < 4
    api.versions["acme", "iris"][0]["parts"][2] = CONTENT[30:60]
    missing = 4 - len(api.versions["acme", "iris"][0]["parts"])
    done, sent = upload(api, files)
    assert (sent, api.calls["upload"]) == (100, before + missing)
    assert api.uploads == {f"acme/iris/{done.version}": CONTENT}


def test_an_upload_whose_answer_was_lost_is_taken_for_done(files):
    api = FakeApi()
    api.lost = ["upload", "register"]
    done, sent = upload(api, files)
    assert (done.version, sent) == (f"v1-{SHA256[:12]}", 100)
    assert len(api.versions["acme", "iris"]) == 1, "the second registration finds the first"
    assert api.calls["upload"] == 2


@pytest.mark.parametrize("part_bytes", [None, 30])
def test_addresses_that_have_ended_are_renewed(files, part_bytes):
    api = FakeApi(part_bytes=part_bytes)
    api.trouble["upload"] = [EXPIRED]
    _, sent = upload(api, files)
    assert (sent, api.calls["register"]) == (100, 2)
    assert list(api.uploads.values()) == [CONTENT]


def test_addresses_that_always_end_are_given_up(files):
    api = FakeApi()
    api.trouble["upload"] = [EXPIRED] * 9
    with pytest.raises(CommandError, match="ended 5 times"):
        upload(api, files)


def test_a_part_that_is_missing_at_the_end_is_sent_again(files):
    api = FakeApi(part_bytes=30)
    api.trouble["complete"] = [problem(409, "upload-incomplete")]
    _, sent = upload(api, files)
    assert (api.calls["register"], api.calls["complete"]) == (2, 2)
    assert list(api.uploads.values()) == [CONTENT]
    assert sent >= 100


def test_the_store_is_tried_again_when_it_is_busy(files):
    api = FakeApi()
    api.trouble["upload"] = [Answer(503, {}, b"<Code>SlowDown</Code>"), NoAnswerError("cut")]
    _, sent = upload(api, files)
    assert (sent, api.calls["upload"]) == (100, 3)


def test_what_the_store_refuses_for_good_is_told(files):
    api = FakeApi()
    api.trouble["upload"] = [Answer(400, {}, b"<Code>BadDigest</Code>")]
    with pytest.raises(CommandError, match="answered 400: <Code>BadDigest"):
        upload(api, files)


def test_an_artifact_that_the_platform_has_is_not_sent(files):
    api = FakeApi()
    first, _ = upload(api, files)
    again, sent = upload(api, files)
    assert (again.version, again.new, sent, api.calls["upload"]) == (first.version, False, 0, 1)


def test_where_all_is_there_only_its_completion_is_said(files):
    api = FakeApi(part_bytes=30)
    api.trouble["complete"] = [problem(400, "invalid-request")]
    with pytest.raises(ApiError):
        upload(api, files)
    api.versions["acme", "iris"][0]["joined"] = CONTENT  # the parts were put together, the store's event was lost
    done, sent = upload(api, files)
    assert (done.new, sent, api.calls["upload"], api.calls["complete"]) == (True, 100, 4, 2)
    assert api.versions["acme", "iris"][0]["state"] == "active"


def test_a_refused_registration_ends_it(files):
    api = FakeApi()
    api.trouble["register"] = [problem(409, "quota-exceeded")]
    with pytest.raises(ApiError, match="because of quota-exceeded"):
        upload(api, files)


def test_ctrl_c_breaks_the_parts_under_way_off(files):
    api, stop = FakeApi(part_bytes=10), Stop()

    def interrupt(name):
        if name == "upload":
            raise KeyboardInterrupt

    api.on_call = interrupt
    with pytest.raises(KeyboardInterrupt):
        upload(api, files, stop=stop)
    assert stop.is_set()
    api.on_call = lambda _name: None
    assert upload(api, files)[1] == 100


def test_a_program_that_stops_breaks_an_upload_off(files):
    api, stop = FakeApi(), Stop()
    api.on_call = lambda name: stop.set() if name == "upload" else None

    class Sending(FakeApi):
        def upload(self, method, url, body, headers):
            stop.set()
            try:
                body.read(10)
            except StoppedError as error:
                raise NoAnswerError("as the HTTP client wraps it") from error
            raise AssertionError("it went on")

    api = Sending()
    with pytest.raises(StoppedError):
        upload(api, files, stop=stop)
    assert api.uploads == {}
