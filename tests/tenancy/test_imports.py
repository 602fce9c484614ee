"""What importing loads, seen in fresh processes: cold starts pay for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mme_tenancy

PURE = (
    "activation",
    "admission",
    "apart",
    "api_keys",
    "archive",
    "artifacts",
    "bodies",
    "callers",
    "clock",
    "conflicts",
    "deferred",
    "errors",
    "fairness",
    "findings",
    "fleet_state",
    "fleet_watch",
    "heat",
    "heat_collection",
    "idempotency",
    "invocation",
    "invocation_path",
    "log_queries",
    "purge",
    "reconcile",
    "registration",
    "registry",
    "request_line",
    "retirement",
    "retries",
    "route_changes",
    "routes",
    "schema",
    "serializers",
    "settings",
    "shapes",
    "stale_cache",
    "streaming",
    "sweep",
    "sweep_ports",
    "tar_walk",
    "telemetry",
    "tenant_settings",
    "tenants",
    "testing",
    "testing_heat",
    "testing_sweep",
    "testing_warm_calls",
    "testing_warm_up",
    "tracing",
    "uploads",
    "usage",
    "versions",
    "warming",
)

WARM_UP = (
    "change",
    "execute",
    "holder",
    "keep_warm",
    "named",
    "observer",
    "plan",
    "planning",
    "ports",
    "prefetch",
    "prefetching",
    "report",
    "run",
    "settings",
    "sources",
    "trigger",
    "workers",
)
"""The pure modules of the package `mme_tenancy.warm_up`."""
WIRED = ("client", "testing_client")
"""What applications import; it brings the AWS adapters."""


def modules_after(statement):
    script = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_the_package_alone_loads_nothing_of_its_own():
    loaded = modules_after("import mme_tenancy")
    assert {name for name in loaded if name.startswith("mme_tenancy")} == {"mme_tenancy"}
    assert not loaded & {"boto3", "botocore", "aws_lambda_powertools"}


def test_the_domain_loads_no_boto3():
    loaded = modules_after(f"from mme_tenancy import {', '.join(PURE)}")
    assert {f"mme_tenancy.{module}" for module in PURE} <= loaded
    assert not loaded & {"boto3", "botocore", "aws_lambda_powertools", "pydantic", "numpy"}


def test_the_decisions_of_warm_up_load_no_boto3():
    loaded = modules_after(f"from mme_tenancy.warm_up import {', '.join(WARM_UP)}")
    assert {f"mme_tenancy.warm_up.{module}" for module in WARM_UP} <= loaded
    assert not loaded & {"boto3", "botocore", "aws_lambda_powertools", "pydantic", "numpy"}


def test_every_module_of_the_domain_is_looked_at():
    folder = Path(mme_tenancy.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} == {"__init__", *PURE, *WIRED}
    assert {path.stem for path in (folder / "warm_up").glob("*.py")} == {"__init__", *WARM_UP}


def test_the_invocation_function_loads_no_resolver_and_no_validation_library():
    loaded = modules_after("import mme_tenancy.handlers.invocation")
    assert "boto3" in loaded
    assert not loaded & {"pydantic", "numpy", "aws_lambda_powertools", "aws_xray_sdk", "opentelemetry"}


def test_the_line_and_the_trace_ids_need_the_facts_and_nothing_else():
    ours = {name for name in modules_after("import mme_tenancy.telemetry, mme_tenancy.tracing") if name.startswith("mme_")}
    packages = {"mme_tenancy", "mme_tenancy.telemetry", "mme_tenancy.tracing", "mme_facts", "mme_facts.lazy"}
    assert ours == packages | {f"mme_facts.{module}" for module in ("grammar", "metrics_entry", "metrics_own", "telemetry")}


@pytest.mark.parametrize("name", ["onboarding", "admission"])
def test_no_function_loads_pydantic_or_numpy(name):
    assert not modules_after(f"import mme_tenancy.handlers.{name}") & {"pydantic", "numpy"}


def test_every_exported_name_is_there():
    assert sorted(mme_tenancy.__all__) == dir(mme_tenancy)
    for name in mme_tenancy.__all__:
        assert getattr(mme_tenancy, name).__class__


def test_a_missing_variable_ends_the_start_inside_lambda_with_its_name():
    script = "import mme_tenancy.handlers.invocation"
    environment = {"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_DEFAULT_REGION": "us-east-1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 1
    assert "SettingError: environment variable MME_TABLE_NAME is missing" in done.stderr


@pytest.mark.parametrize(("variables", "level"), [({}, 20), ({"LOG_LEVEL": "ERROR"}, 20), ({"POWERTOOLS_LOG_LEVEL": "DEBUG"}, 10)])
def test_functions_log_at_info_unless_powertools_is_told_otherwise(variables, level):
    script = "from mme_tenancy.handlers.onboarding import logger; print(logger.log_level)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=variables, timeout=60, check=True)
    assert int(done.stdout) == level


def test_the_format_of_a_framework_is_loaded_only_for_its_archives():
    lean = {"mme_tenancy.formats", "mme_tenancy.formats.content", "mme_tenancy.formats.frameworks", "mme_tenancy.formats.shape"}
    loaded = modules_after("import mme_tenancy.handlers.admission, mme_tenancy.handlers.onboarding")
    assert {name for name in loaded if name.startswith("mme_tenancy.formats")} == lean
    loaded = modules_after("from mme_tenancy.formats.frameworks import shape_of; shape_of('xgboost', allow_code=False)")
    assert "mme_tenancy.formats.xgboost" in loaded
    assert not loaded & {"mme_tenancy.formats.triton", "zipfile"}


def test_no_format_loads_a_framework():
    formats = sorted(path.stem for path in (Path(mme_tenancy.__file__).parent / "formats").glob("*.py") if path.stem != "__init__")
    loaded = modules_after(f"from mme_tenancy.formats import {', '.join(formats)}")
    assert {f"mme_tenancy.formats.{name}" for name in formats} <= loaded
    assert not loaded & {"xgboost", "sklearn", "joblib", "onnx", "torch", "tensorflow", "numpy", "google.protobuf", "picklescan", "boto3"}
