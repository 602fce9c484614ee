"""The metrics of endpoints as SageMaker publishes them, made of the steps of the fleets and of what their processes use."""
