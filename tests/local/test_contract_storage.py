"""What we rely on in the emulator's S3, DynamoDB and EventBridge: the stale write, the wrong upload and the foreign event are refused."""

from __future__ import annotations

import base64
import hashlib
import json

import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

BODY = b"an artifact"
KEY = {"PK": {"S": "TENANT#acme"}, "SK": {"S": "MODEL#iris"}}
STALE = {"ConditionExpression": "rev = :read", "ExpressionAttributeValues": {":read": {"N": "1"}}}
FRESH = {"ConditionExpression": "rev = :read", "ExpressionAttributeValues": {":read": {"N": "2"}}}


def refused(call, code, status=None):
    with pytest.raises(ClientError) as caught:
        call()
    assert caught.value.response["Error"]["Code"] == code
    if status is not None:
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def checksum(body):
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


@pytest.fixture
def bucket(bench):
    return bench.bucket()


class TestPresignedUpload:
    @pytest.fixture
    def upload(self, bench, bucket):
        """A URL for exactly `BODY`, signed by someone who may put below ``incoming/`` only."""
        writer = bench.user({"Effect": "Allow", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{bucket}/incoming/*"})

        def sign(key="incoming/a", **parameters):
            given = {"Bucket": bucket, "Key": key, "ChecksumSHA256": checksum(BODY), "ContentLength": len(BODY), **parameters}
            url = bench.client("s3", writer).generate_presigned_url("put_object", given, ExpiresIn=60)
            return url, {"x-amz-checksum-sha256": checksum(BODY), "Content-Length": str(len(BODY))}

        return sign

    def test_the_promised_bytes_are_stored(self, bench, bucket, upload):
        url, headers = upload()
        answer = httpx.put(url, content=BODY, headers=headers)
        assert answer.status_code == 200, answer.text
        assert bench.client("s3").get_object(Bucket=bucket, Key="incoming/a")["Body"].read() == BODY

    def test_other_bytes_are_refused(self, bench, bucket, upload):
        url, headers = upload()
        for body in (b"AN artifact", b"short", BODY + b" and more"):
            assert httpx.put(url, content=body, headers={**headers, "Content-Length": str(len(body))}).status_code >= 400
        assert "Contents" not in bench.client("s3").list_objects_v2(Bucket=bucket)

    def test_a_checksum_other_than_the_signed_one_is_refused(self, upload):
        url, headers = upload()
        other = b"other bytes"
        answer = httpx.put(url, content=other, headers={**headers, "x-amz-checksum-sha256": checksum(other)})
        assert answer.status_code == 403

    def test_a_missing_signed_header_is_refused(self, upload):
        url, _headers = upload()
        assert httpx.put(url, content=BODY).status_code == 403

    def test_another_key_or_method_is_refused(self, upload):
        url, headers = upload()
        assert httpx.put(url.replace("incoming/a", "incoming/b"), content=BODY, headers=headers).status_code == 403
        assert httpx.get(url).status_code == 403

    def test_a_key_that_the_signer_may_not_write_is_refused(self, upload):
        url, headers = upload(key="models/a")
        assert httpx.put(url, content=BODY, headers=headers).status_code == 403

    def test_a_conditional_upload_does_not_overwrite(self, bench, bucket, upload):
        bench.client("s3").put_object(Bucket=bucket, Key="incoming/a", Body=b"first")
        url, headers = upload(IfNoneMatch="*")
        assert httpx.put(url, content=BODY, headers={**headers, "If-None-Match": "*"}).status_code == 412


class TestMultipartCopy:
    @pytest.fixture
    def source(self, bench, bucket):
        return bench.client("s3").put_object(Bucket=bucket, Key="incoming/a", Body=BODY)["ETag"]

    def copy(self, bench, bucket, key, etag, **condition):
        s3 = bench.client("s3")
        upload = s3.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        part = s3.upload_part_copy(
            Bucket=bucket,
            Key=key,
            UploadId=upload,
            PartNumber=1,
            CopySource={"Bucket": bucket, "Key": "incoming/a"},
            CopySourceIfMatch=etag,
        )
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["CopyPartResult"]["ETag"]}]}
        return s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload=parts, **condition)

    def test_it_copies(self, bench, bucket, source):
        self.copy(bench, bucket, "models/a", source, IfNoneMatch="*")
        assert bench.client("s3").get_object(Bucket=bucket, Key="models/a")["Body"].read() == BODY

    def test_a_source_that_changed_is_refused(self, bench, bucket, source):
        bench.client("s3").put_object(Bucket=bucket, Key="incoming/a", Body=b"changed")
        refused(lambda: self.copy(bench, bucket, "models/a", source), "PreconditionFailed", 412)

    def test_completing_onto_an_existing_key_is_refused(self, bench, bucket, source):
        self.copy(bench, bucket, "models/a", source, IfNoneMatch="*")
        refused(lambda: self.copy(bench, bucket, "models/a", source, IfNoneMatch="*"), "PreconditionFailed", 412)

    def test_a_put_onto_an_existing_key_is_refused(self, bench, bucket, source):
        refused(
            lambda: bench.client("s3").put_object(Bucket=bucket, Key="incoming/a", Body=b"", IfNoneMatch="*"), "PreconditionFailed", 412
        )

    def test_reading_the_source_needs_permission(self, bench, bucket, source):
        writer = bench.user(
            {"Effect": "Allow", "Action": "s3:*", "Resource": [f"arn:aws:s3:::{bucket}/models/*", f"arn:aws:s3:::{bucket}"]}
        )
        s3 = bench.client("s3", writer)
        upload = s3.create_multipart_upload(Bucket=bucket, Key="models/a")["UploadId"]
        given = {"Bucket": bucket, "Key": "models/a", "UploadId": upload, "PartNumber": 1}
        refused(lambda: s3.upload_part_copy(**given, CopySource={"Bucket": bucket, "Key": "incoming/a"}), "AccessDenied", 403)


class TestUploadInParts:
    PART = 5 << 20

    @pytest.fixture
    def upload(self, bench, bucket):
        """An upload by someone who may put below ``incoming/`` only, and its presigned parts."""
        writer = bench.user({"Effect": "Allow", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{bucket}/incoming/*"})
        client = bench.client("s3", writer)
        # boto3 signs queries with the older version unless it is told; only version 4 pins headers.
        signer = bench.cloud.client("s3", writer, config=Config(signature_version="s3v4"))
        given = {"Bucket": bucket, "Key": "incoming/a"}
        given["UploadId"] = client.create_multipart_upload(**given)["UploadId"]

        def put(number, body, *, sent=None, replacing=("", "")):
            parameters = {**given, "PartNumber": number, "ContentLength": len(body)}
            url = signer.generate_presigned_url("upload_part", parameters, ExpiresIn=60)
            return httpx.put(url.replace(*replacing), content=body if sent is None else sent)

        return client, given, put

    def complete(self, client, given, *parts, **condition):
        named = {"Parts": [{"PartNumber": number, "ETag": tag} for number, tag in parts]}
        return client.complete_multipart_upload(**given, MultipartUpload=named, **condition)

    def test_parts_become_one_object(self, bench, bucket, upload):
        client, given, put = upload
        tags = [(number, put(number, body).headers["etag"]) for number, body in ((2, b"end"), (1, bytes(self.PART)))]
        listed = bench.client("s3").list_parts(**given)["Parts"]
        assert [(part["PartNumber"], part["Size"], part["ETag"]) for part in listed] == [(1, self.PART, tags[1][1]), (2, 3, tags[0][1])]
        self.complete(client, given, *sorted(tags), IfNoneMatch="*", MpuObjectSize=self.PART + 3)
        assert bench.client("s3").get_object(Bucket=bucket, Key="incoming/a")["Body"].read() == bytes(self.PART) + b"end"
        refused(lambda: bench.client("s3").list_parts(**given), "NoSuchUpload", 404)

    def test_a_presigned_part_takes_its_size_number_and_key_only(self, upload):
        _client, _given, put = upload
        assert put(1, BODY, sent=BODY + b"more").status_code == 403
        assert put(1, BODY, replacing=("partNumber=1", "partNumber=2")).status_code == 403
        assert put(1, BODY, replacing=("incoming/a", "incoming/b")).status_code == 403
        assert put(1, BODY).status_code == 200

    def test_missing_and_replaced_parts_are_refused(self, upload):
        client, given, put = upload
        tag = put(1, bytes(self.PART)).headers["etag"]
        refused(lambda: self.complete(client, given, (1, tag), (2, tag)), "InvalidPart", 400)
        put(1, b"1" * self.PART)
        refused(lambda: self.complete(client, given, (1, tag)), "InvalidPart", 400)

    def test_another_size_than_declared_is_refused(self, upload):
        client, given, put = upload
        tag = put(1, BODY).headers["etag"]
        refused(lambda: self.complete(client, given, (1, tag), MpuObjectSize=len(BODY) + 1), "InvalidRequest", 400)

    def test_parts_out_of_order_and_small_parts_before_the_last_are_refused(self, upload):
        client, given, put = upload
        small, last = put(1, BODY).headers["etag"], put(2, BODY).headers["etag"]
        refused(lambda: self.complete(client, given, (2, last), (1, small)), "InvalidPartOrder", 400)
        refused(lambda: self.complete(client, given, (1, small), (1, small)), "InvalidPartOrder", 400)
        refused(lambda: self.complete(client, given, (1, small), (2, last)), "EntityTooSmall", 400)
        refused(lambda: self.complete(client, given), "MalformedXML", 400)
        self.complete(client, given, (2, last))

    def test_an_object_that_is_there_is_not_replaced(self, bench, bucket, upload):
        client, given, put = upload
        tag = put(1, BODY).headers["etag"]
        bench.client("s3").put_object(Bucket=bucket, Key="incoming/a", Body=b"first")
        refused(lambda: self.complete(client, given, (1, tag), IfNoneMatch="*"), "PreconditionFailed", 412)

    def test_nothing_reaches_an_upload_that_was_given_up(self, bench, upload):
        client, given, put = upload
        tag = put(1, BODY).headers["etag"]
        refused(lambda: client.abort_multipart_upload(**given), "AccessDenied", 403)
        bench.client("s3").abort_multipart_upload(**given)
        assert put(1, BODY).status_code == 404
        refused(lambda: self.complete(client, given, (1, tag)), "NoSuchUpload", 404)

    def test_listing_parts_needs_its_own_permission(self, bench, bucket, upload):
        client, given, _put = upload
        refused(lambda: client.list_parts(**given), "AccessDenied", 403)
        resource = f"arn:aws:s3:::{bucket}/incoming/*"
        reader = bench.user({"Effect": "Allow", "Action": "s3:ListMultipartUploadParts", "Resource": resource})
        assert "Parts" not in bench.client("s3", reader).list_parts(**given)

    def test_a_copy_reaches_no_upload_of_another_key(self, bench, bucket, upload):
        _client, given, _put = upload
        s3 = bench.client("s3")
        s3.put_object(Bucket=bucket, Key="models/a", Body=BODY)
        other = {**given, "Key": "incoming/b", "PartNumber": 1, "CopySource": {"Bucket": bucket, "Key": "models/a"}}
        refused(lambda: s3.upload_part_copy(**other), "NoSuchUpload", 404)


def test_a_prefix_condition_confines_listing(bench, bucket):
    reader = bench.user(
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": f"arn:aws:s3:::{bucket}",
            "Condition": {"StringLike": {"s3:prefix": "models/*"}},
        }
    )
    s3 = bench.client("s3", reader)
    s3.list_objects_v2(Bucket=bucket, Prefix="models/a")
    for prefix in ({"Prefix": "incoming/"}, {}):
        refused(lambda prefix=prefix: s3.list_objects_v2(Bucket=bucket, **prefix), "AccessDenied")


def test_a_policy_that_demands_tls_is_met_on_loopback_and_one_that_forbids_it_refuses(bench, bucket):
    def deny_if(secure):
        condition = {"Bool": {"aws:SecureTransport": secure}}
        return {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{bucket}/*", "Condition": condition}

    s3 = bench.client("s3")
    for secure in ("false", "true"):
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny_if(secure)]}))
        if secure == "false":
            s3.put_object(Bucket=bucket, Key="a", Body=b"1")
        else:
            refused(lambda: s3.put_object(Bucket=bucket, Key="a", Body=b"2"), "AccessDenied")


class TestConditionalWrites:
    @pytest.fixture
    def table(self, bench):
        dynamodb = bench.client("dynamodb")
        names = ("PK", "SK", "moving", "updated_at")
        dynamodb.create_table(
            TableName="registry",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
            KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "moving",
                    "KeySchema": [{"AttributeName": "moving", "KeyType": "HASH"}, {"AttributeName": "updated_at", "KeyType": "RANGE"}],
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ],
        )
        dynamodb.put_item(TableName="registry", Item={**KEY, "rev": {"N": "2"}})
        return dynamodb

    def test_a_stale_put_is_refused(self, table):
        item = {**KEY, "rev": {"N": "3"}}
        refused(lambda: table.put_item(TableName="registry", Item=item, **STALE), "ConditionalCheckFailedException")
        refused(
            lambda: table.put_item(TableName="registry", Item=item, ConditionExpression="attribute_not_exists(PK)"),
            "ConditionalCheckFailedException",
        )
        table.put_item(TableName="registry", Item=item, **FRESH)

    def test_a_stale_update_or_delete_is_refused(self, table):
        stale = {**STALE, "ExpressionAttributeValues": {":read": {"N": "1"}, ":next": {"N": "3"}}}
        given = {"TableName": "registry", "Key": KEY}
        refused(lambda: table.update_item(**given, UpdateExpression="SET rev = :next", **stale), "ConditionalCheckFailedException")
        refused(lambda: table.delete_item(**given, **STALE), "ConditionalCheckFailedException")
        assert table.get_item(**given)["Item"]["rev"] == {"N": "2"}

    @pytest.mark.parametrize("kind", ["Put", "Update", "Delete", "ConditionCheck"])
    def test_one_stale_condition_cancels_a_transaction(self, table, kind):
        stale = {"TableName": "registry", **STALE}
        if kind == "Put":
            stale["Item"] = {**KEY, "rev": {"N": "3"}}
        else:
            stale["Key"] = KEY
        if kind == "Update":
            stale |= {"UpdateExpression": "SET x = :x", "ExpressionAttributeValues": {":read": {"N": "1"}, ":x": {"N": "1"}}}
        other = {"PK": {"S": "TENANT#acme"}, "SK": {"S": "TENANT"}}
        items = [{"Put": {"TableName": "registry", "Item": other}}, {kind: stale}]
        refused(lambda: table.transact_write_items(TransactItems=items), "TransactionCanceledException")
        assert "Item" not in table.get_item(TableName="registry", Key=other)

    def test_an_index_holds_only_items_with_its_key(self, table):
        moving = {"PK": {"S": "TENANT#acme"}, "SK": {"S": "VERSION#iris#000001"}, "moving": {"S": "yes"}, "updated_at": {"S": "2026"}}
        table.put_item(TableName="registry", Item=moving)
        query = {
            "TableName": "registry",
            "IndexName": "moving",
            "KeyConditionExpression": "moving = :m",
            "ExpressionAttributeValues": {":m": {"S": "yes"}},
        }
        assert [item["SK"]["S"] for item in table.query(**query)["Items"]] == ["VERSION#iris#000001"]
        table.update_item(TableName="registry", Key={"PK": moving["PK"], "SK": moving["SK"]}, UpdateExpression="REMOVE moving")
        assert table.query(**query)["Items"] == []

    def test_a_transaction_is_authorized_by_its_single_actions(self, bench, table):
        arn = table.describe_table(TableName="registry")["Table"]["TableArn"]
        writer = bench.user({"Effect": "Allow", "Action": "dynamodb:PutItem", "Resource": arn})
        put = {"Put": {"TableName": "registry", "Item": {**KEY, "SK": {"S": "TENANT"}}}}
        check = {"ConditionCheck": {"TableName": "registry", "Key": KEY, **FRESH}}
        client = bench.client("dynamodb", writer)
        client.transact_write_items(TransactItems=[put])
        refused(lambda: client.transact_write_items(TransactItems=[put, check]), "AccessDeniedException")
        refused(lambda: client.get_item(TableName="registry", Key=KEY), "AccessDeniedException")


class TestObjectEvents:
    RECORDS = """
        import boto3, json, os
        def handler(event, context):
            key = "seen/" + event["detail"]["object"]["key"]
            boto3.client("s3").put_object(Bucket=os.environ["RESULTS"], Key=key, Body=json.dumps(event))
    """

    def rule(self, bench, bucket, *, permitted=True):
        results = bench.bucket()
        function = bench.function(
            self.RECORDS,
            {"Effect": "Allow", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{results}/*"},
            Environment={"Variables": {"RESULTS": results}},
        )
        bench.client("s3").put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={"EventBridgeConfiguration": {}})
        pattern = {
            "source": ["aws.s3"],
            "detail-type": ["Object Created"],
            "detail": {"bucket": {"name": [bucket]}, "object": {"key": [{"prefix": "incoming/"}]}},
        }
        events = bench.client("events")
        rule = events.put_rule(Name="uploads", EventPattern=json.dumps(pattern))["RuleArn"]
        events.put_targets(Rule="uploads", Targets=[{"Id": "admission", "Arn": function}])
        if permitted:
            bench.client("lambda").add_permission(
                FunctionName=function, StatementId="rule", Action="lambda:InvokeFunction", Principal="events.amazonaws.com", SourceArn=rule
            )
        return function, results

    def seen(self, bench, results):
        return {item["Key"].removeprefix("seen/") for item in bench.client("s3").list_objects_v2(Bucket=results).get("Contents", [])}

    def test_created_objects_below_the_prefix_reach_the_function_and_no_others(self, bench, bucket):
        _function, results = self.rule(bench, bucket)
        s3 = bench.client("s3")
        other = bench.bucket()
        s3.put_object(Bucket=bucket, Key="models/a", Body=b"1")
        s3.put_object(Bucket=other, Key="incoming/other", Body=b"1")
        s3.delete_object(Bucket=bucket, Key="incoming/deleted")
        s3.put_object(Bucket=bucket, Key="incoming/acme/iris/v1 a+b.tar.gz", Body=BODY)
        bench.wait_for(lambda: self.seen(bench, results))
        s3.put_object(Bucket=bucket, Key="incoming/last", Body=b"1")
        bench.wait_for(lambda: "incoming/last" in self.seen(bench, results))
        assert self.seen(bench, results) == {"incoming/acme/iris/v1 a+b.tar.gz", "incoming/last"}
        event = json.load(s3.get_object(Bucket=results, Key="seen/incoming/acme/iris/v1 a+b.tar.gz")["Body"])
        assert event["detail"]["object"]["size"] == len(BODY)
        assert event["detail"]["reason"] == "PutObject"

    def test_a_rule_without_permission_does_not_invoke(self, bench, bucket):
        function, results = self.rule(bench, bucket, permitted=False)
        s3 = bench.client("s3")
        s3.put_object(Bucket=bucket, Key="incoming/first", Body=b"1")
        bench.client("lambda").add_permission(
            FunctionName=function, StatementId="rule", Action="lambda:InvokeFunction", Principal="events.amazonaws.com"
        )
        s3.put_object(Bucket=bucket, Key="incoming/second", Body=b"1")
        bench.wait_for(lambda: "incoming/second" in self.seen(bench, results))
        assert self.seen(bench, results) == {"incoming/second"}

    def test_a_function_that_fails_for_a_rule_is_tried_again_and_ends_in_the_dead_letter_queue(self, bench, bucket):
        queues = bench.client("sqs")
        queue = queues.create_queue(QueueName="dead")["QueueUrl"]
        arn = queues.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        function, _results = self.rule(bench, bucket)
        functions = bench.client("lambda")
        functions.update_function_configuration(
            FunctionName=function, DeadLetterConfig={"TargetArn": arn}, Environment={"Variables": {"RESULTS": "none"}}
        )
        bench.client("s3").put_object(Bucket=bucket, Key="incoming/a", Body=b"1")
        (message,) = bench.wait_for(lambda: queues.receive_message(QueueUrl=queue, WaitTimeSeconds=1).get("Messages"))
        assert json.loads(message["Body"])["requestContext"]["approximateInvokeCount"] == 3


def test_a_template_with_an_unknown_resource_type_is_refused_before_anything_is_created(bench):
    template = {"Resources": {"Bucket": {"Type": "AWS::S3::Bucket"}, "Other": {"Type": "AWS::SageMaker::NotebookInstance"}}}
    cloudformation = bench.client("cloudformation")
    with pytest.raises(ClientError, match="Unrecognized resource types"):
        cloudformation.create_stack(StackName="unknown", TemplateBody=json.dumps(template))
    assert bench.client("s3").list_buckets()["Buckets"] == []
