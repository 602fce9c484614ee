"""The generator: what its settings promise is in the traces, and nothing else."""

import math
from dataclasses import replace

import numpy as np
import pytest

from mme_facts.grammar import ArtifactName
from mme_facts.limits import INVOKE_BODY_BYTES
from mme_fleet.traffic import (
    Bursts,
    Churn,
    Diurnal,
    LoadBySize,
    Lognormal,
    Mixture,
    Periodic,
    Sessions,
    TrafficSettings,
    Zipf,
    fit,
    fit_mixture,
    generate,
    shape_of,
)

DAY = 86_400.0
PLAIN = TrafficSettings(models=200, requests=50_000)
BUSY = TrafficSettings(
    models=300,
    requests=40_000,
    days=2,
    tenants=60,
    popularity=Lognormal(50, 2),
    diurnal=Diurnal(0.6, 13, 3, 0.5),
    sessions=Sessions(Lognormal(5, 1), Lognormal(20, 1)),
    bursts=Bursts(0.3),
    periodic=Periodic(0.3, aligned_share=0.5),
    churn=Churn(0.7, 3),
)


class TestEverySeed:
    @pytest.mark.parametrize("settings", [PLAIN, BUSY], ids=["plain", "busy"])
    def test_the_same_seed_gives_the_same_trace_and_another_one_another(self, settings):
        first, again, other = (generate(settings, seed) for seed in (1, 1, 2))
        for name in ("seconds", "model", "payload_bytes", "service_seconds"):
            assert np.array_equal(getattr(first, name), getattr(again, name))
        assert first.population.models == again.population.models
        assert not np.array_equal(first.model[:100], other.model[:100])

    @pytest.mark.parametrize("settings", [PLAIN, BUSY], ids=["plain", "busy"])
    @pytest.mark.parametrize("seed", range(5))
    def test_the_number_of_requests_is_about_the_one_asked_for(self, settings, seed):
        assert len(generate(settings, seed)) == pytest.approx(settings.requests, rel=0.06)

    def test_popularity_has_no_chance_in_it(self):
        counts = [np.sort(generate(PLAIN, seed).requests_per_model)[::-1] for seed in (1, 2)]
        assert counts[0] == pytest.approx(counts[1], abs=2)
        assert counts[0][0] / counts[0][9] == pytest.approx(10, rel=0.01)  # Zipf

    def test_requests_need_no_models_to_be_many(self):
        one = generate(TrafficSettings(models=1, requests=10), 1)
        assert (len(one), len(generate(TrafficSettings(models=3, requests=0), 1))) == (10, 0)


class TestPopulation:
    def test_names_are_of_the_grammar_and_say_whose_model_it_is(self):
        population = generate(BUSY, 1).population
        names = [ArtifactName.parse(model) for model in population.models]
        assert [name.tenant for name in names] == [population.tenants[tenant] for tenant in population.tenant]

    def test_every_tenant_has_a_model_and_some_have_many(self):
        models = np.bincount(generate(BUSY, 1).population.tenant, minlength=60)
        assert models.min() >= 1
        assert models.max() > 20

    def test_loads_take_the_time_of_their_bytes(self):
        population = generate(replace(PLAIN, load_seconds=LoadBySize(1, 100e6, 200e6)), 1).population
        assert population.load_seconds == pytest.approx(1 + population.memory_bytes * 1.5e-8)

    def test_loads_can_have_times_of_their_own(self):
        times = Mixture(((1, Lognormal(3, 0.1)), (3, Lognormal(30, 0.1))))
        slow = generate(replace(PLAIN, models=2000, load_seconds=times), 1).population.load_seconds > 10
        assert slow.mean() == pytest.approx(0.75, abs=0.03)

    def test_payloads_fit_into_a_request(self):
        trace = generate(replace(PLAIN, payload_bytes=Lognormal(4e6, 1), payload_sigma=1), 1)
        assert trace.payload_bytes.max() == INVOKE_BODY_BYTES
        assert trace.population.payload_bytes.max() == INVOKE_BODY_BYTES

    def test_payload_and_service_time_of_requests_lie_around_their_models_means(self):
        trace = generate(PLAIN, 1)
        model = int(np.argmax(trace.requests_per_model))
        mine = trace.model == model
        assert trace.service_seconds[mine].mean() == pytest.approx(trace.population.service_seconds[model], rel=0.05)
        assert trace.payload_bytes[mine].mean() == pytest.approx(trace.population.payload_bytes[model], rel=0.05)
        assert trace.service_seconds[mine].std() > 0

    def test_without_each_request_only_the_means_are_there(self):
        trace = generate(PLAIN, 1, each_request=False)
        assert (trace.payload_bytes, trace.service_seconds) == (None, None)
        assert np.array_equal(trace.seconds, generate(PLAIN, 1).seconds)


class TestTime:
    def test_a_rate_without_a_day_is_constant(self):
        hours = np.array(shape_of(generate(PLAIN, 1)).hourly) * 24
        assert hours == pytest.approx(np.ones(24), abs=0.1)

    def test_the_day_has_its_peak_at_the_hour_and_a_night(self):
        hours = np.array(shape_of(generate(replace(PLAIN, diurnal=Diurnal(0.8, 15)), 1)).hourly) * 24
        assert 13 <= hours.argmax() <= 16
        assert hours.max() == pytest.approx(1.8, abs=0.1)
        assert hours.min() == pytest.approx(0.2, abs=0.1)

    def test_zones_flatten_the_day(self):
        steep, flat = (shape_of(generate(replace(PLAIN, diurnal=Diurnal(0.8, 15, zones)), 1)).hourly for zones in (0, 6))
        assert max(flat) < 0.8 * max(steep)

    def test_weekends_have_the_share_of_a_weekday(self):
        days = generate(replace(PLAIN, days=7, diurnal=Diurnal(weekend_factor=0.25)), 1).windows(DAY).sum(axis=1)
        assert days[5:].mean() / days[:5].mean() == pytest.approx(0.25, abs=0.03)

    def test_requests_of_sessions_come_together(self):
        alone = shape_of(generate(PLAIN, 1), seconds=(60,)).reuse[60]
        sparse = replace(PLAIN, popularity=Zipf(0), requests=4000)
        together = shape_of(generate(replace(sparse, sessions=Sessions(Lognormal(10, 0), Lognormal(5, 0))), 1), seconds=(60,)).reuse[60]
        single = shape_of(generate(sparse, 1), seconds=(60,)).reuse[60]
        assert single < 0.05 < 0.85 < together < 0.95
        assert alone > single

    def test_a_burst_makes_minutes_busy_that_would_not_be(self):
        calm, bursty = (replace(PLAIN, models=50, tenants=5, bursts=bursts) for bursts in (Bursts(0), Bursts(0.8, 1, Lognormal(900, 0))))
        peaks = [shape_of(generate(settings, 1)).peaks[0.05] for settings in (calm, bursty)]
        assert peaks[1] > 3 * peaks[0]

    def test_a_burst_is_of_one_tenant(self):
        trace = generate(replace(PLAIN, models=50, tenants=5, popularity=Zipf(0), bursts=Bursts(1, 1, Lognormal(900, 0))), 1)
        by_tenant = np.stack([np.bincount(trace.population.tenant, weights=window, minlength=5) for window in trace.windows(900)])
        busiest = np.sort(by_tenant, axis=1)
        used = busiest[busiest[:, -1] > 0.3 * busiest.max()]
        assert np.median(used[:, -1] / used.sum(axis=1)) > 0.9


class TestPeriodic:
    def test_a_model_that_runs_by_the_clock_runs_every_period(self):
        settings = replace(
            PLAIN, models=20, requests=20 * 96, popularity=Zipf(0), periodic=Periodic(1, (900,), jitter_seconds=0, run_seconds=0)
        )
        trace = generate(settings, 1)
        for model in range(20):
            assert np.diff(trace.seconds[trace.model == model]) == pytest.approx(np.full(95, 900), abs=1e-6)

    def test_aligned_models_run_at_round_times_and_the_others_do_not(self):
        for aligned, expected in ((1, 1.0), (0, 0.0)):
            rules = Periodic(1, (900,), aligned_share=aligned, jitter_seconds=1, run_seconds=1)
            trace = generate(replace(PLAIN, models=20, requests=20 * 96, popularity=Zipf(0), periodic=rules), 1)
            assert (trace.seconds % 900 < 2).mean() == pytest.approx(expected, abs=0.1)

    def test_daily_runs_are_at_different_full_hours(self):
        rules = Periodic(1, (DAY,), aligned_share=1, jitter_seconds=1, run_seconds=1)
        trace = generate(replace(PLAIN, models=100, requests=100, popularity=Zipf(0), periodic=rules), 1)
        assert (trace.seconds % 3600 < 2).all()
        assert len(np.unique(trace.seconds // 3600)) > 15

    def test_rare_models_get_long_periods_and_frequent_ones_more_requests_a_run(self):
        rules = Periodic(1, (60, 3600), jitter_seconds=0, run_seconds=0)
        rare, frequent = (
            generate(replace(PLAIN, models=10, requests=10 * each, popularity=Zipf(0), periodic=replace(rules, most_requests=most)), 1)
            for each, most in ((24, math.inf), (14_400, 10))
        )
        assert rare.requests_per_model.tolist() == [24] * 10
        assert frequent.windows(60).max() == 10
        assert (frequent.windows(60) == 10).mean() > 0.99

    def test_only_the_share_runs_by_the_clock(self):
        rules = Periodic(0.5, (900,), jitter_seconds=0, run_seconds=0)
        trace = generate(replace(PLAIN, models=40, requests=40 * 96, popularity=Zipf(0), periodic=rules), 1)
        regular = [np.diff(trace.seconds[trace.model == model]).std() < 1 for model in range(40)]
        assert sum(regular) == 20


class TestChurn:
    def test_models_have_requests_only_while_they_are_there(self):
        trace = generate(BUSY, 1)
        born, gone = trace.population.born[trace.model], trace.population.gone[trace.model]
        assert (trace.seconds >= born - 1e-6).all()
        assert (trace.seconds <= gone + 1e-6).all()

    def test_the_share_is_there_at_the_start_and_the_others_come_over_time(self):
        population = generate(replace(PLAIN, models=2000, churn=Churn(0.6)), 1).population
        assert (population.born == 0).mean() == pytest.approx(0.6, abs=0.04)
        assert population.born[population.born > 0].mean() == pytest.approx(DAY / 2, rel=0.1)
        assert np.isinf(population.gone).all()

    def test_lifetimes_have_their_mean(self):
        population = generate(replace(PLAIN, models=2000, churn=Churn(lifetime_days=5)), 1).population
        assert (population.gone - population.born).mean() == pytest.approx(5 * DAY, rel=0.1)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TrafficSettings(models=0, requests=1), "models is 0: use 1 or more"),
        (lambda: TrafficSettings(models=2, requests=1, tenants=3), "tenants is 3: use 1 to models, 2"),
        (lambda: TrafficSettings(models=1, requests=-1), "requests is -1: use 0 or more"),
        (lambda: TrafficSettings(models=1, requests=1, days=math.inf), "days is inf"),
        (lambda: TrafficSettings(models=1, requests=1, payload_sigma=-1), "payload_sigma is -1"),
        (lambda: Lognormal(0, 1), "median is 0: use a finite number above 0"),
        (lambda: Lognormal(5, 1, least=6), "median is 5: use a number from least, 6, to most, inf"),
        (lambda: Lognormal(5, -1), "sigma is -1"),
        (lambda: Mixture(()), "parts is"),
        (lambda: Mixture(((0, Lognormal(1, 1)),)), "weight is 0"),
        (lambda: Zipf(-1), "exponent is -1"),
        (lambda: LoadBySize(download_bytes_per_second=0), "download_bytes_per_second is 0"),
        (lambda: LoadBySize(fixed_seconds=-1), "fixed_seconds is -1"),
        (lambda: LoadBySize(sigma=-1), "sigma is -1"),
        (lambda: Diurnal(1.5), "amplitude is 1.5: use 0 to 1"),
        (lambda: Diurnal(peak_hour=24), "peak_hour is 24"),
        (lambda: Diurnal(zone_spread_hours=13), "zone_spread_hours is 13"),
        (lambda: Diurnal(weekend_factor=0), "weekend_factor is 0"),
        (lambda: Bursts(1.1), "share is 1.1"),
        (lambda: Bursts(0.1, 0), "per_tenant_per_day is 0"),
        (lambda: Periodic(-0.1), "share is -0.1"),
        (lambda: Periodic(0.1, ()), "period_seconds is"),
        (lambda: Periodic(0.1, (0,)), "period_seconds is 0"),
        (lambda: Periodic(0.1, most_requests=0), "most_requests is 0"),
        (lambda: Periodic(0.1, aligned_share=2), "aligned_share is 2"),
        (lambda: Periodic(0.1, run_seconds=-1), "run_seconds is -1"),
        (lambda: Churn(2), "present_share is 2"),
        (lambda: Churn(lifetime_days=0), "lifetime_days is 0"),
    ],
)
def test_settings_out_of_range_are_refused_by_name_and_value(make, says):
    with pytest.raises(ValueError, match=says):
        make()


class TestFitting:
    def test_a_mixture_is_found_again(self):
        random = np.random.default_rng(1)
        values = Mixture(((0.3, Lognormal(3, 0.3)), (0.7, Lognormal(30, 0.3)))).sample(random, 20_000)
        (light, low), (heavy, high) = fit_mixture(values).parts
        assert (light, low.median, low.sigma) == pytest.approx((0.3, 3, 0.3), rel=0.05)
        assert (heavy, high.median, high.sigma) == pytest.approx((0.7, 30, 0.3), rel=0.05)

    def test_equal_values_are_a_constant_and_none_above_zero_are_refused(self):
        assert fit_mixture([0, 7, 7]) == Lognormal(7, 0)
        with pytest.raises(ValueError, match="no value is above 0"):
            fit_mixture([0, 0])

    def test_settings_fitted_to_generated_traffic_give_traffic_like_it(self):
        settings = TrafficSettings(
            models=100,
            requests=10_000,
            popularity=Lognormal(30, 1.5),
            diurnal=Diurnal(0.5, 10),
            sessions=Sessions(Lognormal(8, 0.5), Lognormal(40, 0.5)),
        )
        trace = generate(settings, 5)
        fitted = fit(trace, rounds=25)
        assert (fitted.models, fitted.requests, fitted.days) == (100, len(trace), 1.0)
        assert fitted.diurnal.amplitude == pytest.approx(0.5, abs=0.1)
        assert fitted.diurnal.peak_hour == pytest.approx(10, abs=1)
        target = shape_of(trace)
        plain = replace(fitted, sessions=Sessions(), bursts=Bursts(0), periodic=Periodic(0))
        assert target.distance(shape_of(generate(fitted, 9))) < 0.5 * target.distance(shape_of(generate(plain, 9)))

    def test_resized_settings_keep_tenants_in_proportion(self):
        bigger = BUSY.resized(models=3000, requests=10, days=7)
        assert (bigger.models, bigger.tenants, bigger.requests, bigger.days) == (3000, 600, 10, 7)
        assert BUSY.resized(models=1, requests=1).tenants == 1
        assert PLAIN.resized(models=1000, requests=1).tenants is None
