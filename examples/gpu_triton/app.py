"""Models on GPUs: NVIDIA Triton, the one container that serves several models from a GPU, on a single-GPU instance type."""

import aws_cdk as cdk
from decisions import DECISIONS

from mme_constructs import ModelArtifactStore, MultiModelContainer, MultiModelEndpoint
from mme_constructs.acknowledge import acknowledge

app = cdk.App()
stack = cdk.Stack(app, "GpuMme")
MultiModelEndpoint(
    stack,
    "Endpoint",
    store=ModelArtifactStore(stack, "Store"),
    container=MultiModelContainer.from_framework("triton", version="24.09"),
    instance_type="ml.g5.xlarge",
)
acknowledge(stack, DECISIONS)
app.synth()
