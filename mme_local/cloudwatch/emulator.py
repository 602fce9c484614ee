# ruff: noqa: SLF001 - reaching into the pinned emulator is what this module is for
"""Where the emulator and our CloudWatch meet: its own metrics come to our store, our alarms reach its topics and functions.

The emulator is patched as in `mme_local.patches`, which checks its version. Each change is guarded by a contract test.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from mme_local.cloudwatch.alarms import Alarms
from mme_local.cloudwatch.store import MetricStore
from mme_local.settings import ACCOUNT, REGION

__all__ = ["EmulatorMessenger", "RefusedActionError", "take_over"]

_CLOUDWATCH, _ALARMS = "cloudwatch.amazonaws.com", "lambda.alarms.cloudwatch.amazonaws.com"


class RefusedActionError(Exception):
    """A topic or function is not there, or its policy does not let CloudWatch in."""


class EmulatorMessenger:
    """Delivers to the emulator's topics and functions as CloudWatch, whose principal their policies must allow."""

    def publish(self, topic_arn: str, subject: str, message: str, source_arn: str) -> None:
        """Publish to a topic; raises `RefusedActionError`."""
        from ministack.core.responses import request_scope
        from ministack.services import sns

        with request_scope(ACCOUNT, REGION):
            if not sns.topic_policy_allows(topic_arn, _CLOUDWATCH, source_arn, ACCOUNT):
                raise RefusedActionError(f"there is no topic {topic_arn} whose policy lets {_CLOUDWATCH} publish")
            sns._fanout(topic_arn, str(uuid.uuid4()), message, subject)

    def invoke(self, function_arn: str, payload: Mapping[str, Any], source_arn: str) -> None:
        """Invoke a function; raises `RefusedActionError`."""
        from ministack.core import iam_evaluator
        from ministack.core.responses import request_scope
        from ministack.services import lambda_svc

        with request_scope(ACCOUNT, REGION):
            function, config, _name = lambda_svc._get_func_record_for_ref(function_arn)
            if not function or not config:
                raise RefusedActionError(f"there is no function {function_arn}")
            context = iam_evaluator.EvalContext(
                principal_arn=_ALARMS,
                principal_type="Service",
                principal_account=ACCOUNT,
                action="lambda:InvokeFunction",
                resource_arn=config["FunctionArn"],
                region=REGION,
                service_context={"aws:sourcearn": source_arn, "aws:sourceaccount": ACCOUNT},
            )
            if iam_evaluator.evaluate_resource_policy(function.get("policy"), context, service=_ALARMS).decision != "Allow":
                raise RefusedActionError(f"the policy of {function_arn} does not let {_ALARMS} invoke it")
            lambda_svc.invoke_async_with_retry(lambda_svc._execution_record_for_config(function, config), dict(payload))


def take_over(store: MetricStore, alarms: Alarms, now: Callable[[], float]) -> None:
    """Let the emulator's services put their metrics into our store and ask our alarms.

    Reason: its own store ignores dimensions in alarms and knows the machine's time only. AWS/Lambda metrics of functions come this way,
    and AppConfig asks when an alarm went off.
    """
    from ministack.services import cloudwatch

    def record(namespace: str, metric_name: str, value: float, unit: str = "None", dimensions: Mapping[str, str] | None = None) -> None:
        store.put(namespace, metric_name, dimensions or {}, [value], unit=unit, timestamp=now())

    def first_alarm(arn: str, start: float, end: float) -> float | None:
        """The first moment between two in which the alarm was in ALARM."""
        changes = [item for item in alarms.history if item.kind == "StateUpdate" and alarms.arn(item.alarm) == arn]
        before = [item for item in changes if item.at <= start]
        if before and before[-1].data["newState"]["stateValue"] == "ALARM":
            return start
        inside = (item.at for item in changes if start < item.at <= end and item.data["newState"]["stateValue"] == "ALARM")
        return next(inside, None)

    cloudwatch.record_metric = record
    cloudwatch.first_alarm_time = first_alarm
