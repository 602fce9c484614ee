from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from mme_facts.admission import (
    ARTIFACT_BYTES,
    FINE_PARTS_SECONDS,
    FIRST_LOAD_LIMIT_SECONDS,
    INSPECTION_BYTES_PER_SECOND,
    INSPECTION_LIMIT_SHARE,
    INSPECTION_SHARE,
    S3_READ_BYTES_PER_SECOND,
    SAFETY,
    UNPACKED_BYTES,
    admissible_bytes,
    first_load_seconds,
    load_takes_too_long,
)

GIB = 1 << 30


def test_the_greatest_artifact_is_inspected_well_within_the_time():
    for memory_mb, timeout_seconds in itertools.product((512, 1024, 1769, 3008), (300, 600, 900)):
        size = admissible_bytes(memory_mb=memory_mb, timeout_seconds=timeout_seconds)
        vcpus = min(1.0, memory_mb / 1769)
        seconds = size / S3_READ_BYTES_PER_SECOND + size / (INSPECTION_BYTES_PER_SECOND * vcpus)
        assert seconds * SAFETY <= INSPECTION_SHARE * timeout_seconds
    assert INSPECTION_SHARE < INSPECTION_LIMIT_SHARE < 1
    assert SAFETY * FINE_PARTS_SECONDS < INSPECTION_SHARE * 900


def test_more_time_and_more_processor_never_make_it_smaller_and_a_second_processor_makes_it_no_greater():
    sizes = [admissible_bytes(memory_mb=1769, timeout_seconds=seconds) for seconds in range(1, 901, 10)]
    assert sizes == sorted(sizes)
    sizes = [admissible_bytes(memory_mb=memory_mb, timeout_seconds=900) for memory_mb in range(128, 1769, 50)]
    assert sizes == sorted(sizes)
    assert admissible_bytes(memory_mb=10_240, timeout_seconds=900) == ARTIFACT_BYTES


@pytest.mark.parametrize(("memory_mb", "timeout_seconds"), [(128, 1), (1769, 900)])
def test_there_is_always_room_for_a_small_one_and_never_for_more_than_may_be_unpacked(memory_mb, timeout_seconds):
    assert 1 << 20 <= admissible_bytes(memory_mb=memory_mb, timeout_seconds=timeout_seconds) <= UNPACKED_BYTES


def test_the_first_load_grows_with_the_artifact_and_only_very_large_ones_do_not_fit_an_invocation():
    assert first_load_seconds(packed_bytes=0, unpacked_bytes=0) < 1
    assert not load_takes_too_long(first_load_seconds(packed_bytes=2 * GIB, unpacked_bytes=4 * GIB))
    assert load_takes_too_long(first_load_seconds(packed_bytes=9 * GIB, unpacked_bytes=16 * GIB))
    assert not load_takes_too_long(FIRST_LOAD_LIMIT_SECONDS)


def test_the_page_of_the_rules_shows_what_is_derived():
    page = (Path(__file__).parents[2] / "docs" / "artifact-rules.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\d,]+)[^|]* \| (\d+) \| ([\d.]+) GiB \|$", page, re.MULTILINE)
    assert len(rows) == 4
    for memory, seconds, shown in rows:
        assert f"{admissible_bytes(memory_mb=int(memory.replace(',', '')), timeout_seconds=int(seconds)) / GIB:.1f}" == shown
