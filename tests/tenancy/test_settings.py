from __future__ import annotations

import pytest

from mme_facts.environment import Pool, SweepTimes, dump_pools, dump_sweep_times
from mme_facts.heat import HeatRules
from mme_facts.telemetry import MOST_TENANTS, LineSettings
from mme_facts.warm_up import WarmUpEndpoint, WarmUpRules
from mme_tenancy.settings import (
    AdmissionSettings,
    HeatSettings,
    InvocationSettings,
    OnboardingSettings,
    SettingError,
    SweepSettings,
    WarmUpFunctionSettings,
)

POOL = Pool("shared", "xgboost", "endpoint-a", "AllTraffic")
VARIABLES = {
    "MME_TABLE_NAME": "registry",
    "MME_BUCKET_NAME": "artifacts",
    "MME_MODELS_PREFIX": "models/",
    "MME_MAX_ARTIFACT_BYTES": "1000",
    "MME_RETIRED_SECONDS": "604800",
    "MME_POOLS": dump_pools([POOL]),
    "MME_SWEEP_TIMES": dump_sweep_times(SweepTimes(1, 2, 3, 4, 5)),
}


def test_settings_are_read_typed():
    assert InvocationSettings.read(VARIABLES) == InvocationSettings("registry")
    assert OnboardingSettings.read(VARIABLES) == OnboardingSettings("registry", "artifacts", 1000, (POOL,), 604_800)
    assert AdmissionSettings.read(VARIABLES) == AdmissionSettings("registry", "artifacts", "models/", (POOL,))
    assert SweepSettings.read(VARIABLES) == SweepSettings("registry", "artifacts", "models/", SweepTimes(1, 2, 3, 4, 5))


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (InvocationSettings, ["MME_TABLE_NAME"]),
        (OnboardingSettings, ["MME_TABLE_NAME", "MME_BUCKET_NAME", "MME_MAX_ARTIFACT_BYTES", "MME_POOLS", "MME_RETIRED_SECONDS"]),
        (AdmissionSettings, ["MME_TABLE_NAME", "MME_BUCKET_NAME", "MME_MODELS_PREFIX", "MME_POOLS"]),
        (SweepSettings, ["MME_TABLE_NAME", "MME_BUCKET_NAME", "MME_MODELS_PREFIX", "MME_SWEEP_TIMES"]),
    ],
)
def test_a_missing_or_empty_variable_is_named(settings, names):
    for name in names:
        for variables in ({key: value for key, value in VARIABLES.items() if key != name}, {**VARIABLES, name: ""}):
            with pytest.raises(SettingError, match=f"{name} is missing"):
                settings.read(variables)
    settings.read({name: VARIABLES[name] for name in names})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MME_MAX_ARTIFACT_BYTES", "1 GB"),
        ("MME_MAX_ARTIFACT_BYTES", "0"),
        ("MME_MAX_ARTIFACT_BYTES", "-5"),
        ("MME_RETIRED_SECONDS", "7 days"),
        ("MME_POOLS", "{"),
        ("MME_POOLS", "5"),
        ("MME_POOLS", "[]"),
        ("MME_POOLS", '[{"name": "x"}]'),
    ],
)
def test_an_unusable_variable_is_named(name, value):
    with pytest.raises(SettingError, match=name):
        OnboardingSettings.read({**VARIABLES, name: value})


@pytest.mark.parametrize("prefix", ["models", "/models/", "models//"])
def test_a_prefix_that_is_no_folder_is_named(prefix):
    with pytest.raises(SettingError, match="MME_MODELS_PREFIX"):
        AdmissionSettings.read({**VARIABLES, "MME_MODELS_PREFIX": prefix})


def test_what_is_set_of_the_line_comes_back_as_it_was_written():
    line = LineSettings(("acme", "globex"), 0.05, 250.0)
    assert InvocationSettings.read({**VARIABLES, "MME_TELEMETRY": line.dump()}).line == line


@pytest.mark.parametrize(
    "value", ["{", "5", "[]", '{"share": 1}', '{"access_share": 2}', '{"slow_ms": 0}', '{"tenants": ["ACME"]}', '{"tenants": ["a", "a"]}']
)
def test_what_cannot_be_set_of_the_line_is_named(value):
    with pytest.raises(SettingError, match="MME_TELEMETRY"):
        InvocationSettings.read({**VARIABLES, "MME_TELEMETRY": value})


def test_tenants_with_metrics_of_their_own_are_bounded():
    LineSettings(tuple(f"t{number}" for number in range(MOST_TENANTS)))
    with pytest.raises(ValueError, match="at most 50"):
        LineSettings(tuple(f"t{number}" for number in range(MOST_TENANTS + 1)))


@pytest.mark.parametrize("value", ["{", "5", '{"stuck": 1}'])
def test_times_that_cannot_be_read_are_named(value):
    with pytest.raises(SettingError, match="MME_SWEEP_TIMES"):
        SweepSettings.read({**VARIABLES, "MME_SWEEP_TIMES": value})


HEAT = {"MME_BUCKET_NAME": "artifacts", "MME_LOG_GROUPS": "lines,/ecs/shop", "MME_HEAT": HeatRules({"xgboost": ("endpoint-a",)}).dump()}


def test_the_collectors_settings_are_read_typed():
    assert HeatSettings.read(HEAT) == HeatSettings("artifacts", ("lines", "/ecs/shop"), HeatRules({"xgboost": ("endpoint-a",)}))


@pytest.mark.parametrize("name", HEAT)
def test_a_missing_variable_of_the_collector_is_named(name):
    with pytest.raises(SettingError, match=f"{name} is missing"):
        HeatSettings.read({**HEAT, name: ""})


@pytest.mark.parametrize(
    "value", ["{", "5", "{}", '{"pools": {}}', '{"pools": {"a": ["e"]}, "window_seconds": 7}', '{"pools": {"a": ["e"]}, "more": 1}']
)
def test_what_the_collector_cannot_be_told_is_named(value):
    with pytest.raises(SettingError, match="MME_HEAT"):
        HeatSettings.read({**HEAT, "MME_HEAT": value})


RULES = WarmUpRules((WarmUpEndpoint("xgboost", "endpoint-a", "AllTraffic", 1 << 30, 4),))
WARM_UP = {"MME_TABLE_NAME": "registry", "MME_BUCKET_NAME": "artifacts", "MME_WARM_UP": RULES.dump()}


def test_the_settings_of_warm_up_are_read_typed():
    assert WarmUpFunctionSettings.read(WARM_UP) == WarmUpFunctionSettings("registry", "artifacts", RULES)


@pytest.mark.parametrize("name", WARM_UP)
def test_a_missing_variable_of_warm_up_is_named(name):
    with pytest.raises(SettingError, match=f"{name} is missing"):
        WarmUpFunctionSettings.read({**WARM_UP, name: ""})


@pytest.mark.parametrize(
    "value", ["{", "5", "{}", '{"endpoints": []}', RULES.dump().replace("180.0", "1"), RULES.dump().replace("180.0", '"a"')]
)
def test_what_warm_up_cannot_be_told_is_named(value):
    with pytest.raises(SettingError, match="MME_WARM_UP"):
        WarmUpFunctionSettings.read({**WARM_UP, "MME_WARM_UP": value})
