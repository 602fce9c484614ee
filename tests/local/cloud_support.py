"""What tests of a cloud's start and end, and programs of theirs, share: resources that start processes, and a look at what is left."""

from __future__ import annotations

import io
import json
import socket
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import psutil


def wait_until(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def port_of(cloud):
    return int(cloud.endpoint_url.rsplit(":", 1)[1])


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start_a_function(cloud):
    """Leave a warm Lambda worker behind, a process of the gateway's."""
    role = cloud.client("iam").create_role(
        RoleName="r",
        AssumeRolePolicyDocument=json.dumps(
            {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}],
            }
        ),
    )["Role"]["Arn"]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("index.py", "def handler(event, context):\n    print('here')\n    return 1\n")
    functions = cloud.client("lambda")
    functions.create_function(
        FunctionName="f", Runtime="python3.13", Role=role, Handler="index.handler", Code={"ZipFile": packed.getvalue()}
    )
    functions.get_waiter("function_active_v2").wait(FunctionName="f", WaiterConfig={"Delay": 0.1, "MaxAttempts": 100})
    assert functions.invoke(FunctionName="f")["Payload"].read() == b"1"


def start_an_endpoint(cloud, image="683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"):
    """Leave a model server behind, which has a process group of its own."""
    trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    role = cloud.client("iam").create_role(RoleName="e", AssumeRolePolicyDocument=document)["Role"]["Arn"]
    sagemaker = cloud.client("sagemaker")
    container = {"Image": image, "Mode": "MultiModel", "ModelDataUrl": "s3://bucket/models/"}
    sagemaker.create_model(ModelName="m", ExecutionRoleArn=role, PrimaryContainer=container)
    variant = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    wait_until(lambda: sagemaker.describe_endpoint(EndpointName="e")["EndpointStatus"] == "InService")


def processes_in(directory: Path):
    """Processes that work in a folder: a gateway, its Lambda workers and its model servers."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(directory):
                found.append(process)
    return found
