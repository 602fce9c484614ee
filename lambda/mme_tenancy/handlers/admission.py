"""EventBridge ``Object Created`` below ``incoming/``: the uploaded artifact is admitted or rejected."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3

from mme_facts.grammar import ArtifactName, GrammarError
from mme_tenancy.admission import Admission
from mme_tenancy.artifacts import UploadedObject
from mme_tenancy.aws.clients import dynamodb_client, runtime_client, s3_client
from mme_tenancy.aws.dynamodb import DynamoRegistry
from mme_tenancy.aws.s3 import S3Artifacts
from mme_tenancy.aws.sagemaker import SageMakerRuntime
from mme_tenancy.clock import Clock, SystemClock
from mme_tenancy.handlers.http import Event, at_cold_start
from mme_tenancy.handlers.invocation import LambdaContext
from mme_tenancy.handlers.log import service_logger
from mme_tenancy.invocation import Invoker
from mme_tenancy.settings import AdmissionSettings
from mme_tenancy.telemetry import admission_line, write_line
from mme_tenancy.versions import State

__all__ = ["Admissions", "handler"]

_CONTEXT_MARGIN_SECONDS = 5.0
"""Left for the writes behind the first invocation."""

logger = service_logger("admission")


@dataclass(frozen=True, slots=True)
class Admissions:
    """The function, wired.

    Args:
        admission: the domain.
        bucket_name: the bucket whose events count.
        clock: time.
        function_name: the function's name, under which admitted and rejected uploads are counted; ``None``: they are not counted.
    """

    admission: Admission
    bucket_name: str
    clock: Clock
    function_name: str | None = None

    def __call__(self, event: Event, context: LambdaContext) -> dict[str, Any]:
        """Handle one event; what it raises makes Lambda deliver the event again."""
        deadline = self.clock.monotonic() + context.get_remaining_time_in_millis() / 1000 - _CONTEXT_MARGIN_SECONDS
        detail = event.get("detail") or {}
        key = (detail.get("object") or {}).get("key")
        if (detail.get("bucket") or {}).get("name") != self.bucket_name:
            return _ignored(key, "the event is not about the artifacts' bucket")
        try:
            upload = _upload(detail["object"])
        except GrammarError as error:
            return _ignored(key, str(error))
        name = upload.name
        logger.append_keys(tenant=name.tenant, model=name.model, version=str(name.version))
        try:
            admitted = self.admission.admit(upload, deadline=deadline)
        finally:
            logger.remove_keys(["tenant", "model", "version"])
        if admitted.version is None or admitted.ignored:
            return _ignored(key, admitted.ignored or "")
        version = admitted.version
        outcome = {"version": str(version.id), "state": version.state.value, "steps": [state.value for state in admitted.steps]}
        rules = [reason.rule for reason in version.reasons]
        logger.info(
            "admitted", extra={**outcome, "tenant": name.tenant, "model": name.model, "rules": rules, "timings": dict(version.timings)}
        )
        if self.function_name is not None:
            rejected = version.state is State.REJECTED
            write_line(admission_line(self.function_name, rejected=rejected, epoch_seconds=self.clock.time()))
        return outcome


def _upload(uploaded: Event) -> UploadedObject:
    return UploadedObject(ArtifactName.parse_incoming(str(uploaded.get("key", ""))), str(uploaded["etag"]).strip('"'))


def _ignored(key: object, why: str) -> dict[str, Any]:
    logger.info("ignored", extra={"key": key, "why": why})
    return {"ignored": why}


@at_cold_start
def _application() -> Callable[[Event, LambdaContext], dict[str, Any]]:
    settings = AdmissionSettings.read(os.environ)
    session, clock = boto3.Session(), SystemClock()
    invoker = Invoker(SageMakerRuntime(lambda seconds: runtime_client(session, seconds)), clock, random.random)
    artifacts = S3Artifacts(s3_client(session), settings.bucket_name, settings.models_prefix)
    registry = DynamoRegistry(dynamodb_client(session), settings.table_name)
    admission = Admission(registry, artifacts, invoker, settings.pools, clock)
    return Admissions(admission, settings.bucket_name, clock, os.environ.get("AWS_LAMBDA_FUNCTION_NAME"))


def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """The Lambda's entry point."""
    return _application()(event, context)
