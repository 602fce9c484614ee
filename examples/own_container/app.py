"""A container of your own: its Dockerfile is checked for the label that multi-model endpoints demand, before anything is built."""

from pathlib import Path

import aws_cdk as cdk
from decisions import DECISIONS

from mme_constructs import ModelArtifactStore, MultiModelContainer, MultiModelEndpoint
from mme_constructs.acknowledge import acknowledge

app = cdk.App()
stack = cdk.Stack(app, "OwnContainerMme")
MultiModelEndpoint(
    stack,
    "Endpoint",
    store=ModelArtifactStore(stack, "Store"),
    container=MultiModelContainer.from_asset(Path(__file__).parent / "container"),
)
acknowledge(stack, DECISIONS)
app.synth()
