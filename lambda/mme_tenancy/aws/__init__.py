"""Adapters between the domain's protocols and AWS: DynamoDB, S3 and the SageMaker runtime."""
