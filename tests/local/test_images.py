"""Docker assets: recorded, not built; their labels decide, their handlers serve."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from mme_local.images import ImageError, ImageStore

LABEL = "com.amazonaws.sagemaker.capabilities.multi-models"
DOCKERFILE = f"FROM python:3.13-slim\nLABEL {LABEL}=true \\\n      mme.local.handler=serve/handler.py:handle\nCOPY serve /serve\n"
HANDLER = "def handle(data, context):\n    return ['served'] if data else None\n"
URI = "000000000000.dkr.ecr.us-east-1.amazonaws.com/team/own:1"


@pytest.fixture
def context(tmp_path):
    folder = tmp_path / "context"
    (folder / "serve").mkdir(parents=True)
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "serve" / "handler.py").write_text(HANDLER)
    return folder


@pytest.fixture
def store(tmp_path):
    return ImageStore(tmp_path / "images")


class TestStore:
    def test_a_build_records_labels_and_the_context(self, store, context):
        image = store.build(context, "own:latest")
        assert image.labels[LABEL] == "true"
        (context / "serve" / "handler.py").unlink()
        file, _, function = image.handler.rpartition(":")
        assert (Path(file).read_text(), function) == (HANDLER, "handle")
        assert store.find("own:latest") == image

    def test_the_same_context_is_the_same_image_and_another_one_is_not(self, store, context):
        first = store.build(context, "a")
        assert store.build(context, "b").digest == first.digest
        (context / "serve" / "handler.py").write_text("other")
        assert store.build(context, "a").digest != first.digest
        assert store.find("b") == first

    def test_only_a_pushed_image_is_known_by_its_uri_and_digest(self, store, context):
        image = store.build(context, "own:latest")
        store.tag("own:latest", URI)
        assert store.pushed(URI) is None
        store.push(URI, "sha256:00ff")
        assert store.pushed(URI) == image
        assert store.pushed("000000000000.dkr.ecr.us-east-1.amazonaws.com/team/own@sha256:00ff") == image
        assert store.pushed(URI.replace(":1", ":2")) is None

    @pytest.mark.parametrize(
        ("base", "inherits"),
        [
            ("683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1", True),
            ("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-cpu-py312", True),
            ("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-gpu-py312", False),
            ("python:3.13", False),
        ],
    )
    def test_only_a_multi_model_base_of_sagemaker_passes_its_labels_on(self, store, context, base, inherits):
        (context / "Dockerfile").write_text(f"FROM {base}\n")
        assert (store.build(context, "a").labels.get(LABEL) == "true") == inherits

    @pytest.mark.parametrize(
        ("dockerfile", "text"),
        [
            (None, "cannot be read"),
            ("RUN true\n", "is not sound: it has no FROM"),
            ("FROM a\nLABEL mme.local.handler=none.py:handle\n", "which is not in the build context"),
            ("FROM a\nLABEL mme.local.handler=../context/serve/handler.py:handle\n", "use a file of the build context"),
            ("FROM a\nLABEL mme.local.handler=/etc/handler.py:handle\n", "use a file of the build context"),
            ("FROM a\nLABEL mme.local.handler=handle\n", "use a file of the build context"),
        ],
    )
    def test_what_cannot_stand_in_is_refused(self, store, context, dockerfile, text):
        (context / "Dockerfile").unlink()
        if dockerfile is not None:
            (context / "Dockerfile").write_text(dockerfile)
        with pytest.raises(ImageError, match=text):
            store.build(context, "own")
        with pytest.raises(ImageError, match="build it first"):
            store.find("own")

    def test_an_unknown_image_cannot_be_tagged_or_pushed(self, store):
        for call in (lambda: store.tag("none", "other"), lambda: store.push(URI, "sha256:00")):
            with pytest.raises(ImageError, match="build it first"):
                call()


class TestDocker:
    """The stand-in as the CDK CLI calls it."""

    @pytest.fixture
    def docker(self, local_cloud, context):
        environment = local_cloud.environment()

        def run(*arguments, stdin=""):
            command = [environment["CDK_DOCKER"], *arguments]
            return subprocess.run(command, cwd=context, env=environment, input=stdin, capture_output=True, text=True, check=False)

        return run

    def test_it_publishes_an_asset(self, local_cloud, docker):
        ecr = local_cloud.client("ecr")
        ecr.create_repository(repositoryName="team/own")
        assert docker("login", "--username", "AWS", "--password-stdin", "https://example.com", stdin="secret").returncode == 0
        assert docker("inspect", "cdkasset-1").returncode == 1
        built = docker("build", "--build-arg", "A=1", "--tag", "cdkasset-1", "--platform", "linux/amd64", ".")
        assert built.returncode == 0, built.stderr
        assert "nothing is built" in built.stderr
        assert "serve/handler.py:handle of the build context stands in" in built.stderr
        (inspected,) = json.loads(docker("inspect", "cdkasset-1").stdout)
        assert inspected["Config"]["Labels"][LABEL] == "true"
        assert docker("tag", "cdkasset-1", URI).returncode == 0
        pushed = docker("push", URI)
        assert pushed.returncode == 0, pushed.stderr
        (image,) = ecr.describe_images(repositoryName="team/own", imageIds=[{"imageTag": "1"}])["imageDetails"]
        assert ImageStore(local_cloud.directory / "cdk" / "images").pushed(f"{URI.rpartition(':')[0]}@{image['imageDigest']}") is not None

    def test_modules_in_the_context_are_not_its_own(self, docker, context):
        (context / "json.py").write_text("raise SystemExit('taken from the build context')")
        assert docker("build", "-t", "a", ".").returncode == 0

    def test_a_repository_that_does_not_exist_takes_no_image(self, docker):
        docker("build", "--tag", "0/none:1", ".")
        pushed = docker("push", "0/none:1")
        assert (pushed.returncode, "RepositoryNotFoundException" in pushed.stderr) == (1, True)

    @pytest.mark.parametrize("arguments", [("run", "image"), ("build", "--squash", "--tag", "a", "."), ("build", "."), ("login",), ()])
    def test_anything_else_is_refused(self, docker, arguments):
        ran = docker(*arguments)
        assert (ran.returncode, "it knows what the CDK CLI needs" in ran.stderr) == (125, True), ran.stderr

    def test_a_broken_dockerfile_fails_the_build(self, docker, context):
        (context / "Dockerfile").write_text("nonsense\n")
        ran = docker("build", "--tag", "a", ".")
        assert (ran.returncode, "is not sound" in ran.stderr) == (1, True)
