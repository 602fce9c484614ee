"""What this stack decides about the rule packs' findings, and why."""

DECISIONS = {
    "AwsSolutions-S1": "A stack to try things in: give the store a bucket for its access logs before tenants use it.",
    "NIST.800.53.R5-IAMNoInlinePolicy": ("Each policy belongs to one role and ends with it; a managed policy could be attached elsewhere."),
    "NIST.800.53.R5-S3BucketLoggingEnabled": (
        "A stack to try things in: give the store a bucket for its access logs before tenants use it."
    ),
    "NIST.800.53.R5-S3BucketReplicationEnabled": "One region by decision: artifacts are uploaded again if the region is lost.",
    "NIST.800.53.R5-S3DefaultEncryptionKMS": "S3-managed keys by decision.",
    "NIST.800.53.R5-SageMakerEndpointConfigurationKMSKeyConfigured": ("Volumes hold copies of artifacts, encrypted with a key of AWS."),
}
