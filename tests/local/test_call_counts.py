"""How often AWS was called, as the local cloud counts it."""

from __future__ import annotations

import json

import pytest

from mme_local.call_counts import operation_of


@pytest.mark.parametrize(
    ("operation", "method", "path", "headers", "query"),
    [
        ("PutObject", "PUT", "/b/k", {}, {}),
        ("CopyObject", "PUT", "/b/k", {"x-amz-copy-source": "b/o"}, {}),
        ("UploadPart", "PUT", "/b/k/l", {}, {"partNumber": ["1"], "uploadId": ["u"]}),
        ("UploadPartCopy", "PUT", "/b/k", {"x-amz-copy-source": "b/o"}, {"partNumber": ["1"], "uploadId": ["u"]}),
        ("CreateMultipartUpload", "POST", "/b/k", {}, {"uploads": [""]}),
        ("CompleteMultipartUpload", "POST", "/b/k", {}, {"uploadId": ["u"]}),
        ("AbortMultipartUpload", "DELETE", "/b/k", {}, {"uploadId": ["u"]}),
        ("ListMultipartUploads", "GET", "/b", {}, {"uploads": [""]}),
        ("ListObjectsV2", "GET", "/b", {}, {"list-type": ["2"]}),
        ("DeleteObjects", "POST", "/b", {}, {"delete": [""]}),
        ("CreateBucket", "PUT", "/b", {}, {}),
        ("GetObject", "GET", "/b/k", {}, {}),
        ("PATCH", "PATCH", "/b/k", {}, {}),
    ],
)
def test_operations_of_s3_are_told_by_method_and_parameters(operation, method, path, headers, query):
    assert operation_of("s3", method, path, headers, query) == operation


def test_every_call_is_counted_once_where_it_belongs(bench):
    bucket = bench.name("bucket")
    assert bench.cloud.calls() == {"calls": {}, "by_services": {}}
    s3, tables = bench.client("s3"), bench.client("dynamodb")
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="a", Body=b"1")
    s3.get_object(Bucket=bucket, Key="a")
    s3.get_object(Bucket=bucket, Key="a")
    tables.list_tables()
    bench.client("sagemaker").list_models()
    assert bench.cloud.calls()["calls"] == {
        "s3": {"CreateBucket": 1, "PutObject": 1, "GetObject": 2},
        "dynamodb": {"ListTables": 1},
        "sagemaker": {"ListModels": 1},
    }


def test_executions_of_a_function_count_however_they_come(bench):
    function = bench.function("def handler(event, context): return 1")
    before = bench.cloud.calls()["calls"].get("lambda", {}).get("Invoke", 0)
    assert bench.invoke(function) == 1
    bench.client("lambda").invoke(FunctionName=function, InvocationType="Event", Payload=json.dumps({}).encode())
    bench.wait_for(lambda: bench.cloud.calls()["calls"]["lambda"]["Invoke"] - before == 2)
    assert bench.cloud.calls()["calls"]["lambda"]["POST"] == 1, "CreateFunction, no Invoke"
