"""Who a command calls as: with a token no AWS credentials are asked for."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mme_cli.connections import TOKEN_VARIABLE, connect
from mme_cli.errors import CommandError, UsageError


@pytest.fixture
def api():
    """An API that writes down what it is sent; its address and the Authorization headers that came."""
    came = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            came.append(self.headers.get("Authorization"))
            body = b'{"tenant": "acme"}'
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1", came
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", TOKEN_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def test_a_token_of_the_environment_is_sent_as_it_is(api, monkeypatch):
    url, came = api
    monkeypatch.setenv(TOKEN_VARIABLE, "x.y.z")
    connection = connect(api_url=url)
    for client in (connection.as_tenant("acme"), connection.as_admin()):
        assert client.tenant("acme")["tenant"] == "acme"
    assert came == ["Bearer x.y.z"] * 2


def test_without_a_token_calls_are_signed(api, monkeypatch):
    url, came = api
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    connect(api_url=url, region="us-east-1").as_tenant("acme").tenant("acme")
    assert came[0].startswith("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/")


def test_without_a_local_cloud_the_ways_to_aws_are_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError, match=r"no local cloud runs here .*; for AWS, pass --stack or --api-url"):
        connect()


@pytest.mark.parametrize("url", ["http://api.example.com/v1", "api.example.com/v1", "https:///v1", "ftp://127.0.0.1/v1"])
def test_a_token_goes_over_https_only_or_to_this_machine(monkeypatch, url):
    monkeypatch.setenv(TOKEN_VARIABLE, "x.y.z")
    with pytest.raises(UsageError, match=r"--api-url '.*' is not allowed: use https://"):
        connect(api_url=url)


def test_without_either_nobody_is_called(api):
    url, came = api
    with pytest.raises(CommandError, match="no AWS credentials"):
        connect(api_url=url, region="us-east-1")
    assert came == []
