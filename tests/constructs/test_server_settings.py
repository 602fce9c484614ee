from __future__ import annotations

from dataclasses import fields

import pytest

from mme_constructs import MultiModelContainer, ServerFamily, ServerSettings
from mme_constructs.errors import ContainerError, ServerSettingError

ALL = {
    "workers_per_model": 2,
    "job_queue_size": 20,
    "response_timeout_seconds": 30,
    "max_request_mib": 6,
    "heap_mib": 512,
    "share_loaded_model": True,
    "load_gpu_memory_limit": 0.9,
    "shared_memory_bytes": 33554432,
    "shared_memory_growth_bytes": 2097152,
    "server_threads": 16,
    "log_verbose": False,
}


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        (
            ServerFamily.XGBOOST_SKLEARN,
            {
                "workers_per_model": {"SAGEMAKER_NUM_MODEL_WORKERS": "2"},
                "job_queue_size": {"SAGEMAKER_MODEL_JOB_QUEUE_SIZE": "20"},
                "max_request_mib": {"SAGEMAKER_MAX_REQUEST_SIZE": "6291456"},
                "heap_mib": {"SAGEMAKER_MAX_HEAP_SIZE": "512m"},
            },
        ),
        (
            ServerFamily.INFERENCE_TOOLKIT,
            {
                "workers_per_model": {"SAGEMAKER_MODEL_SERVER_WORKERS": "2"},
                "job_queue_size": {"MMS_JOB_QUEUE_SIZE": "20"},
                "response_timeout_seconds": {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "30"},
                "max_request_mib": {"MMS_MAX_REQUEST_SIZE": "6291456"},
                "heap_mib": {"SAGEMAKER_MODEL_SERVER_VMARGS": "-XX:-UseContainerSupport -Xms512m -Xmx512m"},
                "share_loaded_model": {"MMS_PRELOAD_MODEL": "true"},
            },
        ),
        (
            ServerFamily.TORCHSERVE,
            {
                "workers_per_model": {"SAGEMAKER_MODEL_SERVER_WORKERS": "2"},
                "job_queue_size": {"TS_JOB_QUEUE_SIZE": "20"},
                "response_timeout_seconds": {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "30"},
                "max_request_mib": {"TS_MAX_REQUEST_SIZE": "6291456"},
            },
        ),
        (ServerFamily.TENSORFLOW_SERVING, {}),
        (ServerFamily.ALGORITHM, {}),
        (
            ServerFamily.TRITON,
            {
                "load_gpu_memory_limit": {"SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT": "0.9"},
                "shared_memory_bytes": {"SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE": "33554432"},
                "shared_memory_growth_bytes": {"SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE": "2097152"},
                "server_threads": {"SAGEMAKER_TRITON_THREAD_COUNT": "16"},
                "log_verbose": {"SAGEMAKER_TRITON_LOG_VERBOSE": "false"},
            },
        ),
    ],
)
def test_a_family_gets_the_variables_that_it_reads_and_refuses_every_other_setting(family, expected):
    for name, value in ALL.items():
        settings = ServerSettings(**{name: value})
        if name in expected:
            assert settings.environment(family) == expected[name]
        else:
            with pytest.raises(ServerSettingError, match=f"The server {family} does not read {name}"):
                settings.environment(family)


def test_the_table_above_has_every_setting():
    assert set(ALL) == {field.name for field in fields(ServerSettings)}


def test_no_setting_gives_no_variable_whatever_the_server():
    assert all(ServerSettings().environment(family) == {} for family in [None, *ServerFamily])


def test_a_setting_needs_a_known_server():
    with pytest.raises(ServerSettingError, match=r"Pass server, such as ServerFamily\.INFERENCE_TOOLKIT"):
        ServerSettings(workers_per_model=2).environment(None)


@pytest.mark.parametrize(
    "settings",
    [
        {"workers_per_model": 0},
        {"job_queue_size": 0},
        {"response_timeout_seconds": 0},
        {"max_request_mib": 21},
        {"heap_mib": 1},
        {"load_gpu_memory_limit": 0},
        {"load_gpu_memory_limit": 1.1},
        {"server_threads": 0},
    ],
    ids=str,
)
def test_rejects_a_number_out_of_range(settings):
    ((name, value),) = settings.items()
    with pytest.raises(ServerSettingError, match=f"{name} is out of range: got {value}"):
        ServerSettings(**settings)


@pytest.mark.parametrize(
    ("framework", "version", "family"),
    [
        ("xgboost", "1.7-1", ServerFamily.XGBOOST_SKLEARN),
        ("scikit-learn", "1.2-1", ServerFamily.XGBOOST_SKLEARN),
        ("pytorch", "2.6.0", ServerFamily.TORCHSERVE),
        ("pytorch", "1.10", ServerFamily.TORCHSERVE),
        ("pytorch", "1.5.0", ServerFamily.INFERENCE_TOOLKIT),
        ("tensorflow", "2.19.0", ServerFamily.TENSORFLOW_SERVING),
        ("mxnet", "1.9.0", ServerFamily.INFERENCE_TOOLKIT),
        ("knn", "1", ServerFamily.ALGORITHM),
        ("linear-learner", "1", ServerFamily.ALGORITHM),
        ("randomcutforest", "1", ServerFamily.ALGORITHM),
        ("triton", "26.05", ServerFamily.TRITON),
    ],
)
def test_a_framework_image_knows_its_server(framework, version, family):
    assert MultiModelContainer.from_framework(framework, version=version).server is family


def test_settings_join_the_variables_of_the_container():
    container = MultiModelContainer.from_framework(
        "xgboost", version="1.7-1", environment={"OMP_NUM_THREADS": "1"}, settings=ServerSettings(workers_per_model=2)
    )
    assert container.environment == {"OMP_NUM_THREADS": "1", "SAGEMAKER_NUM_MODEL_WORKERS": "2"}


def test_rejects_a_variable_that_settings_and_environment_set_differently():
    environment = {"SAGEMAKER_NUM_MODEL_WORKERS": "3"}
    with pytest.raises(ContainerError, match="SAGEMAKER_NUM_MODEL_WORKERS is set twice"):
        MultiModelContainer.from_framework(
            "xgboost", version="1.7-1", environment=environment, settings=ServerSettings(workers_per_model=2)
        )
