"""Where copies of inference components go: nothing is placed beyond what an instance has."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mme_local.sagemaker.placement import Hosts, Needs, capacity_of
from mme_local.wire import AwsError

CAPACITY = Needs(4.0, 16384, 1)


def test_an_instance_offers_what_its_type_has():
    assert capacity_of("ml.m5.xlarge") == Needs(4.0, 16384, 0)
    assert capacity_of("ml.g5.xlarge").accelerators == 1
    assert capacity_of("ml.inf2.xlarge").accelerators == 1


def test_a_type_without_figures_is_refused_with_its_name():
    with pytest.raises(AwsError, match=r"ml\.p6e-gb200\.36xlarge"):
        capacity_of("ml.p6e-gb200.36xlarge")


@pytest.mark.parametrize(
    ("needs", "most"),
    [
        (Needs(1.0, 128), 8),
        (Needs(0.25, 4096), 8),
        (Needs(0.0, 16384), 2),
        (Needs(0.25, 128, 1), 2),
        (Needs(4.5, 128), 0),
        (Needs(1.0, 16385), 0),
    ],
    ids=["cpus", "memory", "all memory", "accelerators", "more cpus than one has", "more memory than one has"],
)
def test_as_many_copies_fit_as_the_scarcest_resource_allows(needs, most):
    hosts = Hosts(CAPACITY, 2)
    assert hosts.set("c", needs, most)
    assert not hosts.set("c", needs, most + 1)
    assert hosts.copies("c") == most, "a refusal changes nothing"


def test_copies_are_spread_unless_packed():
    spread, packed = Hosts(CAPACITY, 3), Hosts(CAPACITY, 3)
    assert spread.set("c", Needs(1.0, 128), 3)
    assert packed.set("c", Needs(1.0, 128), 3, packed=True)
    assert spread.placed() == [{"c": 1}] * 3
    assert sorted(map(len, packed.placed())) == [0, 0, 1]
    assert (spread.idle, packed.idle) == (0, 2)


def test_fewer_instances_take_the_copies_of_those_that_go_or_stay():
    hosts = Hosts(CAPACITY, 3)
    hosts.set("c", Needs(2.0, 128), 4)
    assert not hosts.resize(1)
    assert hosts.count == 3
    assert hosts.resize(2)
    assert (hosts.copies("c"), hosts.idle) == (4, 0)
    assert hosts.resize(4)
    assert hosts.idle == 2


def test_consolidation_knows_how_few_instances_would_do():
    hosts = Hosts(CAPACITY, 4)
    hosts.set("a", Needs(1.0, 128), 4)
    hosts.set("b", Needs(2.0, 128), 2)
    assert (hosts.idle, hosts.consolidated()) == (0, 2)
    hosts.set("a", Needs(1.0, 128), 0)
    hosts.set("b", Needs(2.0, 128), 0)
    assert hosts.consolidated() == 0


needs_of = st.builds(Needs, st.sampled_from([0.0, 0.25, 1.0, 2.5]), st.sampled_from([128, 4096, 9000, 20000]), st.integers(0, 1))
moves = st.one_of(st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.booleans()), st.integers(0, 5))


@given(st.fixed_dictionaries(dict.fromkeys("abc", needs_of)), st.lists(moves, max_size=20))
def test_no_sequence_of_changes_reserves_more_than_there_is(needs, changes):
    hosts, wanted = Hosts(CAPACITY, 2), Counter()
    for change in changes:
        if isinstance(change, int):
            expected = hosts.count
            if hosts.resize(change):
                expected = change
            assert hosts.count == expected
        else:
            key, copies, packed = change
            if hosts.set(key, needs[key], copies, packed=packed):
                wanted[key] = copies
        assert {key: hosts.copies(key) for key in "abc"} == {key: wanted[key] for key in "abc"}
        for host in hosts.placed():
            used = CAPACITY
            for key, copies in host.items():
                used = used.less(needs[key], copies)
            assert Needs(0.0, 0, 0).within(used)
