"""SageMaker's control plane over a data plane of the tests' own, and short ways to fill it."""

from __future__ import annotations

import asyncio

from mme_local.clock import CloudClock
from mme_local.dataplane import InvokeReply, InvokeRequest, StartFailed, UnknownFleet
from mme_local.sagemaker.models import SageMaker
from mme_local.sagemaker.settings import ControlPlaneSettings
from mme_local.wire import AwsError

ROLE = "arn:aws:iam::000000000000:role/execution"
AT_ONCE = ControlPlaneSettings(0, 0, 0, 0, 0, 0, alarm_poll_seconds=0.01)
"""Only the waits of deployment policies take time; `CloudClock.jump` ends them."""
IMAGE = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"


class MemoryFleets:
    """A data plane that keeps counts and answers with the fleet's name."""

    def __init__(self):
        self.fleets, self.history, self.specs = {}, [], {}
        self.fail_with = self.failing = self.unstoppable = None
        self.stop_gate = asyncio.Event()
        self.stop_gate.set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.answer_gate = asyncio.Event()
        self.answer_gate.set()

    async def start_fleet(self, spec, artifacts):
        self.history.append(("start", spec.endpoint_name))
        await self.gate.wait()
        if self.fail_with:
            raise StartFailed(self.fail_with)
        if spec.endpoint_name == self.failing:
            raise StartFailed(f"{self.failing} failed")
        self.fleets[spec.endpoint_name] = spec.instance_count
        self.specs[spec.endpoint_name] = spec

    async def resize_fleet(self, endpoint_name, instance_count):
        await self.gate.wait()
        if self.fail_with:
            raise StartFailed(self.fail_with)
        self.fleets[endpoint_name] = instance_count

    async def stop_fleet(self, endpoint_name):
        if endpoint_name not in self.fleets:
            raise UnknownFleet(endpoint_name)
        await self.stop_gate.wait()
        if endpoint_name == self.unstoppable:
            raise OSError(f"{endpoint_name} does not stop")
        self.history.append(("stop", endpoint_name))
        del self.fleets[endpoint_name]

    async def invoke(self, endpoint_name, request):
        await self.answer_gate.wait()
        if endpoint_name not in self.fleets:
            raise UnknownFleet(endpoint_name)
        return InvokeReply(200, endpoint_name.encode(), "text/csv", "i-1", False)

    def status(self):
        return []


class Double:
    """A SageMaker with everything around it in the test's hands."""

    def __init__(self, *, scale=1.0, settings=AT_ONCE, **options):
        self.fleets, self.alarms, self.told, self.chances, self.images = MemoryFleets(), {}, [], [], {}
        self.no_capacity = None
        self.clock = CloudClock(scale)
        self.sagemaker = SageMaker(
            region="us-east-1",
            account="000000000000",
            fleets=lambda: self.fleets,
            artifacts=lambda bucket, role, endpoint: (bucket, role, endpoint),
            check_role=check_role,
            clock=self.clock,
            image=self.images.get,
            chance=lambda: self.chances.pop(0) if self.chances else 0.0,
            alarms=lambda names: {name: self.alarms[name] for name in names if name in self.alarms},
            publish=lambda kind, detail, _resources: self.told.append((kind, detail)),
            capacity=self._capacity,
            settings=settings,
            **{"instance_limit": 10, **options},
        )

    def _capacity(self, _endpoint):
        if self.no_capacity:
            raise StartFailed(self.no_capacity)

    def statuses(self):
        """The statuses of endpoints that were told, one after the other."""
        return [detail["EndpointStatus"] for kind, detail in self.told if kind == "SageMaker Endpoint State Change"]


def check_role(arn):
    if arn != ROLE:
        raise AwsError("ValidationException", f"Could not assume role {arn}.")


def model(name="m", **container):
    given = {"Image": IMAGE, "Mode": "MultiModel", "ModelDataUrl": "s3://bucket/models/", **container}
    return {"ModelName": name, "ExecutionRoleArn": ROLE, "PrimaryContainer": given}


def config(name, count=2, model_name="m", variant="AllTraffic"):
    given = {"VariantName": variant, "ModelName": model_name, "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": count}
    return {"EndpointConfigName": name, "ProductionVariants": [given]}


def created(sagemaker, count=2):
    sagemaker.create_model(model())
    sagemaker.create_endpoint_config(config("first", count))
    return sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})


async def body(sagemaker, endpoint, variant=None):
    """What answered: the name of a fleet."""
    run = sagemaker.hosting.choose(endpoint, variant).run
    return (await sagemaker.hosting.ask(run, InvokeRequest(b"", "t"))).body


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 20))
