from __future__ import annotations

from importlib import resources

from mme_cli import images


def test_images_json_is_what_the_pinned_sagemaker_core_says():
    committed = resources.files("mme_facts").joinpath("images.json").read_text("utf-8")
    assert images.render() == committed, "run `make images`"
