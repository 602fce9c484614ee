"""Our services of the local cloud, wired together on the gateway's event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mme_local import emulator_clock, emulator_queues
from mme_local.administration import Administration
from mme_local.artifacts import RoleArtifacts
from mme_local.autoscaling.capacity import SageMakerCapacity
from mme_local.autoscaling.engine import Scaler
from mme_local.autoscaling.models import AutoScaling
from mme_local.autoscaling.responses import AutoScalingApi
from mme_local.call_counts import CallCounts
from mme_local.clock import CloudClock
from mme_local.cloudformation.types import register
from mme_local.cloudwatch.actions import connect
from mme_local.cloudwatch.alarms import Alarms
from mme_local.cloudwatch.emulator import EmulatorMessenger, take_over
from mme_local.cloudwatch.responses import MonitoringApi
from mme_local.cloudwatch.store import MetricStore
from mme_local.console.activity import Activity
from mme_local.console.feed import Feed
from mme_local.console.sources import follow
from mme_local.console.status import Status
from mme_local.console.stream import Stream
from mme_local.credentials import Credentials
from mme_local.emulator import AccessDeniedError, assume_service_role, deliver_event
from mme_local.events import Events
from mme_local.faults import Faults
from mme_local.images import ImageStore
from mme_local.logs.emulator import events_of, extract_metrics, serve_queries
from mme_local.logs.queries import QueryRuns
from mme_local.loop import LoopBridge
from mme_local.metrics.control_plane import variants_of
from mme_local.metrics.publisher import EndpointMetrics
from mme_local.routing import Application, Gateway
from mme_local.sagemaker.models import SageMaker
from mme_local.sagemaker.responses import ControlPlane
from mme_local.sagemaker.runtime import Runtime
from mme_local.settings import ACCOUNT, REGION, LocalSettings
from mme_local.wire import ValidationError

if TYPE_CHECKING:
    from mme_local.dataplane import DataPlane

__all__ = ["Services"]

logger = logging.getLogger(__name__)

_SAGEMAKER = "sagemaker.amazonaws.com"


class Services:
    """SageMaker, Application Auto Scaling and their CloudFormation types.

    Args:
        directory: where the data plane may write; exists.
        images: the images that the Docker stand-in has pushed.
        settings: the cloud's settings.
        endpoint_url: the gateway itself.
        reset_emulator: forgets the emulator's state and creates the administrator again.
        loop: the running loop.
    """

    def __init__(
        self,
        directory: Path,
        images: ImageStore,
        settings: LocalSettings,
        endpoint_url: str,
        reset_emulator: Callable[[], Awaitable[None]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._directory, self._settings, self._endpoint_url, self._reset_emulator = directory, settings, endpoint_url, reset_emulator
        self._bridge = LoopBridge(loop)
        self._data_plane: DataPlane | None = None
        self._clock = CloudClock(settings.clock_scale)
        emulator_clock.follow(self._clock)
        self._calls = CallCounts()
        emulator_queues.apply(settings.asynchronous_executions, lambda: self._calls.add("lambda", "Invoke"))
        self._faults = Faults(lambda: self._data_plane.instances() if self._data_plane else (), self._clock.jump)
        self._events = Events(
            deliver_event, now=self._clock.time, duplicate_share=settings.duplicate_event_share, copies=self._faults.event_copies
        )
        self._feed = Feed(self._clock.time)
        self._activity = Activity(
            self._feed,
            self._born,
            time.time,
            settings.data_plane.fleet_settings().memory_bytes,
            caches=lambda fleet: self._data_plane is None or self._data_plane.caches(fleet),
        )
        self._metrics = MetricStore(self._clock.time)
        self._alarms = Alarms(self._metrics, self._clock, region=REGION, account=ACCOUNT)
        connect(self._alarms, EmulatorMessenger(), self._events.publish, region=REGION, account=ACCOUNT)
        take_over(self._metrics, self._alarms, self._clock.time)
        self._queries = QueryRuns(events_of, self._clock.time)
        serve_queries(self._queries)
        extract_metrics(self._metrics, self._clock.time)
        self._evaluating = loop.create_task(self._alarms.run(), name="alarms")
        self._sagemaker = SageMaker(
            region=REGION,
            account=ACCOUNT,
            fleets=self._fleets,
            artifacts=self._artifacts,
            check_role=_check_role,
            clock=self._clock,
            instance_limit=settings.instance_limit,
            settings=settings.control_plane,
            image=images.pushed,
            publish=self._events.publish,
            alarms=self._alarm_states,
            capacity=self._faults.capacity,
        )
        self._endpoint_metrics = EndpointMetrics(
            self._metrics,
            self._clock,
            variants=lambda: variants_of(self._sagemaker),
            owner=self._sagemaker.owner,
            use=lambda: self._data_plane.use() if self._data_plane else [],
            names=lambda: self._data_plane.names() if self._data_plane else [],
        )
        self._endpoint_metrics.start()
        capacity = SageMakerCapacity(self._sagemaker)
        self._sagemaker.components.on_missing_capacity(lambda _endpoint, component: self._endpoint_metrics.refused(component))
        self._autoscaling = AutoScaling(
            region=REGION,
            account=ACCOUNT,
            variant_exists=self._variant_exists,
            component_exists=lambda name: name in self._sagemaker.components.by_name,
            now=self._clock.now,
            alarms=self._alarms,
            refusal=capacity.refusal,
        )
        self._scaler = Scaler(self._autoscaling, capacity, self._alarms, self._clock, self._events.publish)
        self._alarms.on_action("arn:aws:autoscaling:", self._scaler.on_alarm, repeated=True)
        self._scaler.start()
        self._asked_faults = self._faults if settings.faults else None
        self._status = Status(
            sagemaker=self._sagemaker,
            data_plane=lambda: self._data_plane,
            autoscaling=self._autoscaling,
            activities=self._scaler.activities,
            alarms=self._alarms,
            activity=self._activity,
            feed=self._feed,
            clock=self._clock,
            faults=self._asked_faults,
        )
        self._stream = Stream(self._feed, self._activity)
        follow(self._feed, self._events, self._alarms, self._scaler.activities)
        register(self._sagemaker, self._autoscaling, self._alarms, self._bridge)

    def application(self, emulator: Application) -> Gateway:
        """The ASGI application that serves ours in front of the emulator's."""
        return Gateway(
            emulator,
            control_plane=ControlPlane(self._sagemaker),
            runtime=Runtime(self._sagemaker, self._faults, self._endpoint_metrics),
            autoscaling=AutoScalingApi(self._autoscaling, self._scaler.activities),
            monitoring=MonitoringApi(self._alarms, self._metrics, self._clock.time, region=REGION, account=ACCOUNT),
            administration=Administration(self._status, self._stream, self._calls, self.reset, self._asked_faults),
            faults=self._faults,
            calls=self._calls,
        )

    async def end_streams_at(self, stop: asyncio.Event) -> None:
        """Let the readers of the live stream go when the gateway is told to stop, which waits for open answers."""
        await stop.wait()
        self._stream.end()

    async def reset(self) -> None:
        """Stop all fleets and forget everything, here and in the emulator; faults end."""
        self._faults.clear()
        await self._scaler.clear()
        await self._sagemaker.close()
        self._autoscaling.clear()
        self._alarms.clear()
        self._endpoint_metrics.clear()
        self._activity.clear()
        self._feed.put("reset")
        self._metrics.clear()
        self._queries.clear()
        self._calls.clear()
        await self._reset_emulator()

    async def close(self) -> None:
        """End the fleets and the Lambda workers."""
        from ministack.core import lambda_runtime

        self._stream.end()
        self._evaluating.cancel()
        self._queries.close()
        await self._scaler.stop()
        await self._endpoint_metrics.stop()
        await self._sagemaker.close()
        if self._data_plane is not None:
            await self._data_plane.close()
        try:
            await asyncio.to_thread(lambda_runtime.reset)
        except Exception:
            logger.exception("the functions' workers could not be ended")

    def _fleets(self) -> DataPlane:
        if self._data_plane is None:
            # Loaded with the first endpoint: most of a cloud's start would be this import.
            from mme_local.dataplane import DataPlane

            self._data_plane = DataPlane(
                self._directory,
                self._settings.data_plane,
                observers=[self._sagemaker, self._endpoint_metrics, self._activity],
                faults=self._faults,
            )
        return self._data_plane

    def _artifacts(self, bucket: str, role_arn: str, endpoint_name: str) -> RoleArtifacts:
        def assume() -> Credentials:
            return self._bridge.call(lambda: assume_service_role(role_arn, _SAGEMAKER, f"SageMaker-{endpoint_name}"))

        return RoleArtifacts(self._endpoint_url, REGION, bucket, assume)

    def _born(self, endpoint_name: str) -> object:
        endpoint = self._sagemaker.endpoints.get(endpoint_name)
        return None if endpoint is None else endpoint.created

    def _alarm_states(self, names: Sequence[str]) -> dict[str, str]:
        known = self._alarms.describe(names, kinds=("MetricAlarm", "CompositeAlarm"))
        return {alarm["AlarmName"]: alarm["StateValue"] for alarm in known}

    def _variant_exists(self, endpoint_name: str, variant_name: str) -> bool:
        endpoint = self._sagemaker.endpoints.get(endpoint_name)
        return endpoint is not None and endpoint.variant(variant_name) is not None


def _check_role(role_arn: str) -> None:
    try:
        assume_service_role(role_arn, _SAGEMAKER, "SageMaker")
    except AccessDeniedError as error:
        raise ValidationError(error.message) from None
