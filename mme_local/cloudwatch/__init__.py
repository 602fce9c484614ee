"""CloudWatch of the local cloud: metrics, metric math, alarms, embedded metric format."""
