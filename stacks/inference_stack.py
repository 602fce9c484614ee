"""The shared multi-model endpoint."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from mme_constructs import ModelArtifactStore, ModelPool, MultiModelContainer, MultiModelEndpoint
from mme_constructs.acknowledge import acknowledge
from stacks.decisions import INLINE_POLICIES

__all__ = ["InferenceStack"]


class InferenceStack(cdk.Stack):
    """One pool: SageMaker's XGBoost container on general-purpose instances."""

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002 - CDK's name for it
        *,
        store: ModelArtifactStore,
        env: cdk.Environment | None = None,
    ) -> None:
        super().__init__(scope, id, env=env, description="mme-constructs: shared multi-model endpoint")
        endpoint = MultiModelEndpoint(
            self,
            "Xgboost",
            store=store,
            container=MultiModelContainer.from_framework("xgboost", version="1.7-1"),
            min_instances=2,
            max_instances=4,
        )
        self.pools = (ModelPool(framework="xgboost", endpoint=endpoint),)
        """The platform's pools."""
        cdk.CfnOutput(self, "EndpointName", value=endpoint.endpoint_name, description="Shared multi-model endpoint")
        acknowledge(
            self,
            {
                **INLINE_POLICIES,
                "NIST.800.53.R5-SageMakerEndpointConfigurationKMSKeyConfigured": (
                    "Volumes hold copies of artifacts, encrypted with a key of AWS; pass encryption_key where one of your own is demanded."
                ),
            },
        )
