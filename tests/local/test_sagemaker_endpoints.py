"""The life of an endpoint, against a data plane of the tests' own."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from mme_local.images import Image
from mme_local.wire import AwsError
from tests.local.sagemaker_double import IMAGE, ROLE, Double, body, config, created, model, run


@pytest.fixture
def double():
    return Double()


@pytest.fixture
def fleets(double):
    return double.fleets


@pytest.fixture
def chances(double):
    """The numbers that decide where requests go."""
    return double.chances


@pytest.fixture
def images(double):
    """What is known of images by their URI."""
    return double.images


@pytest.fixture
def sagemaker(double):
    return double.sagemaker


class TestCreating:
    def test_an_endpoint_serves_when_its_fleet_does(self, sagemaker, fleets):
        async def scenario():
            fleets.gate.clear()
            endpoint = created(sagemaker)
            assert endpoint.status == "Creating"
            fleets.gate.set()
            await endpoint.settled.wait()
            assert (endpoint.status, endpoint.failure_reason) == ("InService", None)
            assert (endpoint.variants[0].current_count, endpoint.variants[0].desired_count) == (2, 2)

        run(scenario())

    def test_a_fleet_that_fails_fails_the_endpoint_with_the_reason(self, sagemaker, fleets):
        async def scenario():
            fleets.fail_with = "no server for this image"
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            assert (endpoint.status, endpoint.failure_reason) == ("Failed", "no server for this image")
            sagemaker.delete_endpoint("shared")
            await endpoint.settled.wait()
            assert not sagemaker.endpoints

        run(scenario())

    def test_names_are_unique_whatever_their_case(self, sagemaker):
        async def scenario():
            created(sagemaker)
            with pytest.raises(AwsError, match="Cannot create already existing endpoint"):
                sagemaker.create_endpoint({"EndpointName": "SHARED", "EndpointConfigName": "first"})

        run(scenario())

    def test_more_instances_than_the_limit_are_refused(self, sagemaker):
        async def scenario():
            created(sagemaker, count=5)
            sagemaker.create_endpoint_config(config("large", 6))
            with pytest.raises(AwsError, match=r"service limit 'ml\.m5\.xlarge for endpoint usage' is 10 Instances") as caught:
                sagemaker.create_endpoint({"EndpointName": "second", "EndpointConfigName": "large"})
            assert caught.value.code == "ResourceLimitExceeded"

        run(scenario())

    def test_a_single_model_is_a_fleet_of_one_key(self, sagemaker, fleets):
        async def scenario():
            container = {"Image": IMAGE, "ModelDataUrl": "s3://bucket/some/one.tar.gz"}
            sagemaker.create_model({"ModelName": "m", "ExecutionRoleArn": ROLE, "PrimaryContainer": container})
            sagemaker.create_endpoint_config(config("first"))
            endpoint = sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})
            await endpoint.settled.wait()
            spec = fleets.specs["shared.1.AllTraffic"]
            assert (endpoint.status, endpoint.variants[0].single_model) == ("InService", True)
            assert (spec.bucket, spec.models_prefix, spec.model_key, spec.memory_bytes) == ("bucket", "", "some/one.tar.gz", None)

        run(scenario())

    @pytest.mark.parametrize(
        ("container", "text"),
        [
            ({"Image": IMAGE, "ModelDataSource": {"S3DataSource": {"S3Uri": "s3://bucket/folder/"}}}, "uncompressed model data"),
            ({"ModelPackageName": "arn:aws:sagemaker:us-east-1:000000000000:model-package/p"}, "model packages are not served"),
        ],
    )
    def test_a_single_model_that_nothing_can_serve_refuses_with_the_reason(self, sagemaker, fleets, container, text):
        async def scenario():
            sagemaker.create_model({"ModelName": "m", "ExecutionRoleArn": ROLE, "PrimaryContainer": container})
            sagemaker.create_endpoint_config(config("first"))
            endpoint = sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})
            await endpoint.settled.wait()
            assert endpoint.status == "InService"
            assert text in fleets.specs["shared.1.AllTraffic"].refusal

        run(scenario())

    def test_a_pipeline_gets_a_fleet_that_refuses(self, sagemaker, fleets):
        async def scenario():
            first = {"Image": "x/preprocess:1", "ModelDataUrl": "s3://bucket/one.tar.gz"}
            given = {"ModelName": "m", "ExecutionRoleArn": ROLE, "Containers": [first, model()["PrimaryContainer"]]}
            sagemaker.create_model(given)
            sagemaker.create_endpoint_config(config("first"))
            endpoint = sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})
            await endpoint.settled.wait()
            assert endpoint.status == "InService"
            assert "pipelines are not served" in fleets.specs["shared.1.AllTraffic"].refusal
            assert endpoint.variants[0].images == ("x/preprocess:1", IMAGE)

        run(scenario())


def two_variants(sagemaker, counts=(1, 2), weights=(3.0, 1.0), name="first"):
    if not sagemaker.models:
        sagemaker.create_model(model())
    variants = [
        {**config(name, count, variant=variant)["ProductionVariants"][0], "InitialVariantWeight": weight}
        for variant, count, weight in zip(("A", "B"), counts, weights, strict=True)
    ]
    sagemaker.create_endpoint_config({"EndpointConfigName": name, "ProductionVariants": variants})


class TestVariants:
    def test_each_variant_has_a_fleet_and_gets_its_share(self, sagemaker, fleets, chances):
        async def scenario():
            two_variants(sagemaker)
            endpoint = sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})
            await endpoint.settled.wait()
            assert fleets.fleets == {"shared.1.A": 1, "shared.1.B": 2}
            chances.extend([0.0, 0.74, 0.76, 0.99])
            answers = [await body(sagemaker, endpoint) for _ in range(4)]
            assert answers == [b"shared.1.A", b"shared.1.A", b"shared.1.B", b"shared.1.B"]
            assert await body(sagemaker, endpoint, "B") == b"shared.1.B"

        run(scenario())

    def test_weights_and_counts_change_one_by_one_and_are_kept(self, sagemaker, fleets, chances):
        async def scenario():
            two_variants(sagemaker)
            endpoint = sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})
            await endpoint.settled.wait()
            changes = [{"VariantName": "A", "DesiredWeight": 0.0}, {"VariantName": "B", "DesiredInstanceCount": 3}]
            sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": changes})
            await endpoint.settled.wait()
            assert fleets.fleets == {"shared.1.A": 1, "shared.1.B": 3}
            chances.append(0.0)
            assert await body(sagemaker, endpoint) == b"shared.1.B"
            two_variants(sagemaker, name="next")
            retain = {"EndpointName": "shared", "EndpointConfigName": "next", "RetainAllVariantProperties": True}
            sagemaker.update_endpoint(retain)
            await endpoint.settled.wait()
            assert fleets.fleets == {"shared.2.A": 1, "shared.2.B": 3}
            assert [variant.current_weight for variant in endpoint.variants] == [0.0, 1.0]

        run(scenario())

    def test_one_fleet_that_fails_fails_all(self, sagemaker, fleets):
        async def scenario():
            two_variants(sagemaker)
            fleets.failing = "shared.1.B"
            endpoint = sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})
            await endpoint.settled.wait()
            assert (endpoint.status, endpoint.failure_reason, fleets.fleets) == ("Failed", "shared.1.B failed", {})

        run(scenario())

    def test_all_variants_count_against_the_instance_limit(self, sagemaker):
        async def scenario():
            two_variants(sagemaker, counts=(6, 5))
            with pytest.raises(AwsError, match="request delta of 11 Instances"):
                sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})

        run(scenario())


class TestUpdating:
    def test_a_new_configuration_brings_a_new_fleet_before_the_old_one_goes(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            sagemaker.create_endpoint_config(config("next", 1))
            sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "next"})
            assert endpoint.status == "Updating"
            assert await body(sagemaker, endpoint) == b"shared.1.AllTraffic"
            await endpoint.settled.wait()
            assert fleets.history == [("start", "shared.1.AllTraffic"), ("start", "shared.2.AllTraffic"), ("stop", "shared.1.AllTraffic")]
            assert fleets.fleets == {"shared.2.AllTraffic": 1}
            assert (endpoint.status, endpoint.config_name, endpoint.variants[0].current_count) == ("InService", "next", 1)

        run(scenario())

    def test_a_request_under_way_is_answered_by_the_old_fleet(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            fleets.answer_gate.clear()
            request = asyncio.create_task(body(sagemaker, endpoint))
            await asyncio.sleep(0)
            sagemaker.create_endpoint_config(config("next"))
            sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "next"})
            while endpoint.config_name == "first":
                await asyncio.sleep(0)
            assert "shared.1.AllTraffic" in fleets.fleets
            fleets.answer_gate.set()
            assert await request == b"shared.1.AllTraffic"
            await endpoint.settled.wait()
            assert set(fleets.fleets) == {"shared.2.AllTraffic"}

        run(scenario())

    def test_a_new_fleet_that_fails_leaves_the_old_one_serving(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            sagemaker.create_endpoint_config(config("next"))
            fleets.fail_with = "no memory"
            sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "next"})
            await endpoint.settled.wait()
            assert (endpoint.status, endpoint.config_name, endpoint.failure_reason) == ("InService", "first", "no memory")
            assert await body(sagemaker, endpoint) == b"shared.1.AllTraffic"
            fleets.fail_with = None
            sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "next"})
            await endpoint.settled.wait()
            assert (endpoint.config_name, endpoint.failure_reason) == ("next", None)

        run(scenario())

    @pytest.mark.parametrize(
        ("retain", "count"),
        [
            ({}, 1),
            ({"RetainAllVariantProperties": True}, 4),
            (
                {
                    "RetainAllVariantProperties": True,
                    "ExcludeRetainedVariantProperties": [{"VariantPropertyType": "DesiredInstanceCount"}],
                },
                1,
            ),
        ],
    )
    def test_the_instance_count_is_kept_only_if_asked(self, sagemaker, retain, count):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 4}
            sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": [change]})
            await endpoint.settled.wait()
            sagemaker.create_endpoint_config(config("next", 1))
            sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "next", **retain})
            await endpoint.settled.wait()
            assert endpoint.variants[0].current_count == count

        run(scenario())

    def test_one_change_at_a_time(self, sagemaker, fleets):
        async def scenario():
            fleets.gate.clear()
            endpoint = created(sagemaker)
            change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 3}
            for call in (
                lambda: sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"}),
                lambda: sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": [change]}),
                lambda: sagemaker.delete_endpoint("shared"),
            ):
                with pytest.raises(AwsError, match="Cannot update in-progress endpoint"):
                    call()
            fleets.gate.set()
            await endpoint.settled.wait()

        run(scenario())

    def test_a_resize_that_fails_keeps_the_old_count(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            fleets.fail_with = "no memory"
            change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 3}
            sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": [change]})
            await endpoint.settled.wait()
            assert (endpoint.status, endpoint.variants[0].desired_count, endpoint.failure_reason) == ("InService", 2, "no memory")

        run(scenario())

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"VariantName": "Other", "DesiredInstanceCount": 3}, 'Could not find variant "Other"'),
            ({"VariantName": "AllTraffic", "DesiredInstanceCount": 0}, "at least 1 instance"),
            ({"VariantName": "AllTraffic", "DesiredInstanceCount": 11}, "request delta of 9 Instances"),
        ],
    )
    def test_bad_capacities_are_refused(self, sagemaker, change, text):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            with pytest.raises(AwsError, match=text):
                sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": [change]})
            assert endpoint.status == "InService"

        run(scenario())


class TestEnding:
    def test_deleting_stops_the_fleet_and_forgets_the_endpoint(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            sagemaker.delete_endpoint("shared")
            assert endpoint.status == "Deleting"
            await endpoint.settled.wait()
            assert (sagemaker.endpoints, fleets.fleets) == ({}, {})

        run(scenario())

    def test_closing_ends_what_is_starting_and_what_runs(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            fleets.gate.clear()
            sagemaker.create_endpoint({"EndpointName": "second", "EndpointConfigName": "first"})
            await asyncio.sleep(0)
            await sagemaker.close()
            assert (sagemaker.endpoints, sagemaker.models, fleets.fleets) == ({}, {}, {})
            with suppress(asyncio.CancelledError):
                await endpoint.task

        run(scenario())

    def test_what_is_created_while_everything_is_closed_ends_too(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            fleets.stop_gate.clear()
            closing = asyncio.create_task(sagemaker.close())
            await asyncio.sleep(0.01)
            assert not closing.done()
            with pytest.raises(AwsError, match="Could not find endpoint"):
                sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})
            late = sagemaker.create_endpoint({"EndpointName": "late", "EndpointConfigName": "first"})
            await late.settled.wait()
            assert "late.1.AllTraffic" in fleets.fleets
            fleets.stop_gate.set()
            await closing
            assert (sagemaker.endpoints, fleets.fleets, sagemaker.hosting.owners) == ({}, {}, {})

        run(scenario())

    def test_a_fleet_that_does_not_stop_keeps_neither_the_endpoint_nor_the_other_fleets(self, sagemaker, fleets):
        async def scenario():
            sagemaker.create_model(model())
            one, two = (config("first", 1, variant=name)["ProductionVariants"][0] for name in ("A", "B"))
            sagemaker.create_endpoint_config({"EndpointConfigName": "first", "ProductionVariants": [one, two]})
            endpoint = sagemaker.create_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})
            await endpoint.settled.wait()
            fleets.unstoppable = "shared.1.A"
            sagemaker.delete_endpoint("shared")
            await endpoint.settled.wait()
            assert (sagemaker.endpoints, set(fleets.fleets)) == ({}, {"shared.1.A"})

        run(scenario())

    def test_a_failed_endpoint_leaves_no_owner_of_its_fleets(self, sagemaker, fleets):
        async def scenario():
            fleets.fail_with = "no server for this image"
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            assert (endpoint.status, sagemaker.hosting.owners) == ("Failed", {})

        run(scenario())


class TestDeletingWhatIsUsed:
    def test_a_model_and_a_configuration_in_use_go_and_the_endpoint_serves_and_scales_on(self, sagemaker, fleets):
        async def scenario():
            endpoint = created(sagemaker)
            await endpoint.settled.wait()
            sagemaker.delete_model("m")
            sagemaker.delete_endpoint_config("first")
            assert await body(sagemaker, endpoint) == b"shared.1.AllTraffic"
            change = {"VariantName": "AllTraffic", "DesiredInstanceCount": 3}
            sagemaker.update_weights_and_capacities({"EndpointName": "shared", "DesiredWeightsAndCapacities": [change]})
            await endpoint.settled.wait()
            assert (endpoint.status, fleets.fleets) == ("InService", {"shared.1.AllTraffic": 3})
            with pytest.raises(AwsError, match="Could not find endpoint configuration"):
                sagemaker.update_endpoint({"EndpointName": "shared", "EndpointConfigName": "first"})

        run(scenario())


class TestImages:
    LABEL = "com.amazonaws.sagemaker.capabilities.multi-models"

    @pytest.mark.parametrize("labels", [{}, {LABEL: "false"}, {"other": "true"}])
    def test_a_pushed_image_without_its_label_is_refused(self, sagemaker, images, labels):
        images[IMAGE] = Image("sha256:0", labels)
        with pytest.raises(AwsError, match=rf"does not contain required {self.LABEL}=true Docker label"):
            sagemaker.create_model(model())

    def test_only_multi_model_containers_need_it(self, sagemaker, images):
        images[IMAGE] = Image("sha256:0", {})
        container = {"Image": IMAGE, "ModelDataUrl": "s3://bucket/one.tar.gz"}
        sagemaker.create_model({"ModelName": "m", "ExecutionRoleArn": ROLE, "PrimaryContainer": container})

    def test_a_pipeline_needs_another_one(self, sagemaker, images):
        images["x/first:1"] = Image("sha256:0", {})
        containers = [{"Image": "x/first:1", "ModelDataUrl": "s3://bucket/one.tar.gz"}, model()["PrimaryContainer"]]
        with pytest.raises(AwsError, match="accept-bind-to-port=true Docker label"):
            sagemaker.create_model({"ModelName": "m", "ExecutionRoleArn": ROLE, "Containers": containers})

    def test_its_handler_reaches_the_fleet(self, sagemaker, fleets, images):
        async def scenario():
            images[IMAGE] = Image("sha256:0", {self.LABEL: "true"}, "/context/handler.py:handle")
            await created(sagemaker).settled.wait()
            assert fleets.specs["shared.1.AllTraffic"].handler == "/context/handler.py:handle"

        run(scenario())


class TestModels:
    @pytest.mark.parametrize(
        ("container", "text"),
        [
            ({"ModelDataUrl": "s3://bucket/models/one.tar.gz"}, "must be an S3 prefix"),
            ({"ModelDataUrl": "https://bucket.s3.amazonaws.com/models/"}, "must be an S3 prefix"),
            ({"ModelDataSource": {"S3DataSource": {}}}, "ModelDataSource is not supported"),
        ],
    )
    def test_a_multi_model_container_needs_a_prefix(self, sagemaker, container, text):
        with pytest.raises(AwsError, match=text):
            sagemaker.create_model(model(**container))

    def test_a_model_package_is_refused(self, sagemaker):
        given = model()
        del given["PrimaryContainer"]["Image"]
        given["PrimaryContainer"]["ModelPackageName"] = "arn:aws:sagemaker:us-east-1:000000000000:model-package/p"
        with pytest.raises(AwsError, match="Model packages are not supported"):
            sagemaker.create_model(given)

    def test_a_prefix_without_its_slash_is_a_prefix(self, sagemaker):
        sagemaker.create_model(model(ModelDataUrl="s3://bucket/models"))

    def test_two_multi_model_containers_are_refused(self, sagemaker):
        given = model()
        containers = [given.pop("PrimaryContainer")] * 2
        with pytest.raises(AwsError, match="More than one container in MultiModel mode"):
            sagemaker.create_model({**given, "Containers": containers})

    def test_a_role_that_sagemaker_may_not_assume_is_refused(self, sagemaker):
        with pytest.raises(AwsError, match="Could not assume role"):
            sagemaker.create_model({**model(), "ExecutionRoleArn": ROLE + "-other"})

    def test_a_model_is_created_once(self, sagemaker):
        sagemaker.create_model(model())
        with pytest.raises(AwsError, match="Cannot create already existing model"):
            sagemaker.create_model(model())
