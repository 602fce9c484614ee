"""What this stack decides about the rule packs' findings, and why."""

DECISIONS = {
    "AwsSolutions-S1": "A stack to try things in: give the store a bucket for its access logs before tenants use it.",
    "NIST.800.53.R5-CloudWatchLogGroupEncrypted": ("CloudWatch Logs encrypts with a key of AWS; logs hold ids and timings, no payloads."),
    "NIST.800.53.R5-IAMNoInlinePolicy": ("Each policy belongs to one role and ends with it; a managed policy could be attached elsewhere."),
    "NIST.800.53.R5-S3BucketLoggingEnabled": (
        "A stack to try things in: give the store a bucket for its access logs before tenants use it."
    ),
    "NIST.800.53.R5-S3BucketReplicationEnabled": "One region by decision: artifacts are uploaded again if the region is lost.",
    "NIST.800.53.R5-S3BucketVersioningEnabled": (
        "Objects are written once under names of their own; old versions would only keep what was meant to go."
    ),
    "NIST.800.53.R5-VPCDefaultSecurityGroupClosed": (
        "Nothing joins the default group, and the VPC has no way in; closing it would take a custom resource."
    ),
}
