"""The console's page comes from the package, for this machine only, and asks for nothing from elsewhere."""

import re
from importlib.resources import files

import httpx
import pytest

STATIC = files("mme_local.console") / "static"
NAMES = sorted(entry.name for entry in STATIC.iterdir())
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@pytest.mark.parametrize("path", ["/_console", "/_console/"])
def test_the_page_is_served_with_a_policy_that_allows_only_its_own_files(shared_cloud, path):
    answer = httpx.get(shared_cloud.endpoint_url + path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_served_as_what_it_is(shared_cloud, name):
    answer = httpx.get(f"{shared_cloud.endpoint_url}/_console/{name}")
    assert answer.content == (STATIC / name).read_bytes()
    assert answer.headers["content-type"] == f"{TYPES[name.rpartition('.')[2]]}; charset=utf-8"


@pytest.mark.parametrize("name", NAMES)
def test_no_file_names_another_host_or_inlines_code(name):
    text = (STATIC / name).read_text("utf-8")
    assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"innerHTML\s*=[^=]|insertAdjacentHTML|document\.write|eval\(|\son\w+=|style=|<style|<script>", text)


@pytest.mark.parametrize(
    "path", ["/_console/missing.js", "/_console/../pages.py", "/_console/%2e%2e/pages.py", "/_console/static", "/_consolex"]
)
def test_nothing_else_is_there(shared_cloud, path):
    with httpx.Client(base_url=shared_cloud.endpoint_url) as client:
        answer = client.send(client.build_request("GET", shared_cloud.endpoint_url + path))
    assert answer.status_code in (400, 403, 404)
    assert b"def console_page" not in answer.content


@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"host": "127.0.0.1.evil.example"}, {"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}],
)
def test_foreign_names_and_pages_are_refused(shared_cloud, headers):
    assert httpx.get(f"{shared_cloud.endpoint_url}/_console", headers=headers).status_code == 403


def test_its_own_scripts_may_name_their_origin_to_read_and_never_to_change(shared_cloud):
    own = {"origin": shared_cloud.endpoint_url, "sec-fetch-site": "same-origin"}
    assert httpx.get(f"{shared_cloud.endpoint_url}/_console/console.js", headers=own).status_code == 200
    assert httpx.get(f"{shared_cloud.endpoint_url}/_mme/status", headers=own).status_code == 200
    assert httpx.post(f"{shared_cloud.endpoint_url}/_mme/reset", headers=own).status_code == 403
    assert httpx.get(f"{shared_cloud.endpoint_url}/_mme/status", headers={"origin": "http://localhost:1"}).status_code == 403
