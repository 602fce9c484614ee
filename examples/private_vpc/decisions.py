"""What this stack decides about the rule packs' findings, and why."""

DECISIONS = {
    "AwsSolutions-APIG3": "No anonymous caller reaches a function: every method demands a signature, and the stage throttles.",
    "NIST.800.53.R5-APIGWAssociatedWithWAF": (
        "No anonymous caller reaches a function: every method demands a signature, and the stage throttles."
    ),
    "NIST.800.53.R5-CloudWatchLogGroupEncrypted": ("CloudWatch Logs encrypts with a key of AWS; logs hold ids and timings, no payloads."),
    "NIST.800.53.R5-DynamoDBInBackupPlan": ("Point-in-time recovery covers 35 days; a backup plan is the account's, not this stack's."),
    "NIST.800.53.R5-IAMNoInlinePolicy": ("Each policy belongs to one role and ends with it; a managed policy could be attached elsewhere."),
    "NIST.800.53.R5-LambdaConcurrency": "New accounts cannot reserve concurrency; the API's throttle bounds the functions.",
    "NIST.800.53.R5-S3BucketReplicationEnabled": "One region by decision: artifacts are uploaded again if the region is lost.",
    "NIST.800.53.R5-S3BucketVersioningEnabled": (
        "Objects are written once under names of their own; old versions would only keep what was meant to go."
    ),
    "NIST.800.53.R5-S3DefaultEncryptionKMS": "S3-managed keys by decision.",
    "NIST.800.53.R5-SageMakerEndpointConfigurationKMSKeyConfigured": ("Volumes hold copies of artifacts, encrypted with a key of AWS."),
}
