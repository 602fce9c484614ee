"""What this stack decides about the rule packs' findings, and why."""

DECISIONS = {
    "AwsSolutions-APIG3": "No anonymous caller reaches a function: every method demands a signature, and the stage throttles.",
    "AwsSolutions-S1": "A stack to try things in: give the store a bucket for its access logs before tenants use it.",
    "NIST.800.53.R5-APIGWAssociatedWithWAF": (
        "No anonymous caller reaches a function: every method demands a signature, and the stage throttles."
    ),
    "NIST.800.53.R5-CloudWatchLogGroupEncrypted": ("CloudWatch Logs encrypts with a key of AWS; logs hold ids and timings, no payloads."),
    "NIST.800.53.R5-DynamoDBInBackupPlan": ("Point-in-time recovery covers 35 days; a backup plan is the account's, not this stack's."),
    "NIST.800.53.R5-IAMNoInlinePolicy": ("Each policy belongs to one role and ends with it; a managed policy could be attached elsewhere."),
    "NIST.800.53.R5-LambdaConcurrency": "New accounts cannot reserve concurrency; the API's throttle bounds the functions.",
    "NIST.800.53.R5-LambdaInsideVPC": "The functions call AWS APIs only.",
    "NIST.800.53.R5-S3BucketLoggingEnabled": (
        "A stack to try things in: give the store a bucket for its access logs before tenants use it."
    ),
    "NIST.800.53.R5-S3BucketReplicationEnabled": "One region by decision: artifacts are uploaded again if the region is lost.",
    "NIST.800.53.R5-S3DefaultEncryptionKMS": "S3-managed keys by decision.",
    "NIST.800.53.R5-SageMakerEndpointConfigurationKMSKeyConfigured": ("Volumes hold copies of artifacts, encrypted with a key of AWS."),
}
