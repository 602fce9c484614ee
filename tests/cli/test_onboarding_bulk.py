"""A run over a manifest: every model once, whatever fails or stops it in between."""

import hashlib
import threading

import pytest

from mme_cli.errors import NoAnswerError
from mme_cli.onboarding.artifact import ModelFiles
from mme_cli.onboarding.bulk import Bulk, Pace
from mme_cli.onboarding.journal import Journal
from mme_cli.onboarding.manifest import Row
from mme_cli.onboarding_client import OnboardingClient, Retries
from tests.cli.fake_api import FINDING, FakeApi, problem

PACE = Pace(
    uploading_seconds=0.01,
    first_seconds=0.001,
    greatest_seconds=0.01,
    behind_seconds=0.001,
    silent_seconds=0.01,
    ready_seconds=0.02,
    save_seconds=0.01,
)


class Runs:
    """Runs over the same manifest, one after the other."""

    def __init__(self, folder, count):
        (folder / "row.csv").write_text("1,2\n")
        self.folder, self.api, self.rows = folder, FakeApi(), []
        for number in range(count):
            artifact = folder / f"{number}.tar.gz"
            artifact.write_bytes(b"artifact %d" % number)
            files = ModelFiles(f"t{number % 3}", f"m{number}", artifact, folder / "row.csv", "text/csv", "xgboost")
            self.rows.append(Row(number + 2, files))

    def run(self, *, stop=None, show=lambda _progress: None, timeout_seconds=60.0, pace=PACE):
        stop = stop or threading.Event()
        journal = Journal(self.folder / "journal")
        client = OnboardingClient(self.api, Retries(deadline_seconds=0.05, first_wait_seconds=0.001, stop=stop))
        bulk = Bulk(self.rows, lambda _tenant: client, journal, concurrency=4, stop=stop, timeout_seconds=timeout_seconds, pace=pace)
        return bulk.run(show, 0.002)

    @property
    def versions(self):
        return {f"{tenant}/{model}": versions for (tenant, model), versions in self.api.versions.items()}


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path, 20)


def test_every_model_becomes_active_once(runs):
    shown = []
    result = runs.run(show=shown.append)
    assert [outcome.state for outcome in result.outcomes] == ["active"] * 20
    assert (result.failures, result.undecided) == ([], 0)
    assert {name: len(versions) for name, versions in runs.versions.items()} == {row.name: 1 for row in runs.rows}
    assert (shown[-1].total, shown[-1].uploaded, shown[-1].admitted, shown[-1].failed) == (20, 20, 20, 0)
    assert runs.api.calls["version"] == 0, "pages tell enough"


def test_a_second_run_finds_everything_there(runs):
    runs.run()
    (runs.folder / "journal").unlink()
    result = runs.run()
    assert [outcome.state for outcome in result.outcomes] == ["active"] * 20
    assert runs.api.calls["upload"] == 20


def test_what_is_rejected_or_cannot_be_sent_is_told_and_the_others_go_on(runs):
    runs.api.fates = {"t0/m3": "rejected", "t1/m4": "expired"}
    runs.rows[7].files.artifact.unlink()
    result = runs.run()
    assert {(row.line, outcome.state) for row, outcome in result.failures} == {(5, "rejected"), (6, "expired"), (9, "failed")}
    texts = {row.line: outcome.text for row, outcome in result.failures}
    assert texts[5] == "a/b: is damaged (gzip); pack it again"
    assert result.outcomes[3].reasons == (FINDING,) or list(result.outcomes[3].reasons) == [FINDING]
    assert texts[6] == "the version is expired"
    assert "cannot be read" in texts[9]


def test_what_was_rejected_is_not_sent_again_by_the_run_that_goes_on(runs):
    runs.api.fates = {"t0/m3": "rejected"}
    runs.run()
    again = runs.run()
    assert [row.line for row, _ in again.failures] == [5]
    assert again.failures[0][1].text == "a/b: is damaged (gzip); pack it again"
    assert len(runs.versions["t0/m3"]) == 1
    assert runs.api.calls["register"] == 20


def test_a_model_beside_a_newer_version_is_ready(runs):
    row = runs.rows[0]
    runs.api.fates = {row.name: "ready"}
    result = runs.run()
    assert result.outcomes[0].state == "ready"
    assert result.outcomes[0].admitted


def test_a_version_that_nobody_decides_is_given_up_after_its_time(runs):
    runs.api.fates = {"t0/m0": "inspecting"}
    result = runs.run(timeout_seconds=0.05)
    ((row, outcome),) = result.failures
    assert (row.name, outcome.state) == ("t0/m0", "inspecting")
    assert "is still inspecting" in outcome.text
    runs.api.versions["t0", "m0"][0]["state"] = "active"
    assert runs.run().failures == []
    assert len(runs.versions["t0/m0"]) == 1


def test_lost_answers_and_busy_calls_change_nothing(runs):
    runs.api.lost = ["register"] * 5 + ["upload"] * 5
    runs.api.trouble = {"register": [problem(503, "unavailable"), NoAnswerError("cut")], "models": [problem(429, "throttled")]}
    result = runs.run()
    assert result.failures == []
    assert {len(versions) for versions in runs.versions.values()} == {1}


def test_a_call_that_keeps_failing_costs_its_model_only(runs):
    runs.api.trouble = {"register": [problem(400, "invalid-request")]}
    ((_, outcome),) = runs.run().failures
    assert outcome.text.endswith("answered 400: because of invalid-request")
    assert runs.run().failures == []


@pytest.mark.parametrize("call", ["register", "upload", "models"])
@pytest.mark.parametrize("number", [1, 7, 20])
def test_a_run_that_is_interrupted_anywhere_goes_on_to_the_same_end(tmp_path, call, number):
    runs, stop = Runs(tmp_path, 20), threading.Event()

    def interrupt(name):
        if name == call and runs.api.calls[name] + 1 >= number:
            stop.set()

    runs.api.on_call = interrupt
    first = runs.run(stop=stop)
    runs.api.on_call = lambda _name: None
    second = runs.run()
    assert (second.failures, second.undecided) == ([], 0)
    assert {name: len(versions) for name, versions in runs.versions.items()} == {row.name: 1 for row in runs.rows}
    assert first.undecided <= 20
    digests = {hashlib.sha256(data).hexdigest() for data in runs.api.uploads.values()}
    assert len(digests) == len(runs.api.uploads) == 20


def test_an_interrupt_from_the_keyboard_leaves_a_journal(runs):
    def show(progress):
        if progress.uploaded >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.run(show=show)
    journal = Journal(runs.folder / "journal")
    known = [entry for row in runs.rows if (entry := journal.get(row.name, hashlib.sha256(row.files.artifact.read_bytes()).hexdigest()))]
    assert len(known) >= 5
    assert len(known) == len(runs.api.uploads), "nothing that is uploaded is forgotten"
    assert runs.run().failures == []
    assert {len(versions) for versions in runs.versions.values()} == {1}


def test_what_fails_unexpectedly_ends_the_run(runs):
    runs.api.trouble = {"models": [ZeroDivisionError("a mistake")]}
    with pytest.raises(ZeroDivisionError):
        runs.run()
