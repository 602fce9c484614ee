"""SageMaker of the local cloud: control plane and runtime."""
