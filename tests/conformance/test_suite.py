"""The suite accepts a server that keeps the contract, and names the rule that a wrong one breaks."""

import asyncio
import socket

import pytest

from mme_local.conformance import DIFFERENCES, RULES, Outcome, Subject, UnreachableError, check_container
from mme_local.dataplane.simulated_server import Behaviour, Connection, Container, Model

from .wrong_servers import WRONG, OneAnswer


def ids(results):
    return {result.rule.id for result in results}


def test_a_server_that_keeps_the_contract_breaks_nothing(check, container):
    seen = []
    report = check(progress=lambda rule: seen.append(rule.id))
    assert [result.detail for result in report.results if result.outcome is not Outcome.KEPT] == []
    assert report.conforms
    assert report.counts() == {"kept": len(RULES), "broken": 0, "allowed": 0, "not checked": 0}
    assert sorted(seen) == sorted(rule.id for rule in RULES)


def test_there_is_a_wrong_server_for_every_rule():
    assert set(WRONG) == {rule.id for rule in RULES}


@pytest.mark.parametrize("rule", WRONG)
def test_the_rule_that_a_wrong_server_breaks_is_named(check, container, rule):
    report = check(container(WRONG[rule]), OneAnswer if rule == "server.keeps-connection" else Connection, only=[rule])
    assert ids(report.broken) == {rule}
    assert all(result.detail for result in report.broken)
    assert report.conforms is not next(entry.required for entry in RULES if entry.id == rule)


def test_a_server_that_is_not_known_is_refused(check):
    with pytest.raises(ValueError, match="no server 'torchserve': use one of mms"):
        check(server="torchserve")


def test_a_rule_that_does_not_exist_is_refused(check):
    with pytest.raises(ValueError, match=r"no rule load\.all: use one of .*load\.ok"):
        check(only=["load.all"])


def test_an_unload_that_takes_too_long_is_named(check, container):
    class Slow(WRONG["unload.ok"]):
        async def unload(self, name):
            await asyncio.sleep(0.3 if self.find(name) else 0)
            return await Container.unload(self, name)

    report = check(container(Slow), unload_seconds=0.1, only=["unload.ok"])
    (result,) = [result for result in report.broken if result.rule.id == "unload.ok"]
    assert "was not answered within 0.1 s" in result.detail


def test_rules_that_need_what_is_not_given_are_not_checked(check, container):
    report = check(told=Subject)
    unchecked = {result.rule.id: result.detail for result in report.results if result.outcome is Outcome.NOT_CHECKED}
    assert set(unchecked) >= {rule.id for rule in RULES if rule.needs}
    assert unchecked["load.ready"] == "not given: models, payload"
    assert report.conforms
    assert report.counts()["kept"] > 5


def test_a_rule_is_not_checked_when_one_that_it_builds_on_is_broken(check, container):
    report = check(container(WRONG["load.ok"]), only=["load.again"])
    (result,) = [result for result in report.results if result.rule.id == "load.again"]
    assert (result.outcome, result.detail) == (Outcome.NOT_CHECKED, "it builds on load.ok")


def test_models_of_others_are_left_alone(check, container):
    held = container()
    held.models["theirs"] = Model("theirs", "/theirs", Behaviour(), ready=True)
    assert check(held).conforms
    assert list(held.models) == ["theirs"]


def test_differences_of_a_known_server_are_allowed(monkeypatch, check, container):
    from mme_local.conformance import differences

    entry = differences.Difference("mms", "load.malformed", "500", "none")
    harmful = differences.Difference("mms", "invoke.big", "it dies", "none", harmful=True)
    monkeypatch.setattr(differences, "DIFFERENCES", (entry, harmful))
    allowed, other = (
        check(container(WRONG["load.malformed"]), server=name, only=["load.malformed", "invoke.big"]) for name in ("mms", "simulated")
    )
    outcomes = {result.rule.id: result.outcome for result in allowed.results}
    assert (outcomes["load.malformed"], outcomes["invoke.big"]) == (Outcome.ALLOWED, Outcome.NOT_CHECKED)
    assert ids(allowed.broken) == set()
    assert ids(other.broken) == {"load.malformed"}


def test_nobody_at_the_address_is_an_error_of_its_own():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UnreachableError, match=url):
            check_container(Subject(url))


@pytest.mark.parametrize("values", [{"url": "127.0.0.1:8080"}, {"fill": -1}, {"timeout_seconds": 0}])
def test_a_subject_that_makes_no_sense_is_refused(values):
    with pytest.raises(ValueError, match="use"):
        Subject(**{"url": "http://127.0.0.1:1", **values})


def test_differences_name_rules_that_exist():
    assert {difference.rule for difference in DIFFERENCES} <= {rule.id for rule in RULES}
