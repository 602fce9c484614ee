"""Limits, environment values, the error table, images and lazy exports."""

import base64
import subprocess
import sys

import pytest

from mme_facts import lazy, limits
from mme_facts.artifacts import carries_code
from mme_facts.environment import Pool, dump_pools, load_pools
from mme_facts.problems import PROBLEMS


def test_the_greatest_body_through_the_api_fits_the_lambda_event_with_its_envelope():
    body = bytes(limits.api_binary_body_bytes())
    encoded = len(base64.b64encode(body))
    assert encoded + 60_000 < limits.LAMBDA_EVENT_BYTES < encoded + 70_000


def test_pools_round_trip_through_their_environment_variable():
    pools = (Pool("main", "xgboost", "mme-xgboost", "AllTraffic"), Pool("second", "sklearn", "mme-sklearn", "AllTraffic"))
    assert load_pools(dump_pools(pools)) == pools


def test_problem_types_are_stable_names_with_an_error_status():
    assert all(slug == problem.slug and problem.type == f"urn:mme:problem:{slug}" for slug, problem in PROBLEMS.items())
    assert all(400 <= problem.status < 600 for problem in PROBLEMS.values())


@pytest.mark.parametrize("path", ["numpy.py", "./numpy/__init__.PY", "lib/x.so", "MAR-INF/anything", "MANIFEST.json"])
def test_a_file_that_python_or_the_server_could_run_carries_code(path):
    assert carries_code(path)


@pytest.mark.parametrize("path", ["xgboost-model", "docs/readme.txt", "docs/MANIFEST.json", "python", "notes.py.txt", ""])
def test_other_files_carry_none(path):
    assert not carries_code(path)


def test_lazy_exports_load_a_module_only_when_its_name_is_asked_for():
    getattr_, dir_ = lazy.attach("mme_facts", {"GrammarError": "grammar"})
    assert dir_() == ["GrammarError"]
    assert getattr_("GrammarError").__name__ == "GrammarError"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr_("nothing")


def test_mme_facts_needs_nothing_but_the_standard_library():
    modules = "mme_facts.grammar, mme_facts.limits, mme_facts.environment, mme_facts.problems, mme_facts.images, mme_facts.dockerfile"
    used = "mme_facts.images.frameworks(), mme_facts.instances.instance_types()"
    code = f"import sys; sys.path.insert(0, sys.argv[1]); import {modules}; print({used})"
    root = __file__.rpartition("/tests/")[0]
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, root], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
