"""The routers, and the loss of a zone."""

import random
from collections import Counter

import pytest

from mme_fleet import (
    Download,
    Downloaded,
    Fleet,
    Forward,
    HashRing,
    InstanceDraining,
    InstanceLost,
    InstanceUp,
    LeastOutstandingRouter,
    Loaded,
    OneHomeRouter,
    RandomRouter,
    Reply,
    Request,
    StickyRouter,
    ZoneLost,
)
from tests.fleet.driver import Driver, error_of


def home_of(actions) -> str:
    return actions[0].instance


# Sticky with spill.


def test_a_hot_model_spills_to_one_more_instance_which_loads_it():
    driver = Driver("i", "j", router=StickyRouter(spill_outstanding=3))
    driver.serve("hot")
    assert [home_of(driver.request("hot")[1]) for _ in range(3)] == ["i", "i", "i"]
    spilled, actions = driver.request("hot")
    assert actions == (Download("j", "hot"),)
    assert home_of(driver.request("hot")[1]) == "i", "only one request waits for the second copy"
    driver.on(Downloaded("j", "hot", 20))
    assert driver.on(Loaded("j", "hot")) == (Forward(spilled, "j", "hot", cold=True),)
    assert home_of(driver.request("hot")[1]) == "j"


def test_the_load_of_other_models_does_not_make_a_model_spill():
    driver = Driver("i", "j", router=StickyRouter(spill_outstanding=3))
    driver.serve("a")
    driver.on(InstanceLost("j"))
    driver.serve("b")
    driver.up("j")
    for _ in range(5):
        driver.request("b")
    assert [home_of(driver.request("a")[1]) for _ in range(3)] == ["i"] * 3


def test_requests_in_a_models_queue_count_for_the_spill():
    driver = Driver("i", "j", router=StickyRouter(spill_outstanding=3), model_queue_size=10)
    driver.serve("hot")
    assert [len(driver.request("hot")[1]) for _ in range(3)] == [1, 0, 0]
    assert driver.request("hot")[1] == (Download("j", "hot"),)


def test_a_model_that_every_instance_holds_cannot_spill():
    driver = Driver(router=StickyRouter(spill_outstanding=1))
    driver.serve("hot")
    assert [home_of(driver.request("hot")[1]) for _ in range(3)] == ["i"] * 3


def test_without_a_threshold_nothing_spills():
    driver = Driver("i", "j", router=StickyRouter(spill_outstanding=None))
    driver.serve("hot")
    assert {home_of(driver.request("hot")[1]) for _ in range(100)} == {"i"}


def test_a_threshold_below_one_is_refused():
    with pytest.raises(ValueError, match="spill_outstanding is 0"):
        StickyRouter(spill_outstanding=0)


# Least outstanding.


def test_least_outstanding_never_leaves_the_holders():
    driver = Driver("i", "j", router=LeastOutstandingRouter())
    driver.serve("hot")
    assert {home_of(driver.request("hot")[1]) for _ in range(100)} == {"i"}
    assert driver.request("new")[1] == (Download("j", "new"),), "without a holder the least busy instance loads it"
    assert driver.request("new")[1] == ()


# One home.


def test_a_model_stays_at_its_home_whatever_is_loaded_where():
    driver = Driver("i", "j", "k", router=OneHomeRouter())
    homes = {model: home_of(driver.request(model)[1]) for model in map(str, range(60))}
    assert set(homes.values()) == {"i", "j", "k"}
    assert homes == {model: HashRing(["k", "j", "i"]).home(model) for model in homes}


def test_only_models_of_a_lost_instance_move_and_return_with_it():
    fleet = Fleet(router=(router := OneHomeRouter()))
    for name in ("i", "j", "k"):
        fleet.on(InstanceUp(name, 10, 10), 0.0)
    models = [f"model {number}" for number in range(500)]
    before = {model: router.route(model, fleet).id for model in models}
    fleet.on(InstanceLost("j"), 1.0)
    without = {model: router.route(model, fleet).id for model in models}
    assert {model for model in models if without[model] != before[model]} == {model for model in models if before[model] == "j"}
    fleet.on(InstanceUp("j", 10, 10), 2.0)
    assert {model: router.route(model, fleet).id for model in models} == before


def test_the_ring_shares_keys_about_evenly():
    ring = HashRing([f"instance {number}" for number in range(10)])
    counts = Counter(ring.home(f"tenant/model {number}") for number in range(20_000))
    assert len(counts) == 10
    assert all(0.7 < count / 2_000 < 1.3 for count in counts.values())


def test_a_ring_without_names_is_refused():
    with pytest.raises(ValueError, match="no names"):
        HashRing(()).home("m")


# Random.


def test_random_routing_goes_everywhere_and_is_repeated_by_its_seed():
    def run(seed: int) -> list[str]:
        driver = Driver("i", "j", "k", router=RandomRouter(random.Random(seed)), disk=10**6, memory=10**6)
        for name in ("i", "j", "k"):
            while driver.resident(name) != ["m"]:
                _, actions = driver.request("m")
                for action in actions:
                    if isinstance(action, Download):
                        driver.on(Downloaded(action.instance, "m", 20))
                        driver.on(Loaded(action.instance, "m"))
        return [home_of(driver.request("m")[1]) for _ in range(50)]

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert set(run(1)) == {"i", "j", "k"}


class Stubborn:
    """A wrong router: it goes to an instance that has left."""

    def __init__(self) -> None:
        self.first = None

    def route(self, model, fleet):
        self.first = self.first or fleet.instances[0]
        return self.first


@pytest.mark.parametrize("leave", [InstanceLost("i"), InstanceDraining("i")])
def test_an_instance_that_takes_no_requests_cannot_be_chosen(leave):
    driver = Driver("i", "j", router=Stubborn())
    driver.serve("a")
    driver.on(leave)
    with pytest.raises(ValueError, match="chose instance 'i'"):
        driver.request("a")


# Zones.


def test_a_zone_that_fails_takes_all_its_instances_at_once():
    driver = Driver("x")
    driver.on(InstanceDraining("x"))
    for name, zone in (("i", "a"), ("j", "a"), ("k", "b")):
        driver.up(name, zone=zone)
    flying = []
    for name in ("i", "j", "k"):
        driver.serve(f"on {name}", name)
        flying.append(driver.request(f"on {name}")[0])
    _, actions = driver.request("new")
    assert actions == (Download("i", "new"),)
    actions = driver.on(ZoneLost("a"))
    assert [action.request for action in actions if isinstance(action, Reply)] == flying[:2]
    assert actions[-1] == Download("k", "new"), "not on the other instance that died"
    assert [(entry.instance, entry.state, entry.zone) for entry in driver.fleet.snapshot().instances] == [
        ("i", "down", "a"),
        ("j", "down", "a"),
        ("k", "up", "b"),
    ]


def test_the_loss_of_the_only_zone_fails_everything():
    driver = Driver()
    driver.request("m")
    assert driver.on(ZoneLost("another")) == ()
    assert error_of(driver.on(ZoneLost(""))).status == 503


def test_a_zone_may_return():
    driver = Driver()
    driver.on(ZoneLost(""))
    driver.up("i", zone="b")
    assert driver.on(Request(99, "m")) == (Download("i", "m"),)
    assert driver.instance().losses == 1
