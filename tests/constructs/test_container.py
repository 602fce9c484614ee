from __future__ import annotations

import json

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam

from mme_constructs import MultiModelContainer, ServerFamily, ServerSettings
from mme_constructs.errors import ContainerError, ServerSettingError
from mme_facts.dockerfile import BIND_TO_PORT_LABEL, MULTI_MODEL_LABEL
from mme_facts.images import framework_image

XGBOOST = framework_image("xgboost", "1.7-1")


def _locate(synthesize_stack, container, env=None):
    def build(stack):
        location = container.locate(stack)
        cdk.CfnOutput(stack, "Uri", value=location.uri)
        cdk.CfnOutput(stack, "Repository", value=location.repository_arn)

    template = synthesize_stack(build, env=env).templates["Test"]
    return template["Outputs"]["Uri"]["Value"], template["Outputs"]["Repository"]["Value"], template.get("Mappings")


@pytest.mark.parametrize(
    ("region", "suffix"),
    [
        ("eu-central-1", "amazonaws.com"),
        ("cn-north-1", "amazonaws.com.cn"),
        ("us-gov-west-1", "amazonaws.com"),
        ("us-iso-east-1", "c2s.ic.gov"),
    ],
)
def test_in_a_concrete_region_the_uri_is_resolved_with_the_partitions_suffix(synthesize_stack, region, suffix):
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    uri, repository, mappings = _locate(synthesize_stack, container, cdk.Environment(account="111122223333", region=region))
    account = XGBOOST.accounts[region]
    assert uri == f"{account}.dkr.ecr.{region}.{suffix}/sagemaker-xgboost:1.7-1"
    assert f":ecr:{region}:{account}:repository/sagemaker-xgboost" in str(repository)
    assert mappings is None


def test_without_a_region_the_account_comes_from_one_mapping_over_all_regions(synthesize_stack):
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1")
    uri, repository, mappings = _locate(synthesize_stack, container)
    ((name, mapping),) = mappings.items()
    assert mapping == {region: {"account": account} for region, account in sorted(XGBOOST.accounts.items())}
    find = {"Fn::FindInMap": [name, {"Ref": "AWS::Region"}, "account"]}
    assert uri["Fn::Join"][1] == [
        find,
        ".dkr.ecr.",
        {"Ref": "AWS::Region"},
        ".",
        {"Ref": "AWS::URLSuffix"},
        "/sagemaker-xgboost:1.7-1",
    ]
    assert find in repository["Fn::Join"][1]


def test_two_versions_have_a_mapping_each(synthesize_stack):
    def build(stack):
        for version in ("1.7-1", "1.5-1"):
            cdk.CfnOutput(stack, f"V{version[2]}", value=MultiModelContainer.from_framework("xgboost", version=version).locate(stack).uri)

    assert len(synthesize_stack(build).templates["Test"]["Mappings"]) == 2


@pytest.mark.parametrize(
    ("framework", "version", "named"), [("catboost", "1.7-1", "xgboost"), ("xgboost", "9.9-9", "1.7-1")], ids=["framework", "version"]
)
def test_rejects_what_sagemaker_does_not_publish_and_names_what_it_does(framework, version, named):
    with pytest.raises(ContainerError) as caught:
        MultiModelContainer.from_framework(framework, version=version)
    assert f"{framework} {version}" in str(caught.value)
    assert named in str(caught.value)


def test_rejects_a_region_without_the_image(flags):
    stack = cdk.Stack(cdk.App(context=flags), "Test", env=cdk.Environment(account="111122223333", region="mx-central-1"))
    with pytest.raises(ContainerError, match=r"does not publish xgboost 1\.7-1 in the stack's region: got 'mx-central-1'"):
        MultiModelContainer.from_framework("xgboost", version="1.7-1").locate(stack)


@pytest.mark.parametrize("reference", [":v3", "@sha256:" + "a" * 64], ids=["tag", "digest"])
def test_any_ecr_image_knows_its_own_repository(synthesize_stack, reference):
    image = f"444455556666.dkr.ecr.eu-west-1.amazonaws.com/team/server{reference}"
    uri, repository, _ = _locate(
        synthesize_stack, MultiModelContainer.from_image_uri(image), cdk.Environment(account="111122223333", region="eu-west-1")
    )
    assert uri == image
    assert ":ecr:eu-west-1:444455556666:repository/team/server" in str(repository)


@pytest.mark.parametrize(
    "uri",
    [
        "docker.io/library/python:3.13",
        "444455556666.dkr.ecr.eu-west-1.amazonaws.com/team/server",
        "4444.dkr.ecr.eu-west-1.amazonaws.com/server:v1",
        "",
    ],
)
def test_rejects_an_image_outside_ecr_or_without_a_tag(uri):
    with pytest.raises(ContainerError, match="Push it to ECR in the endpoint's region"):
        MultiModelContainer.from_image_uri(uri)


def test_rejects_an_image_of_another_region(flags):
    stack = cdk.Stack(cdk.App(context=flags), "Test", env=cdk.Environment(account="111122223333", region="eu-west-1"))
    container = MultiModelContainer.from_image_uri("444455556666.dkr.ecr.us-east-1.amazonaws.com/server:v1")
    with pytest.raises(ContainerError, match="another region"):
        container.locate(stack)


def test_a_token_needs_its_repository(stack):
    uri = cdk.CfnParameter(stack, "Image").value_as_string
    with pytest.raises(ContainerError, match="Pass repository_arn"):
        MultiModelContainer.from_image_uri(uri)
    arn = "arn:aws:ecr:eu-west-1:444455556666:repository/server"
    assert MultiModelContainer.from_image_uri(uri, repository_arn=arn).locate(stack).repository_arn == arn


@pytest.mark.parametrize(
    ("framework", "version", "options", "image"),
    [
        ("scikit-learn", "1.2-1", {}, "/sagemaker-scikit-learn:1.2-1-cpu-py3"),
        ("pytorch", "2.6", {}, "/pytorch-inference:2.6.0-cpu-py312"),
        ("pytorch", "2.6.0", {"architecture": "arm64"}, "/pytorch-inference-arm64:2.6.0-cpu-py312-ubuntu22.04-sagemaker"),
        ("tensorflow", "2.19.0", {}, "/tensorflow-inference:2.19.0-cpu"),
        ("mxnet", "1.6.0", {"python": "py2"}, "/mxnet-inference:1.6.0-cpu-py2"),
        ("knn", "1", {}, "/knn:1"),
        ("linear-learner", "1", {}, "/linear-learner:1"),
        ("randomcutforest", "1", {}, "/randomcutforest:1"),
        ("triton", "26.05", {}, "/sagemaker-tritonserver:26.05-py3"),
        ("triton", "26.05", {"processor": "cpu"}, "/sagemaker-tritonserver:26.05-py3-cpu"),
    ],
)
def test_every_family_has_its_image(synthesize_stack, framework, version, options, image):
    container = MultiModelContainer.from_framework(framework, version=version, **options)
    uri, _, _ = _locate(synthesize_stack, container, cdk.Environment(account="111122223333", region="us-east-1"))
    assert uri.endswith(image)
    assert container.architecture == options.get("architecture", "x86_64")
    assert container.gpu_server is (framework == "triton")


def test_a_variant_with_other_publishing_accounts_has_a_mapping_of_its_own(synthesize_stack):
    def build(stack):
        for architecture in ("x86_64", "arm64"):
            container = MultiModelContainer.from_framework("pytorch", version="2.1.0", architecture=architecture)
            cdk.CfnOutput(stack, f"Of{architecture.replace('_', '')}", value=container.locate(stack).uri)

    assert len(synthesize_stack(build).templates["Test"]["Mappings"]) == 2


def test_rejects_a_variant_that_sagemaker_does_not_publish():
    with pytest.raises(ContainerError, match=r"got 'xgboost 1\.7-1 arm64'; allowed: one of x86_64 cpu"):
        MultiModelContainer.from_framework("xgboost", version="1.7-1", architecture="arm64")


def test_rejects_an_architecture_that_no_instance_has():
    with pytest.raises(ContainerError, match="got 'aarch64'; allowed: x86_64 or arm64"):
        MultiModelContainer.from_image_uri("444455556666.dkr.ecr.eu-west-1.amazonaws.com/server:v1", architecture="aarch64")


def test_rejects_the_gpu_image_of_a_framework_for_many_models_but_not_for_one():
    with pytest.raises(ContainerError, match=r"lack the label .*multi-models=true and CreateModel refuses them: got 'pytorch for gpu'"):
        MultiModelContainer.from_framework("pytorch", version="2.6.0", processor="gpu")
    single = MultiModelContainer.from_framework("pytorch", version="2.6.0", processor="gpu", multi_model=False)
    assert not single.multi_model


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({f"V{n}": "x" for n in range(101)}, "at most 100"),
        ({"V": "x" * 1025}, "1,024 bytes"),
        ({"V": "é" * 513}, "1,024 bytes"),
        ({"V" * 1025: "x"}, "1,024 bytes"),
        ({f"V{n:02}": "x" * 1021 for n in range(33)}, "32,768 bytes of names and values"),
    ],
    ids=["too many", "value too long", "bytes, not characters", "name too long", "too long together"],
)
def test_rejects_variables_beyond_sagemakers_limits(environment, message):
    with pytest.raises(ContainerError, match=message):
        MultiModelContainer.from_framework("xgboost", version="1.7-1", environment=environment)


def test_variables_at_the_limits_are_taken():
    container = MultiModelContainer.from_framework("xgboost", version="1.7-1", environment={f"V{n:02}": "x" * 1021 for n in range(32)})
    assert container.environment_bytes == 32 * 1024


def test_an_image_of_the_apps_own_repository(synthesize_stack):
    def build(stack):
        container = MultiModelContainer.from_ecr(ecr.Repository(stack, "Repository"), "v3")
        location = container.locate(stack)
        container.grant_pull(stack, iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com")))
        cdk.CfnOutput(stack, "Uri", value=location.uri)

    synthesized = synthesize_stack(build)
    (repository,) = synthesized.resources("AWS::ECR::Repository")
    assert json.dumps(synthesized.templates["Test"]["Outputs"]["Uri"]["Value"]).endswith(':v3"]]}')
    pull = synthesized.only("AWS::IAM::Policy")["Properties"]["PolicyDocument"]["Statement"][1]
    assert pull["Resource"] == {"Fn::GetAtt": [repository, "Arn"]}
    assert "ecr:BatchGetImage" in pull["Action"]


def test_rejects_an_empty_tag_and_a_repository_of_another_region(flags):
    stack = cdk.Stack(cdk.App(context=flags), "Test", env=cdk.Environment(account="111122223333", region="eu-west-1"))
    repository = ecr.Repository.from_repository_arn(stack, "Far", "arn:aws:ecr:us-east-1:444455556666:repository/server")
    with pytest.raises(ContainerError, match="has no tag"):
        MultiModelContainer.from_ecr(repository, "")
    with pytest.raises(ContainerError, match="another region"):
        MultiModelContainer.from_ecr(repository, "v1").locate(stack)


@pytest.fixture
def dockerfile(tmp_path):
    """Write a Dockerfile and return its folder."""

    def write(text, name="Dockerfile"):
        (tmp_path / name).write_text(text, "utf-8")
        return tmp_path

    return write


LABELLED = f"FROM python:3.13-slim\nLABEL {MULTI_MODEL_LABEL}=true\n"


def test_an_image_that_is_built_on_deployment_is_one_asset_for_its_architecture(synthesize_stack, dockerfile):
    folder = dockerfile(f"ARG BASE=python:3.13\nFROM $BASE AS serve\nLABEL {MULTI_MODEL_LABEL}=true\nFROM scratch")

    def build(stack):
        container = MultiModelContainer.from_asset(folder, target="serve", build_args={"BASE": "python:3.12"}, architecture="arm64")
        assert container.locate(stack) == container.locate(stack)
        cdk.CfnOutput(stack, "Uri", value=container.locate(stack).uri)

    synthesized = synthesize_stack(build)
    (assets,) = synthesized.folder.glob("*.assets.json")
    (image,) = json.loads(assets.read_text("utf-8"))["dockerImages"].values()
    assert image["source"]["dockerBuildTarget"] == "serve"
    assert image["source"]["dockerBuildArgs"] == {"BASE": "python:3.12"}
    assert image["source"]["platform"] == "linux/arm64"


def test_two_folders_are_two_assets(synthesize_stack, dockerfile, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "Dockerfile").write_text(f"{LABELLED}RUN true\n", "utf-8")

    def build(stack):
        for number, folder in enumerate((dockerfile(LABELLED), other)):
            cdk.CfnOutput(stack, f"Uri{number}", value=MultiModelContainer.from_asset(folder).locate(stack).uri)

    (assets,) = synthesize_stack(build).folder.glob("*.assets.json")
    assert len(json.loads(assets.read_text("utf-8"))["dockerImages"]) == 2


@pytest.mark.parametrize(
    "text",
    [
        "FROM python:3.13",
        f"FROM python:3.13\nLABEL {MULTI_MODEL_LABEL}=false",
        f"FROM python:3.13 AS build\nLABEL {MULTI_MODEL_LABEL}=true\nFROM python:3.13",
        "FROM 763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-gpu-py312",
        f"FROM 763104351884.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:26.05-py3\nLABEL {MULTI_MODEL_LABEL}=false",
    ],
    ids=["no label", "label false", "label of another stage", "GPU image of a framework", "label taken back"],
)
def test_rejects_a_dockerfile_without_the_label(dockerfile, text):
    with pytest.raises(ContainerError, match=f"lacks the label {MULTI_MODEL_LABEL}=true: got 'Dockerfile, FROM"):
        MultiModelContainer.from_asset(dockerfile(text))


def test_a_container_of_one_model_needs_no_label(dockerfile):
    assert not MultiModelContainer.from_asset(dockerfile("FROM python:3.13"), multi_model=False).multi_model


@pytest.mark.parametrize(
    ("base", "server"),
    [
        ("763104351884.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:26.05-py3", ServerFamily.TRITON),
        ("683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1", ServerFamily.XGBOOST_SKLEARN),
        ("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:2.6.0-cpu-py312", ServerFamily.TORCHSERVE),
        ("763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-inference:1.5.0-cpu-py36", ServerFamily.INFERENCE_TOOLKIT),
    ],
)
def test_an_image_on_top_of_one_of_sagemakers_inherits_its_labels_and_its_server(dockerfile, base, server):
    container = MultiModelContainer.from_asset(dockerfile(f"FROM {base}\nCOPY model.py /"))
    assert container.server is server
    assert container.gpu_server is (server is ServerFamily.TRITON)
    container.check_in_pipeline()


def test_rejects_an_image_in_a_pipeline_that_does_not_take_its_port(dockerfile):
    with pytest.raises(ContainerError, match=f"Add LABEL {BIND_TO_PORT_LABEL}=true"):
        MultiModelContainer.from_asset(dockerfile(LABELLED)).check_in_pipeline()
    MultiModelContainer.from_asset(dockerfile(f"{LABELLED}LABEL {BIND_TO_PORT_LABEL}=true")).check_in_pipeline()


def test_rejects_a_folder_without_a_dockerfile_and_one_that_cannot_be_read(dockerfile, tmp_path):
    with pytest.raises(ContainerError, match="There is no Dockerfile"):
        MultiModelContainer.from_asset(tmp_path / "nowhere")
    with pytest.raises(ContainerError, match="cannot be read: it has no FROM"):
        MultiModelContainer.from_asset(dockerfile("LABEL a=1", "Serve"), file="Serve")


def test_settings_of_an_own_image_need_its_server(dockerfile):
    settings = ServerSettings(job_queue_size=10)
    with pytest.raises(ServerSettingError, match="Pass server"):
        MultiModelContainer.from_asset(dockerfile(LABELLED), settings=settings)
    container = MultiModelContainer.from_asset(dockerfile(LABELLED), settings=settings, server=ServerFamily.INFERENCE_TOOLKIT)
    assert container.environment == {"MMS_JOB_QUEUE_SIZE": "10"}


@pytest.mark.parametrize(
    ("image", "server"),
    [
        ("mirror/sagemaker-tritonserver:26.05-py3", ServerFamily.TRITON),
        ("sagemaker-scikit-learn@sha256:" + "a" * 64, ServerFamily.XGBOOST_SKLEARN),
        ("pytorch-inference@sha256:" + "a" * 64, ServerFamily.TORCHSERVE),
        ("knn:1", None),
        ("server:v1", None),
    ],
)
def test_a_copy_of_one_of_sagemakers_images_keeps_its_server_if_its_name_is_no_common_word(image, server):
    assert MultiModelContainer.from_image_uri(f"444455556666.dkr.ecr.eu-west-1.amazonaws.com/{image}").server is server
