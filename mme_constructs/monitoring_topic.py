"""The topic that alarms notify."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from mme_constructs.stack_of import stack_of

__all__ = ["alarm_topic", "allow_alarms"]


def alarm_topic(scope: Construct, key: kms.IKey | None) -> sns.Topic:
    """A topic for alarms: TLS only, encrypted with a key that CloudWatch may use.

    CloudWatch cannot publish to a topic that is encrypted with the key of AWS for SNS, because nobody can change that key's policy
    (Amazon CloudWatch, Notifying users on alarm changes); so the key is the customer's: ``key``, or one of the topic's own. That one goes
    with the stack: messages are not kept.
    """
    chosen = key
    if chosen is None:
        chosen = kms.Key(
            scope,
            "TopicKey",
            description="Encrypts notifications of alarms.",
            enable_key_rotation=True,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
    chosen.add_to_resource_policy(
        iam.PolicyStatement(
            principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
            actions=["kms:Decrypt", "kms:GenerateDataKey"],
            resources=["*"],
            conditions={"StringEquals": {"aws:SourceAccount": stack_of(scope).account}},
        )
    )
    return sns.Topic(scope, "Topic", display_name="mme alarms", master_key=chosen, enforce_ssl=True)


def allow_alarms(topic: sns.ITopic, account: str) -> None:
    """Let the alarms of ``account`` publish to ``topic``; an imported topic's policy cannot be changed and must allow it already."""
    topic.add_to_resource_policy(
        iam.PolicyStatement(
            sid="Alarms",
            principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
            actions=["sns:Publish"],
            resources=[topic.topic_arn],
            conditions={"StringEquals": {"aws:SourceAccount": account}},
        )
    )
