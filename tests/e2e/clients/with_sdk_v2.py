"""A program on the SageMaker Python SDK v2: `MultiDataModel` as its documentation shows it. Writes what it saw, as JSON."""

import json
import sys
import time
from pathlib import Path

import boto3
from botocore.exceptions import ClientError
from sagemaker import Session
from sagemaker.deserializers import CSVDeserializer
from sagemaker.multidatamodel import MultiDataModel
from sagemaker.predictor import Predictor
from sagemaker.serializers import CSVSerializer

given = json.load(sys.stdin)
session = Session(boto3.Session(), default_bucket=given["bucket"])


def failure(call):
    try:
        call()
    except ClientError as error:
        return type(error).__name__, error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    return "no error"


def settle():
    while (described := session.describe_endpoint("sdk2"))["EndpointStatus"] in ("Creating", "Updating"):
        time.sleep(0.2)
    return described


shared = MultiDataModel(
    name="sdk2",
    model_data_prefix=given["prefix"],
    image_uri=given["image"],
    role=given["role"],
    sagemaker_session=session,
    predictor_cls=Predictor,
)
predictor = shared.deploy(
    initial_instance_count=1,
    instance_type="ml.m5.xlarge",
    serializer=CSVSerializer(),
    deserializer=CSVDeserializer(),
    wait=False,  # its own waiter looks every 30 seconds
)
settle()
said = {
    "before": sorted(shared.list_models()),
    "uploaded": shared.add_model(given["artifact"], "sdk2/uploaded.tar.gz"),
    "copied": shared.add_model(given["prefix"] + given["target"], "sdk2/copied.tar.gz"),
    "status": session.describe_endpoint("sdk2")["EndpointStatus"],
}
said["after"] = sorted(shared.list_models())
said["predictions"] = [
    predictor.predict(given["row"], target_model=target) for target in (given["target"], "sdk2/uploaded.tar.gz", "sdk2/copied.tar.gz")
]
said["missing artifact"] = failure(lambda: predictor.predict(given["row"], target_model="sdk2/none.tar.gz"))
said["bad body"] = failure(lambda: predictor.predict("no,numbers", target_model=given["target"]))
predictor.update_endpoint(initial_instance_count=2, instance_type="ml.m5.xlarge", wait=False)  # makes a config of its own
said["updated"] = settle()["ProductionVariants"][0]["CurrentInstanceCount"]
predictor.delete_endpoint(delete_endpoint_config=True)
session.delete_endpoint_config("sdk2")
shared.delete_model()
said["deleted"] = failure(lambda: session.sagemaker_client.describe_model(ModelName="sdk2"))
Path(sys.argv[1]).write_text(json.dumps(said))
