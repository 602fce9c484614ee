"""``tests/typing`` holds code that is only type-checked (`make lint`): it must use every public name."""

import importlib
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "typing"


@pytest.mark.parametrize(
    "package", ["mme_constructs", "mme_fleet", "mme_fleet.traffic", "mme_local", "mme_local.conformance", "mme_tenancy"]
)
def test_every_public_name_is_used_by_code_that_is_type_checked(package):
    source = (FOLDER / f"use_{package.removeprefix('mme_').replace('.', '_')}.py").read_text("utf-8")
    body = source.rpartition("\n)\n")[2] if "from mme" in source else source
    names = set(dir(importlib.import_module(package)))
    assert names, package
    assert names - set(re.findall(r"\w+", body)) == set()
