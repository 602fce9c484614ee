"""The map from real to scaled time."""

import pytest

from mme_facts.scaled_time import ScaledTime


def test_nothing_set_is_real_time():
    assert ScaledTime.read(None).at(1234.5) == 1234.5
    assert ScaledTime.read("").at(1234.5) == 1234.5


def test_a_scale_and_a_jump():
    clock = ScaledTime(100.0, 100.0, 60.0)
    assert clock.at(101.0) == 160.0
    later = clock.jumped(101.0, 3600.0)
    assert later.at(101.0) == 3760.0
    assert later.at(102.0) == 3820.0


def test_other_processes_read_what_was_written():
    clock = ScaledTime(1764450000.123456, 1764450007.5, 37.0)
    assert ScaledTime.read(clock.setting) == clock


@pytest.mark.parametrize("setting", ["fast", "1,2", "1,2,3,4", "1,x,3"])
def test_other_texts_are_refused(setting):
    with pytest.raises(ValueError, match=f"MME_CLOCK is '{setting}'"):
        ScaledTime.read(setting)


@pytest.mark.parametrize("scale", ["0", "-1", "nan", "inf"])
def test_a_clock_goes_forward(scale):
    with pytest.raises(ValueError, match="a number above 0"):
        ScaledTime.read(f"0,0,{scale}")
