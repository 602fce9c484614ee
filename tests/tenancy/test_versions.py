from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from mme_tenancy.errors import ForbiddenMoveError
from mme_tenancy.versions import MOVES, Reason, State

LATER = "2026-11-29T12:00:01.000Z"
ALLOWED = {
    ("awaiting_upload", "inspecting"),
    ("awaiting_upload", "expired"),
    ("inspecting", "stored"),
    ("inspecting", "rejected"),
    ("inspecting", "expired"),
    ("stored", "warming"),
    ("stored", "rejected"),
    ("warming", "ready"),
    ("warming", "rejected"),
    ("ready", "active"),
    ("active", "ready"),
    ("ready", "retired"),
    ("active", "retired"),
    ("awaiting_upload", "retired"),
    ("inspecting", "retired"),
    ("stored", "retired"),
    ("warming", "retired"),
    ("retired", "purged"),
}
PAIRS = [(start.value, end.value) for start, end in product(State, State)]


def test_every_state_is_in_the_table():
    assert set(MOVES) == set(State)


@pytest.mark.parametrize(("start", "end"), sorted(ALLOWED))
def test_an_allowed_move_is_made(make_version, start, end):
    moved = make_version(State(start)).move(State(end), LATER)
    assert (moved.state, moved.updated_at, moved.rev) == (State(end), LATER, 2)


@pytest.mark.parametrize(("start", "end"), sorted(set(PAIRS) - ALLOWED))
def test_every_other_move_is_refused(make_version, start, end):
    with pytest.raises(ForbiddenMoveError, match=f"is {start} and cannot become {end}") as caught:
        make_version(State(start)).move(State(end), LATER)
    assert caught.value.allowed == [state.value for state in State if state in MOVES[State(start)]]


@pytest.mark.parametrize(
    ("start", "end", "moving"),
    [
        ("awaiting_upload", "inspecting", True),
        ("inspecting", "rejected", False),
        ("stored", "warming", True),
        ("warming", "ready", True),
        ("ready", "active", False),
        ("active", "ready", False),
        ("awaiting_upload", "expired", False),
        ("inspecting", "retired", False),
    ],
)
def test_a_version_moves_until_its_route_is_decided_and_never_again(make_version, start, end, moving):
    assert make_version(State(start)).move(State(end), LATER).moving is moving


def test_a_settled_version_is_ready_and_does_not_move(make_version):
    settled = make_version(State.READY).settle(LATER)
    assert (settled.state, settled.moving, settled.rev) == (State.READY, False, 2)


@pytest.mark.parametrize("state", [State.INSPECTING, State.STORED, State.WARMING, State.READY, State.ACTIVE])
def test_the_artifact_of_a_retired_version_is_kept_for_a_while(make_version, state):
    retired = make_version(state).retire(LATER, "2026-12-06T12:00:01.000Z")
    assert (retired.state, retired.purge_after, retired.rev) == (State.RETIRED, "2026-12-06T12:00:01.000Z", 2)


def test_nothing_is_kept_of_a_version_that_was_never_uploaded(make_version):
    assert make_version(State.AWAITING_UPLOAD).retire(LATER, "2026-12-06T12:00:01.000Z").purge_after == LATER


def test_timings_and_reasons_add_up_over_the_moves(make_version):
    version = make_version(State.INSPECTING).move(State.STORED, LATER, timings={"inspect_seconds": 1.5}).move(State.WARMING, LATER)
    rejected = version.move(State.REJECTED, LATER, timings={"first_invocation_seconds": 2.0}, reasons=[Reason("r", "d", "f")])
    assert rejected.timings == {"inspect_seconds": 1.5, "first_invocation_seconds": 2.0}
    assert rejected.document()["reasons"] == [{"rule": "r", "member": None, "detail": "d", "fix": "f"}]


def test_the_document_shows_the_state_and_hides_the_sample(make_version):
    document = make_version(State.ACTIVE).document()
    assert document["active"] is True
    assert document["version"] == f"v1-{document['sha256'][:12]}"
    assert "sample" not in document


def test_the_documentation_draws_every_move_and_no_other():
    page = (Path(__file__).parents[2] / "docs" / "states.md").read_text("utf-8")
    drawn = set(re.findall(r"^  (\w+) --> (\w+):", page, re.MULTILINE))
    assert drawn == {(state.value, target.value) for state, targets in MOVES.items() for target in targets}
