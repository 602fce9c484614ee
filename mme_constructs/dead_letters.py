"""Queues of events that failed for good."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_sqs as sqs
from constructs import Construct

__all__ = ["dead_letter_queue"]

_KEPT_DAYS = 14
"""The longest that SQS keeps a message (Amazon SQS, message retention period)."""


def dead_letter_queue(scope: Construct, id: str = "DeadLetters") -> sqs.Queue:  # noqa: A002 - CDK's name for it
    """An encrypted queue in which events wait for 14 days.

    Args:
        scope: the parent.
        id: the id below the parent.
    """
    return sqs.Queue(
        scope, id, encryption=sqs.QueueEncryption.SQS_MANAGED, enforce_ssl=True, retention_period=cdk.Duration.days(_KEPT_DAYS)
    )
