"""What two looks at an endpoint tell: which changes there were, and what a warm-up under way has to do with them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mme_tenancy.fleet_state import FleetState, PendingFleet, Shift
from mme_tenancy.warm_up.change import ChangeKind, asked_for, compare

NOW = 1_800_000_000.0


class Endpoint:
    """An endpoint whose description a test changes; every change is a later modification."""

    def __init__(self, count=4):
        self.state = FleetState(
            "shared", "InService", "config-1", NOW, NOW, instances={"main": count}, desired={"main": count}, weights={"main": 1.0}
        )
        self.seen = compare(None, self.state, NOW).seen
        self.now, self.under_way = NOW, None
        self.begun = []

    def is_now(self, **changes):
        self.now += 1
        for name in ("instances", "desired"):
            if isinstance(changes.get(name), int):
                changes[name] = {"main": changes[name]}
        self.state = replace(self.state, **{"modified_at": self.now, **changes})
        return self

    def look(self, state="now"):
        """One look; what is due is under way from then on, and what was begun is noted."""
        found = compare(self.seen, self.state if state == "now" else state, self.now, self.under_way)
        self.seen = found.seen
        if found.change is not None and (self.under_way is None or found.change.number != self.under_way.number):
            self.begun.append(found.change)
        self.under_way = found.change
        return found

    def kinds(self):
        return [change.kind for change in self.begun]

    def ends(self):
        self.under_way = None
        return self


@pytest.fixture
def endpoint():
    return Endpoint()


def pending(count=4, config="config-2", started=NOW + 1, **more):
    return PendingFleet(config, {"main": count}, started, **more)


def test_what_is_there_at_the_first_look_is_no_change(endpoint):
    assert endpoint.seen.count == 4
    assert endpoint.look().change is None


def test_an_endpoint_that_was_never_there_is_not_remembered():
    assert compare(None, None, NOW).seen is None


def test_new_instances_are_a_scale_out_once(endpoint):
    endpoint.is_now(status="Updating", desired=6).look()
    assert endpoint.begun == []
    endpoint.is_now(instances=6).look()
    for _ in range(5):
        endpoint.look()
    endpoint.is_now(status="InService").look()
    (change,) = endpoint.begun
    assert (change.kind, change.number, change.instances_before, change.instances_after, change.empty_instances) == (
        "scale-out",
        1,
        4,
        6,
        2,
    )
    assert not change.whole


def test_instances_that_come_one_by_one_are_one_change_while_its_warm_up_runs(endpoint):
    endpoint.is_now(status="Updating", desired=7, instances=5).look()
    endpoint.is_now(instances=6).look()
    found = endpoint.is_now(instances=7).look()
    assert endpoint.kinds() == [ChangeKind.SCALE_OUT]
    assert (found.change.number, found.change.instances_before, found.change.instances_after, found.change.empty_instances) == (1, 4, 7, 3)


def test_instances_that_come_after_the_warm_up_has_ended_are_another_change(endpoint):
    endpoint.is_now(status="Updating", desired=6, instances=5).look()
    endpoint.ends().is_now(instances=6).look()
    assert [(change.number, change.empty_instances) for change in endpoint.begun] == [(1, 1), (2, 1)]


def test_a_second_scale_out_while_the_first_is_warmed_covers_both(endpoint):
    endpoint.is_now(desired=5, instances=5).look()
    found = endpoint.is_now(desired=6, instances=6).look()
    assert (found.change.number, found.change.instances_before, found.change.empty_instances) == (2, 4, 2)


def test_a_scale_out_whose_every_event_was_lost_is_found_at_rest(endpoint):
    assert endpoint.is_now(desired=6, instances=6).look().change.kind is ChangeKind.SCALE_OUT


def test_a_scale_in_is_nothing(endpoint):
    endpoint.is_now(status="Updating", desired=2).look()
    endpoint.is_now(instances=3).look()
    endpoint.is_now(instances=2, status="InService").look()
    assert endpoint.begun == []


def test_a_scale_in_ends_a_warm_up_of_the_instances_that_go(endpoint):
    endpoint.is_now(desired=6, instances=6).look()
    found = endpoint.is_now(status="Updating", desired=5, instances=5).look()
    assert (found.change.number, found.change.instances_after, found.change.empty_instances) == (1, 5, 1)
    found = endpoint.is_now(desired=4, instances=4).look()
    assert (found.change, found.reason) == (None, "the instances that were added are gone again")


@pytest.mark.parametrize("stages", [["shifted", "committed"], ["shifted"], ["committed"], []], ids=lambda stages: "+".join(stages) or "end")
def test_an_update_is_one_change_however_much_of_it_is_seen(endpoint, stages):
    endpoint.is_now(status="Updating", pending=pending(0)).look()
    endpoint.is_now(pending=pending(4)).look()
    assert endpoint.begun == []
    if "shifted" in stages:
        assert endpoint.is_now(pending=pending(4, shifted_at=NOW + 3)).look().change.kind is ChangeKind.UPDATE
    endpoint.is_now(pending=None, config="config-2")
    if "committed" in stages:
        endpoint.look()
    endpoint.is_now(status="InService").look()
    (change,) = endpoint.begun
    assert (change.kind, change.config_before, change.config_after) == (ChangeKind.UPDATE, "config-1", "config-2")
    assert change.whole


def test_an_update_of_which_nothing_was_seen_is_found_while_the_next_one_is_under_way(endpoint):
    endpoint.is_now(status="Updating", config="config-2", pending=pending(config="config-3")).look()
    endpoint.is_now(pending=pending(config="config-3", shifted_at=NOW + 2)).look()
    endpoint.is_now(status="InService", config="config-3", pending=None).look()
    assert [(change.config_before, change.config_after) for change in endpoint.begun] == [
        ("config-1", "config-2"),
        ("config-2", "config-3"),
    ]


def test_a_scale_in_of_which_nothing_was_seen_is_no_loss_in_a_scale_out_that_follows(endpoint):
    endpoint.is_now(status="Updating", instances=2, desired=3).look()
    assert endpoint.begun == []


def test_looks_at_the_same_fleet_remember_the_same(endpoint):
    endpoint.is_now(status="Updating", pending=pending()).look()
    before = endpoint.seen
    endpoint.look()
    assert endpoint.seen == before


def test_a_canary_of_an_update_is_waited_for_until_the_new_fleet_has_all_requests(endpoint):
    canary = pending(shifted_at=NOW + 2, shift=Shift(300))
    endpoint.is_now(status="Updating", pending=canary).look()
    endpoint.now = NOW + 290
    endpoint.is_now(pending=replace(canary, shifted_at=None)).look()
    assert endpoint.begun == []
    endpoint.now = NOW + 302
    assert endpoint.is_now(pending=replace(canary, shifted_at=NOW + 302)).look().change.kind is ChangeKind.UPDATE


def test_an_old_fleet_that_is_deleted_takes_no_requests_any_more(endpoint):
    canary = pending(shifted_at=NOW + 2, shift=Shift(300), all_shifted=True)
    assert endpoint.is_now(status="Updating", pending=canary).look().change.whole


def test_the_batches_of_a_rolling_update_are_one_change_while_it_is_warmed(endpoint):
    for new in (1, 2, 3):
        rolling = pending(new, desired={"main": 4}, shifted_at=NOW + 2, shift=Shift(rolling=True))
        endpoint.is_now(status="Updating", pending=rolling, instances=4 - new).look()
        assert (endpoint.under_way.instances_after, endpoint.under_way.empty_instances) == (4, new)
    endpoint.is_now(pending=None, config="config-2", instances=4).look()
    endpoint.is_now(status="InService").look()
    assert endpoint.kinds() == [ChangeKind.UPDATE]
    assert (endpoint.under_way.number, endpoint.under_way.instances_after, endpoint.under_way.empty_instances) == (1, 4, 4)


def test_an_update_that_is_rolled_back_after_the_shift_ends_its_warm_up(endpoint):
    shifted = pending(shifted_at=NOW + 2)
    endpoint.is_now(status="Updating", pending=shifted).look()
    found = endpoint.is_now(status="RollingBack").look()
    assert (found.change, found.reason) == (None, "the update is rolled back")
    endpoint.is_now(pending=None, status="InService").look()
    assert endpoint.kinds() == [ChangeKind.UPDATE]


def test_a_rollback_that_nobody_saw_ends_its_warm_up_too(endpoint):
    endpoint.is_now(status="Updating", pending=pending(shifted_at=NOW + 2)).look()
    found = endpoint.is_now(pending=None, status="InService").look()
    assert (found.change, found.reason) == (None, "the update is rolled back")
    assert endpoint.look().change is None


def test_an_update_that_never_took_requests_is_nothing(endpoint):
    endpoint.is_now(status="Updating", pending=pending()).look()
    endpoint.is_now(status="RollingBack").look()
    endpoint.is_now(pending=None, status="InService").look()
    assert endpoint.begun == []


def test_a_scale_out_that_fails_is_nothing(endpoint):
    endpoint.is_now(status="Updating", desired=6).look()
    endpoint.is_now(status="InService", desired=4).look()
    assert endpoint.begun == []


def test_a_scale_out_that_is_rolled_back_halfway_ends_its_warm_up(endpoint):
    endpoint.is_now(status="Updating", desired=6, instances=5).look()
    found = endpoint.is_now(status="RollingBack", instances=4).look()
    assert found.reason == "the instances that were added are gone again"
    endpoint.is_now(status="InService", desired=4).look()
    assert endpoint.kinds() == [ChangeKind.SCALE_OUT]


def test_a_lost_instance_is_a_loss_and_its_return_a_replacement(endpoint):
    loss = endpoint.is_now(instances=3).look().change
    assert (loss.kind, loss.instances_before, loss.instances_after, loss.empty_instances) == (ChangeKind.LOSS, 4, 3, 0)
    endpoint.ends().look()
    back = endpoint.is_now(instances=4).look().change
    assert (back.kind, back.number, back.empty_instances) == (ChangeKind.REPLACEMENT, 2, 1)
    assert not endpoint.seen.lost


def test_a_loss_in_an_update_that_is_warmed_leaves_it_an_update(endpoint):
    endpoint.is_now(config="config-2").look()
    found = endpoint.is_now(instances=3).look()
    assert (found.change.kind, found.change.number, found.change.instances_after) == (ChangeKind.UPDATE, 2, 3)
    assert found.change.whole


def test_maintenance_replaces_every_instance(endpoint):
    endpoint.is_now(status="SystemUpdating").look()
    assert endpoint.begun == []
    change = endpoint.is_now(status="InService").look().change
    assert (change.kind, change.whole) == (ChangeKind.REPLACEMENT, True)
    endpoint.look()
    assert len(endpoint.begun) == 1


def test_the_same_configuration_deployed_again_is_found_although_nothing_was_seen_of_it(endpoint):
    assert endpoint.is_now().look().change.kind is ChangeKind.REPLACEMENT


def test_what_explained_an_earlier_change_explains_no_later_one(endpoint):
    endpoint.is_now(status="Updating", desired=5).look()
    endpoint.is_now(instances=5).look()
    endpoint.is_now(status="InService").look()
    assert endpoint.is_now().look().change.kind is ChangeKind.REPLACEMENT


def test_the_same_configuration_deployed_again_is_an_update_where_it_was_seen(endpoint):
    endpoint.is_now(status="Updating", pending=pending(config="config-1")).look()
    endpoint.is_now(status="InService", pending=None).look()
    assert endpoint.kinds() == [ChangeKind.UPDATE]


def test_other_weights_are_nothing(endpoint):
    endpoint.is_now(status="Updating", weights={"main": 0.5}).look()
    endpoint.is_now(status="InService").look()
    assert endpoint.begun == []


def test_an_old_description_is_nothing(endpoint):
    old = endpoint.state
    endpoint.is_now(desired=6, instances=6).look()
    found = endpoint.look(old)
    assert found.change.number == 1
    assert endpoint.seen.count == 6


@pytest.mark.parametrize("status", ["Failed", "OutOfService", "Deleting"])
def test_an_endpoint_that_serves_no_more_ends_its_warm_up(endpoint, status):
    endpoint.is_now(desired=6, instances=6).look()
    found = endpoint.is_now(status=status).look()
    assert (found.change, found.reason) == (None, f"the endpoint is {status}")


def test_a_deleted_endpoint_ends_its_warm_up_and_one_of_its_name_is_a_new_fleet(endpoint):
    old = endpoint.is_now(desired=6, instances=6).state
    endpoint.look()
    assert endpoint.look(None).reason == "the endpoint was deleted"
    assert endpoint.look(old).change is None  # an old description of it
    assert endpoint.look(None).reason == ""
    endpoint.is_now(created_at=endpoint.now, status="Creating", instances=0, desired=2).look()
    assert len(endpoint.begun) == 1
    change = endpoint.is_now(status="InService", instances=2).look().change
    assert (change.kind, change.number, change.instances_before, change.instances_after) == (ChangeKind.UPDATE, 2, 6, 2)


def test_a_new_endpoint_that_comes_into_service_is_nothing():
    endpoint = Endpoint()
    endpoint.state = replace(endpoint.state, status="Creating", instances={})
    endpoint.seen = compare(None, endpoint.state, NOW).seen
    endpoint.is_now(status="InService", instances=4).look()
    endpoint.look()
    assert endpoint.begun == []
    assert endpoint.seen.count == 4


def test_a_warm_up_by_hand_counts_as_a_change_of_the_whole_fleet(endpoint):
    seen, change = asked_for(endpoint.seen, "shared", NOW, 4)
    assert (seen.number, change.number, change.kind, change.whole) == (1, 1, ChangeKind.REPLACEMENT, True)


def test_an_old_description_of_an_endpoint_before_it_was_created_anew_is_nothing(endpoint):
    old = endpoint.state
    endpoint.is_now(created_at=NOW + 1).look()
    endpoint.ends()
    assert endpoint.look(old).change is None
    assert endpoint.seen.created_at == NOW + 1


def test_an_endpoint_that_never_served_and_is_created_again_is_nothing():
    endpoint = Endpoint()
    endpoint.state = replace(endpoint.state, status="Creating", instances={})
    endpoint.seen = compare(None, endpoint.state, NOW).seen
    endpoint.is_now(status="Failed").look()
    endpoint.is_now(created_at=NOW + 5, status="InService", instances=4).look()
    assert endpoint.begun == []


def test_a_loss_of_all_that_was_added_is_a_loss_and_nothing_else(endpoint):
    endpoint.is_now(desired=6, instances=6).look()
    change = endpoint.is_now(instances=4).look().change
    assert (change.kind, change.number, change.instances_before, change.empty_instances) == (ChangeKind.LOSS, 2, 6, 0)


def test_a_loss_of_some_of_what_was_added_leaves_the_rest_to_be_warmed(endpoint):
    endpoint.is_now(desired=6, instances=6).look()
    change = endpoint.is_now(instances=5).look().change
    assert (change.kind, change.number, change.instances_before, change.instances_after) == (ChangeKind.SCALE_OUT, 2, 4, 5)
