from __future__ import annotations

import pytest

from mme_facts.images import UnknownImageError, canonical_name, framework_image, frameworks, versions


def test_every_family_that_aws_lists_for_multi_model_endpoints_has_images():
    expected = {"xgboost", "sklearn", "pytorch", "tensorflow", "mxnet", "knn", "linear-learner", "randomcutforest", "triton"}
    assert set(frameworks()) == expected
    assert all(versions(framework) for framework in frameworks())


@pytest.mark.parametrize("framework", frameworks())
def test_every_known_image_has_an_account_in_the_regions_it_names(framework):
    for version in versions(framework):
        for architecture, processor in (("x86_64", "cpu"), ("x86_64", "gpu"), ("arm64", "cpu")):
            try:
                image = framework_image(framework, version, architecture=architecture, processor=processor)
            except UnknownImageError:
                continue
            assert image.tag.startswith(version)
            assert (image.architecture, image.processor) == (architecture, processor)
            assert "us-east-1" in image.accounts
            assert all(len(image.account(region)) == 12 for region in image.accounts)


@pytest.mark.parametrize(
    ("framework", "version", "variant", "repository", "tag"),
    [
        ("xgboost", "1.7-1", {}, "sagemaker-xgboost", "1.7-1"),
        ("xgboost", "1.5-1", {"architecture": "arm64"}, "sagemaker-xgboost", "1.5-1-arm64"),
        ("scikit-learn", "1.2-1", {}, "sagemaker-scikit-learn", "1.2-1-cpu-py3"),
        ("sklearn", "1.0-1", {"architecture": "arm64"}, "sagemaker-scikit-learn", "1.0-1-arm64-cpu-py3"),
        ("pytorch", "2.6.0", {}, "pytorch-inference", "2.6.0-cpu-py312"),
        ("pytorch", "2.6.0", {"processor": "gpu"}, "pytorch-inference", "2.6.0-gpu-py312"),
        ("pytorch", "2.6.0", {"architecture": "arm64"}, "pytorch-inference-arm64", "2.6.0-cpu-py312-ubuntu22.04-sagemaker"),
        ("tensorflow", "2.19.0", {}, "tensorflow-inference", "2.19.0-cpu"),
        ("mxnet", "1.4.1", {"python": "py3"}, "mxnet-inference", "1.4.1-cpu-py3"),
        ("mxnet", "1.4.1", {"python": "py2"}, "sagemaker-mxnet-serving", "1.4.1-cpu-py2"),
        ("knn", "1", {}, "knn", "1"),
        ("linear-learner", "1", {}, "linear-learner", "1"),
        ("randomcutforest", "1", {}, "randomcutforest", "1"),
        ("triton", "26.05", {}, "sagemaker-tritonserver", "26.05-py3"),
        ("triton", "26.05", {"processor": "cpu"}, "sagemaker-tritonserver", "26.05-py3-cpu"),
    ],
)
def test_known_images(framework, version, variant, repository, tag):
    image = framework_image(framework, version, **variant)
    assert (image.repository, image.tag) == (repository, tag)


def test_a_short_version_is_the_newest_full_one_of_the_architecture():
    assert framework_image("pytorch", "2.2").version == "2.2.0"
    assert framework_image("pytorch", "2.2", architecture="arm64").version == "2.2.1"


def test_the_newest_python_is_the_default():
    assert framework_image("pytorch", "1.4.0").python == "py36"
    assert framework_image("pytorch", "1.4.0", python="py3").python == "py3"
    assert framework_image("mxnet", "1.6.0").python == "py3"


def test_versions_are_listed_oldest_first():
    known = versions("pytorch")
    assert known.index("2.0.0") < known.index("2.6.0")
    assert known.index("1.9.1") < known.index("1.10.0")


def test_images_from_before_multi_model_endpoints_are_not_known():
    with pytest.raises(UnknownImageError, match="xgboost version '1' is unknown"):
        framework_image("xgboost", "1")
    with pytest.raises(UnknownImageError, match=r"tensorflow version '1\.12\.0' is unknown"):
        framework_image("tensorflow", "1.12.0")


def test_an_unknown_image_names_what_is_known():
    with pytest.raises(UnknownImageError, match=r"framework 'xgbost' is unknown: use one of xgboost, sklearn"):
        canonical_name("xgbost")
    with pytest.raises(UnknownImageError, match=r"1\.7-1"):
        framework_image("xgboost", "9.9")
    with pytest.raises(UnknownImageError, match=r"xgboost 1\.7-1 for 'arm64 cpu' is unknown: use one of x86_64 cpu"):
        framework_image("xgboost", "1.7-1", architecture="arm64")
    with pytest.raises(UnknownImageError, match="us-east-1"):
        framework_image("xgboost", "1.7-1").account("mars-north-1")
