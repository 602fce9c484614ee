from __future__ import annotations

from functools import cache
from importlib import resources

from mme_cli import images


def test_images_json_is_what_the_pinned_sagemaker_core_says(monkeypatch):
    from sagemaker.core import image_uris

    # It parses botocore's endpoints anew for each of 400 URIs: 27 s of 29.
    monkeypatch.setattr(image_uris.utils, "_botocore_resolver", cache(image_uris.utils._botocore_resolver))
    committed = resources.files("mme_facts").joinpath("images.json").read_text("utf-8")
    assert images.render() == committed, "run `make images`"
