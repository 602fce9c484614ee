"""Traces as arrays: what may not be in them, and the ways to look at them."""

from dataclasses import replace

import numpy as np
import pytest

from mme_fleet.traffic import Population, Trace, shape_of

NAMES = ("acme/a/v1-0123456789ab.tar.gz", "acme/b/v1-0123456789ab.tar.gz", "globex/c/v1-0123456789ab.tar.gz")


def population(**other):
    values = {
        "models": NAMES,
        "tenants": ("acme", "globex"),
        "tenant": [0, 0, 1],
        "memory_bytes": [10, 20, 30],
        "load_seconds": [1, 2, 3.5],
        "service_seconds": [0.1, 0.2, 0.3],
        "payload_bytes": [1, 2, 3],
        "born": [0, 0, 50],
        "gone": [np.inf, 100, np.inf],
    }
    return Population(**values | other)


def trace(**other):
    values = {"population": population(), "seconds": [0, 10, 60, 61, 119], "model": [0, 1, 0, 2, 0], "duration_seconds": 120}
    return Trace(**values | other)


class TestPopulation:
    def test_it_knows_sizes_and_load_times_by_name(self):
        models = population()
        assert (len(models), models.total_bytes) == (3, 60)
        assert models.sizes() == dict(zip(NAMES, (10, 20, 30), strict=True))
        assert models.loads() == dict(zip(NAMES, (1, 2, 3.5), strict=True))

    def test_quantities_of_models_sum_up_by_tenant(self):
        assert population().of_tenants(np.array([5, 6, 7])).tolist() == [11, 7]

    @pytest.mark.parametrize(
        ("other", "says"),
        [
            ({"memory_bytes": [1, 2]}, "memory_bytes has 2 entries for 3 models: give one each"),
            ({"memory_bytes": [0, 1, 2]}, "memory_bytes has 0: use 1 or more"),
            ({"memory_bytes": [[1, 2, 3]]}, "memory_bytes has 2 dimensions: use one"),
            ({"load_seconds": [1, float("nan"), 1]}, "load_seconds has nan: use 0 or more"),
            ({"tenant": [0, 1, 2]}, "tenant has 2, but there are 2 tenants"),
            ({"tenant": [0, -1, 1]}, "tenant has -1"),
            ({"models": (NAMES[0], NAMES[1], NAMES[0])}, "models has 'acme/a/v1-0123456789ab.tar.gz' twice"),
            ({"tenants": ("acme", "acme")}, "tenants has 'acme' twice"),
            ({"gone": [10, 10, 10]}, "gone before it is born"),
        ],
    )
    def test_arrays_that_do_not_fit_are_refused(self, other, says):
        with pytest.raises(ValueError, match=says):
            population(**other)

    def test_arrays_cannot_be_written(self):
        with pytest.raises(ValueError, match="read-only"):
            population().memory_bytes[0] = 1


class TestTrace:
    def test_arrivals_are_times_and_names_in_order(self):
        first, *others = trace().arrivals()
        assert first == (0.0, NAMES[0])
        assert [type(value) for value in first] == [float, str]
        assert [model for _, model in others] == [NAMES[1], NAMES[0], NAMES[2], NAMES[0]]

    def test_long_traces_arrive_in_full(self):
        count = 200_001
        long = trace(seconds=np.arange(count) / count, model=np.arange(count) % 3)
        arrivals = list(long.arrivals())
        assert len(arrivals) == count
        assert arrivals[131_072] == (131_072 / count, NAMES[131_072 % 3])

    def test_requests_are_counted_by_model_and_window(self):
        assert trace().requests_per_model.tolist() == [3, 1, 1]
        assert trace().windows(60).tolist() == [[1, 1, 0], [2, 0, 1]]
        assert trace(duration_seconds=130).windows(60).tolist() == [[1, 1, 0], [2, 0, 1], [0, 0, 0]]
        with pytest.raises(ValueError, match="a window lasts 0 seconds"):
            trace().windows(0)

    def test_a_part_counts_from_its_start(self):
        part = trace(payload_bytes=[1, 2, 3, 4, 5], service_seconds=[1, 2, 3, 4, 5]).between(10, 61)
        assert (part.seconds.tolist(), part.model.tolist(), part.duration_seconds) == ([0, 50], [1, 0], 51)
        assert (part.payload_bytes.tolist(), part.service_seconds.tolist()) == ([2, 3], [2, 3])
        assert part.population.born.tolist() == [-10, -10, 40]
        assert part.population.gone.tolist() == [np.inf, 90, np.inf]
        for start, end in ((5, 5), (-1, 5), (120, 130)):
            with pytest.raises(ValueError, match=f"between {start} and {end}"):
                trace().between(start, end)

    def test_some_models_are_numbered_anew_and_the_others_requests_leave(self):
        some = trace(service_seconds=[1, 2, 3, 4, 5]).only(np.array([True, False, True]))
        assert (some.population.models, some.model.tolist()) == ((NAMES[0], NAMES[2]), [0, 0, 1, 0])
        assert some.service_seconds.tolist() == [1, 3, 4, 5]
        assert some.population.tenants == ("acme", "globex")
        with pytest.raises(ValueError, match="give one bool each"):
            trace().only(np.array([0, 2]))

    @pytest.mark.parametrize(
        ("other", "says"),
        [
            ({"model": [0, 1]}, "model has 2 entries for 5 requests"),
            ({"model": [0, 1, 2, 3, 0]}, "model has 0 to 3: use positions of the 3 models"),
            ({"seconds": [0, 10, 9, 61, 119]}, "go back at request 2, from 10.0 to 9.0"),
            ({"duration_seconds": 0}, "duration_seconds is 0.0: use a finite number above 0"),
            ({"duration_seconds": 100}, "seconds run from 0.0 to 119.0: use 0 to duration_seconds, 100"),
            ({"seconds": [-1, 10, 60, 61, 119]}, "seconds run from -1.0"),
            ({"seconds": [0, 10, float("nan"), 61, 119]}, "go back at request 2"),
            ({"payload_bytes": [1]}, "payload_bytes has 1 entries for 5 requests"),
            ({"service_seconds": [1]}, "service_seconds has 1 entries for 5 requests"),
        ],
    )
    def test_arrays_that_do_not_fit_are_refused(self, other, says):
        with pytest.raises(ValueError, match=says):
            trace(**other)


class TestShape:
    def test_the_most_popular_and_the_busiest_have_their_shares(self):
        shape = shape_of(trace(), shares=(0.34, 0.5, 1.0))
        assert shape.top_shares == {0.34: 0.6, 0.5: pytest.approx(0.8), 1.0: 1.0}
        assert shape.peaks == {0.34: 0.6, 0.5: 0.6, 1.0: 1.0}
        assert shape.hourly == (1.0, *[0.0] * 23)

    def test_reuse_counts_requests_whose_model_came_a_short_time_before(self):
        assert shape_of(trace(), seconds=(58, 59, 60)).reuse == {58: 0.0, 59: 0.2, 60: 0.4}

    def test_the_working_set_is_the_mean_over_all_windows(self):
        shape = shape_of(trace(), seconds=(20, 120))
        starts = np.linspace(0, 100, 20_001)
        times, models, sizes = np.array([0, 10, 60, 61, 119]), np.array([0, 1, 0, 2, 0]), np.array([10, 20, 30])
        used = [sizes[np.unique(models[(times >= start) & (times <= start + 20)])].sum() for start in starts]
        assert shape.working_set[20] == pytest.approx(np.mean(used) / 60, abs=0.001)
        assert shape.working_set[120] == 1.0

    def test_hits_are_those_of_a_cache_of_that_size(self):
        shape = shape_of(trace(), capacities=(0.4, 0.5, 1.0))  # 24, 30 and 60 bytes
        assert shape.hits == {0.4: 0.0, 0.5: 0.2, 1.0: 0.4}

    def test_equal_traces_have_no_distance_and_others_have(self):
        one, other = shape_of(trace()), shape_of(trace(model=[0, 0, 0, 0, 0]))
        assert one.distance(one) == 0
        assert one.distance(other) == other.distance(one) > 0.1

    def test_a_trace_without_requests_has_no_shape(self):
        with pytest.raises(ValueError, match="no request"):
            shape_of(replace(trace(), seconds=[], model=[]))
