"""The code on the task pages about endpoints builds and synthesizes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mme_constructs import ModelArtifactStore, MultiModelContainer

PAGES = Path(__file__).parents[2] / "docs" / "tasks"


def _blocks(page):
    return re.findall(r"^```python\n(.*?)^```", (PAGES / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", ["scale-and-update.md", "warm-up.md", "dedicated.md", "who-may-call.md", "invoke.md"])
def test_the_code_of_a_page_synthesizes(synthesize_stack, page):
    blocks = [block for block in _blocks(page) if "mme_constructs" in block or "stack" in block]
    assert blocks

    def build(stack):
        store = ModelArtifactStore(stack, "Store")
        given = {"stack": stack, "store": store, "container": MultiModelContainer.from_framework("xgboost", version="1.7-1")}
        for block in blocks:
            exec(compile(block, page, "exec"), dict(given))

    assert synthesize_stack(build).resources("AWS::SageMaker::Endpoint")
