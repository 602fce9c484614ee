"""A program on sagemaker-core, the base of SDK v3: makes a multi-model endpoint, invokes, updates and deletes it. Writes what it saw."""

import json
import sys
import time
from pathlib import Path

from botocore.exceptions import ClientError
from sagemaker.core.resources import Endpoint, EndpointConfig, Model
from sagemaker.core.shapes import ContainerDefinition, MultiModelConfig, ProductionVariant

given = json.load(sys.stdin)


def failure(call):
    try:
        call()
    except ClientError as error:
        return type(error).__name__, error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    return "no error"


def predict(endpoint, target, body=given["row"]):
    answer = endpoint.invoke(body=body.encode(), content_type="text/csv", accept="text/csv", target_model=target)
    return answer.body.read().decode(), answer.invoked_production_variant


def settle(endpoint):
    endpoint.refresh()
    while endpoint.endpoint_status in ("Creating", "Updating"):
        time.sleep(0.2)
        endpoint.refresh()


Model.create(
    model_name="core",
    execution_role_arn=given["role"],
    primary_container=ContainerDefinition(
        image=given["image"],
        mode="MultiModel",
        model_data_url=given["prefix"],
        multi_model_config=MultiModelConfig(model_cache_setting="Enabled"),
    ),
)
for config, count in (("core", 1), ("core-2", 2)):
    variants = [ProductionVariant(variant_name="AllTraffic", model_name="core", instance_type="ml.m5.xlarge", initial_instance_count=count)]
    EndpointConfig.create(endpoint_config_name=config, production_variants=variants)
Endpoint.create(endpoint_name="core", endpoint_config_name="core")
endpoint = Endpoint.get("core")
settle(endpoint)
said = {
    "status": endpoint.endpoint_status,
    "prediction": predict(endpoint, given["target"]),
    "listed": [entry.endpoint_name for entry in Endpoint.get_all(status_equals="InService")],
    "models": [entry.model_name for entry in Model.get_all(name_contains="core")],
    "mode": Model.get("core").primary_container.mode,
    "missing artifact": failure(lambda: predict(endpoint, "none.tar.gz")),
    "bad body": failure(lambda: predict(endpoint, given["target"], "no,numbers")),
    "config that is there": failure(lambda: EndpointConfig.create(endpoint_config_name="core", production_variants=variants)),
}
endpoint.endpoint_config_name = "core-2"
endpoint.update()
settle(endpoint)
said["updated"] = (endpoint.endpoint_status, endpoint.production_variants[0].current_instance_count)
endpoint.delete()
endpoint.wait_for_delete(poll=1, timeout=120)
for config in ("core", "core-2"):
    EndpointConfig.get(config).delete()
Model.get("core").delete()
said["deleted"] = failure(lambda: Endpoint.get("core"))
Path(sys.argv[1]).write_text(json.dumps(said))
