"""Quotas, tiers and formats of a tenant on the deployed app: exact however many register at once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.support import problem, register

pytestmark = pytest.mark.e2e
TENANT = "metered"


def tenant(platform, **settings):
    return platform.admin_client().expect((200, 201), "PUT", f"/tenants/{TENANT}", settings).json()


def test_many_who_register_at_once_get_exactly_what_the_quota_allows(platform):
    shown = tenant(platform, quotas={"models": 3, "stored_bytes": 1000})
    assert (shown["usage"], shown["quotas"]["requests_per_second"]) == ({"models": 0, "stored_bytes": 0}, 100)
    client = platform.tenant_client(TENANT)

    def attempt(number):
        for _ in range(5):
            answer = register(client, TENANT, f"model-{number % 6}", b"%d" % number * 30)
            if answer.status != 504:  # a slow machine: whether it was registered shows when it is asked again
                break
        return answer

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(attempt, range(10, 46)))
    taken = [answer for answer in answers if answer.status in (200, 201)]
    for answer in answers:
        if answer not in taken:
            assert problem(answer, 409, "quota-exceeded")["field"] in {"quotas.models", "quotas.stored_bytes"}
    usage = client.expect((200,), "GET", f"/tenants/{TENANT}").json()["usage"]
    assert usage == {"models": 3, "stored_bytes": 60 * len(taken)}
    assert len(taken) == 16  # 960 bytes; one more would be 1,020
    models = client.expect((200,), "GET", f"/tenants/{TENANT}/models").json()["models"]
    assert len(models) == 3


def test_a_greater_quota_and_other_formats_count_at_once(platform):
    tenant(platform, quotas={"models": 100, "stored_bytes": 10_000}, formats=["xgboost"], tier="trusted")
    client = platform.tenant_client(TENANT)
    assert register(client, TENANT, "one-more", b"one more").status == 201
    tenant(platform, quotas={"stored_bytes": 0})
    document = problem(register(client, TENANT, "one-more", b"and another"), 409, "quota-exceeded")
    assert (document["field"], document["allowed"]) == ("quotas.stored_bytes", "at most 0")
    shown = client.expect((200,), "GET", f"/tenants/{TENANT}").json()
    assert (shown["tier"], shown["formats"], shown["quotas"]["models"]) == ("trusted", ["xgboost"], 100)


def test_a_tenant_sets_nothing_of_itself(platform):
    problem(platform.tenant_client(TENANT).call("PUT", f"/tenants/{TENANT}", b'{"tier": "trusted"}'), 403, "forbidden")
