"""Capture of requests and answers into S3, off by default."""

from __future__ import annotations

from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from mme_constructs.acknowledge import acknowledge_wildcards
from mme_constructs.errors import EndpointSettingsError

__all__ = ["DataCapture"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCapture:
    """Which requests and answers are written to S3.

    AWS's feature matrix lists capture as not applicable to multi-model endpoints and no page says that the records tell TargetModel, while
    nothing refuses it; the endpoint carries a warning. The records hold tenants' payloads, all tenants in one place.

    Attributes:
        bucket: where to.
        prefix: folders that end in ``/``. Default ``captured/``.
        sampling_percent: 0 to 100. Default 100.
        requests: whether requests are captured. Default yes.
        answers: whether answers are captured. Default yes.
        encryption_key: KMS key of the records. Default: the bucket's encryption.

    Raises:
        EndpointSettingsError: the percentage is out of range, nothing is captured, or the prefix is no folder.

    Source: API reference: DataCaptureConfig.
    """

    bucket: s3.IBucket
    prefix: str = "captured/"
    sampling_percent: int = 100
    requests: bool = True
    answers: bool = True
    encryption_key: kms.IKey | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.sampling_percent <= 100:
            raise EndpointSettingsError(
                "sampling_percent is out of range", value=self.sampling_percent, allowed="0 to 100", fix="Use a percentage"
            )
        if not (self.requests or self.answers):
            raise EndpointSettingsError("Nothing is captured", value=False, allowed="requests, answers or both", fix="Set one")
        if not self.prefix.endswith("/") or self.prefix.startswith("/"):
            raise EndpointSettingsError(
                "The prefix of captured records is no folder", value=self.prefix, allowed="folders that end in '/'", fix="Use 'captured/'"
            )

    def attach(self, scope: Construct, role: iam.Role) -> sagemaker.CfnEndpointConfig.DataCaptureConfigProperty:
        """The property; ``role`` may write the records and ``scope`` carries the warning."""
        role.add_to_policy(iam.PolicyStatement(actions=["s3:PutObject"], resources=[self.bucket.arn_for_objects(f"{self.prefix}*")]))
        acknowledge_wildcards(role, {f"/{self.prefix}*": "SageMaker names the captured records by variant and time, below one prefix."})
        if self.encryption_key is not None:
            self.encryption_key.grant(role, "kms:Decrypt", "kms:GenerateDataKey")
        cdk.Annotations.of(scope).add_warning_v2(
            "mme-constructs:data-capture",
            "AWS lists data capture as not applicable to multi-model endpoints: records may be missing or not tell TargetModel. They hold "
            "payloads of all tenants in one place.",
        )
        modes = [mode for mode, wanted in (("Input", self.requests), ("Output", self.answers)) if wanted]
        return sagemaker.CfnEndpointConfig.DataCaptureConfigProperty(
            enable_capture=True,
            initial_sampling_percentage=self.sampling_percent,
            destination_s3_uri=f"s3://{self.bucket.bucket_name}/{self.prefix}",
            kms_key_id=None if self.encryption_key is None else self.encryption_key.key_arn,
            capture_options=[sagemaker.CfnEndpointConfig.CaptureOptionProperty(capture_mode=mode) for mode in modes],
        )
