"""Settings of the model server inside a container, as the environment variables that its family reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from mme_constructs.errors import ServerSettingError

__all__ = ["ServerFamily", "ServerSettings"]

_MIB = 1024**2


class ServerFamily(StrEnum):
    """What serves the models inside an image, and hence which variables it reads."""

    XGBOOST_SKLEARN = "xgboost-sklearn"
    """multi-model-server as SageMaker's XGBoost and scikit-learn images start it."""
    INFERENCE_TOOLKIT = "inference-toolkit"
    """multi-model-server as the SageMaker Inference Toolkit starts it: MXNet, PyTorch before 1.6, own images with the toolkit."""
    TORCHSERVE = "torchserve"
    """TorchServe as SageMaker's PyTorch images start it, from 1.6."""
    TENSORFLOW_SERVING = "tensorflow-serving"
    """TensorFlow Serving, one process for each model."""
    ALGORITHM = "algorithm"
    """SageMaker's built-in algorithms: k-NN, linear learner, random cut forest. They document no setting."""
    TRITON = "triton"
    """NVIDIA Triton Inference Server: the only one that serves multi-model endpoints on GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How the model server in the container works; a setting that its family does not read is refused, never ignored.

    Attributes:
        workers_per_model: processes that serve each loaded model (XGBoost, scikit-learn, inference toolkit, TorchServe). **Memory**: every
            worker holds a copy of its model, so that two workers halve the number of models that fit into an instance, and cold loads start
            two processes. With the loaded model shared (``share_loaded_model``; always so in the XGBoost image) the workers are forked from
            one that has it and copy only what they write. Default: the server's, 1 in multi-model mode; concurrency then comes from
            requests to different models.
        job_queue_size: requests that wait for a model's workers before the server answers 503 (XGBoost, scikit-learn, inference toolkit,
            TorchServe). Shorter fails fast, longer absorbs bursts. Default: the server's, 100.
        response_timeout_seconds: until a worker that does not answer is restarted (inference toolkit, TorchServe); SageMaker itself gives
            up after 60. Default: the server's, 60.
        max_request_mib: greatest request body, MiB (XGBoost, scikit-learn, inference toolkit, TorchServe). InvokeEndpoint takes 6,291,456
            bytes. Default: the server's, 6 to 6.25.
        heap_mib: heap of the server's JVM, MiB (XGBoost, scikit-learn, inference toolkit). It is taken from the models' memory. Default:
            the image's.
        share_loaded_model: whether a model is loaded once and its workers are forked from there (inference toolkit). The model must survive
            a fork: no open sockets, threads or GPU contexts. Default: the server's, false.
        load_gpu_memory_limit: share of the GPU's memory, above 0 to 1, beyond which loading another model is refused, so that SageMaker
            evicts one (Triton). Default: no limit, until the GPU's memory is exhausted.
        shared_memory_bytes: shared memory of each model of Triton's Python backend at its start, bytes (Triton). Default: 16 MiB.
        shared_memory_growth_bytes: by how much it grows, bytes (Triton). Default: 1 MiB.
        server_threads: HTTP threads (Triton). Default: the server's, 8.
        log_verbose: whether each request is logged in detail (Triton). Default: the image's, true.

    Raises:
        ServerSettingError: a number is out of range.

    Sources: aws/sagemaker-xgboost-container and aws/sagemaker-scikit-learn-container (``serving_mms.py``); aws/sagemaker-inference-toolkit
    (``environment.py``) and awslabs/multi-model-server (Advanced configuration); aws/sagemaker-pytorch-inference-toolkit
    (``torchserve.py``, ``mme-ts.properties``) and TorchServe (Advanced configuration); triton-inference-server/server
    (``docker/sagemaker/serve``).
    """

    workers_per_model: int | None = None
    job_queue_size: int | None = None
    response_timeout_seconds: int | None = None
    max_request_mib: int | None = None
    heap_mib: int | None = None
    share_loaded_model: bool | None = None
    load_gpu_memory_limit: float | None = None
    shared_memory_bytes: int | None = None
    shared_memory_growth_bytes: int | None = None
    server_threads: int | None = None
    log_verbose: bool | None = None

    def __post_init__(self) -> None:
        for name, (least, greatest, unit) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= greatest:
                raise ServerSettingError(
                    f"{name} is out of range", value=value, allowed=f"{least:,} to {greatest:,} {unit}", fix="Use a number in between"
                )
        if self.load_gpu_memory_limit is not None and not 0 < self.load_gpu_memory_limit <= 1:
            raise ServerSettingError(
                "load_gpu_memory_limit is out of range",
                value=self.load_gpu_memory_limit,
                allowed="more than 0, at most 1",
                fix="Use a share of the GPU's memory, such as 0.9",
            )

    def environment(self, family: ServerFamily | None) -> dict[str, str]:
        """The variables of a family.

        Args:
            family: what serves the models; None if that is not known.

        Raises:
            ServerSettingError: the family does not read one of the settings, or is not known although there is one.
        """
        variables: dict[str, str] = {}
        for name, value in self._given().items():
            if family is None:
                raise ServerSettingError(
                    f"It is not known which server would read {name}",
                    value=value,
                    allowed="settings of a container whose server is known",
                    fix="Pass server, such as ServerFamily.INFERENCE_TOOLKIT",
                )
            render = _VARIABLES[family].get(name)
            if render is None:
                raise ServerSettingError(
                    f"The server {family} does not read {name}",
                    value=value,
                    allowed=", ".join(_VARIABLES[family]) or "no setting",
                    fix="Leave it out",
                )
            variables |= render(value)
        return variables

    def _given(self) -> dict[str, Any]:
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) is not None}


_RANGES: Mapping[str, tuple[int, int, str]] = {
    "workers_per_model": (1, 64, "processes"),
    "job_queue_size": (1, 100_000, "requests"),
    "response_timeout_seconds": (1, 3600, "seconds"),
    # aws/sagemaker-xgboost-container: MAX_CONTENT_LEN_LIMIT.
    "max_request_mib": (1, 20, "MiB"),
    "heap_mib": (64, 1_048_576, "MiB"),
    "shared_memory_bytes": (1, 1 << 40, "bytes"),
    "shared_memory_growth_bytes": (1, 1 << 40, "bytes"),
    "server_threads": (1, 1024, "threads"),
}

_Render = Callable[[Any], dict[str, str]]


def _variable(name: str, *, times: int = 1, unit: str = "") -> _Render:
    def render(value: Any) -> dict[str, str]:
        if isinstance(value, bool):
            return {name: "true" if value else "false"}
        return {name: f"{value * times}{unit}" if isinstance(value, int) else f"{value:g}"}

    return render


def _framework_heap(mib: int) -> dict[str, str]:
    return {"SAGEMAKER_MAX_HEAP_SIZE": f"{mib}m"}


def _toolkit_heap(mib: int) -> dict[str, str]:
    # The variable replaces the toolkit's own line, whose option has to be repeated.
    return {"SAGEMAKER_MODEL_SERVER_VMARGS": f"-XX:-UseContainerSupport -Xms{mib}m -Xmx{mib}m"}


_VARIABLES: Mapping[ServerFamily, Mapping[str, _Render]] = {
    ServerFamily.XGBOOST_SKLEARN: {
        "workers_per_model": _variable("SAGEMAKER_NUM_MODEL_WORKERS"),
        "job_queue_size": _variable("SAGEMAKER_MODEL_JOB_QUEUE_SIZE"),
        "max_request_mib": _variable("SAGEMAKER_MAX_REQUEST_SIZE", times=_MIB),
        "heap_mib": _framework_heap,
    },
    ServerFamily.INFERENCE_TOOLKIT: {
        "workers_per_model": _variable("SAGEMAKER_MODEL_SERVER_WORKERS"),
        # The toolkit sets enable_envvars_config: multi-model-server takes any property as MMS_<PROPERTY>.
        "job_queue_size": _variable("MMS_JOB_QUEUE_SIZE"),
        "response_timeout_seconds": _variable("SAGEMAKER_MODEL_SERVER_TIMEOUT"),
        "max_request_mib": _variable("MMS_MAX_REQUEST_SIZE", times=_MIB),
        "heap_mib": _toolkit_heap,
        "share_loaded_model": _variable("MMS_PRELOAD_MODEL"),
    },
    ServerFamily.TORCHSERVE: {
        "workers_per_model": _variable("SAGEMAKER_MODEL_SERVER_WORKERS"),
        "job_queue_size": _variable("TS_JOB_QUEUE_SIZE"),
        "response_timeout_seconds": _variable("SAGEMAKER_MODEL_SERVER_TIMEOUT"),
        "max_request_mib": _variable("TS_MAX_REQUEST_SIZE", times=_MIB),
    },
    ServerFamily.TENSORFLOW_SERVING: {},
    ServerFamily.ALGORITHM: {},
    ServerFamily.TRITON: {
        "load_gpu_memory_limit": _variable("SAGEMAKER_TRITON_MODEL_LOAD_GPU_LIMIT"),
        "shared_memory_bytes": _variable("SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE"),
        "shared_memory_growth_bytes": _variable("SAGEMAKER_TRITON_SHM_GROWTH_BYTE_SIZE"),
        "server_threads": _variable("SAGEMAKER_TRITON_THREAD_COUNT"),
        "log_verbose": _variable("SAGEMAKER_TRITON_LOG_VERBOSE"),
    },
}
"""Family -> setting -> its variables; what is missing is not read."""
