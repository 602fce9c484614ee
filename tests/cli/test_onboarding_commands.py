"""The commands that call the onboarding API: what they ask, print and exit with, against an API in memory."""

import io
import json
import os
import pty
import subprocess
import sys
import tarfile

import pytest
from typer.testing import CliRunner

from mme_cli import main
from mme_cli.commands.options import confirm
from mme_cli.errors import CommandError, UsageError
from mme_cli.onboarding_client import ApiError
from tests.cli.fake_api import FakeApi


class Connection:
    def __init__(self, api):
        self.api, self.principals = api, []

    def as_admin(self, stop=None, **_options):
        self.principals.append("admin")
        return self.api.client(**({} if stop is None else {"stop": stop}))

    def as_tenant(self, tenant, stop=None, **_options):
        self.principals.append(tenant)
        return self.api.client(**({} if stop is None else {"stop": stop}))


@pytest.fixture
def connection(monkeypatch):
    made = Connection(FakeApi())
    monkeypatch.setattr("mme_cli.connections.connect", lambda **_where: made)
    return made


@pytest.fixture
def api(connection):
    return connection.api


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "row.csv").write_text("1,2\n")
    for number in range(5):
        with tarfile.open(tmp_path / f"{number}.tar.gz", "w:gz") as file:
            info = tarfile.TarInfo("xgboost-model")
            info.size, info.mtime = 1, number
            file.addfile(info, io.BytesIO(b"x"))
    lines = ["tenant,model,artifact,sample", *[f"acme,m{number},{number}.tar.gz,row.csv" for number in range(5)]]
    (tmp_path / "models.csv").write_text("\n".join(lines))
    return tmp_path


def mme(*arguments, error=None):
    """What a command prints; ``error``: what it must end with."""
    done = CliRunner().invoke(main.app, arguments, catch_exceptions=True)
    if error is None:
        assert done.exit_code == 0, (done.output, done.exception)
    else:
        assert isinstance(done.exception, error), (done.output, done.exception)
    return done.stdout, str(done.exception)


def test_one_model_is_brought_and_its_states_are_told(connection, folder):
    output, _ = mme("onboard", "acme", "iris", "0.tar.gz", "--sample", "row.csv")
    assert connection.principals == ["acme"], "as the tenant, not as the administrator"
    (version,) = connection.api.versions["acme", "iris"]
    assert version["registration"]["framework"] == "xgboost"
    assert f"acme/iris {version['version']}: active" in output


def test_every_finding_is_printed_with_member_rule_and_fix(api, folder):
    api.fates["acme/iris"] = "rejected"
    output, text = mme("onboard", "acme", "iris", "0.tar.gz", "--sample", "row.csv", error=CommandError)
    for part in ("rejected: gzip", "member: a/b", "found: is damaged", "fix: pack it again"):
        assert part in output
    assert "is rejected" in text
    output, _ = mme("onboard", "acme", "wine", "0.tar.gz", "--sample", "row.csv", "--json")
    assert json.loads(output)["admitted"] is True


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["acme", "iris", "0.tar.gz"], "--sample"),
        (["acme", "Iris", "0.tar.gz", "--sample", "row.csv"], "model 'Iris' is not allowed"),
        (["acme", "iris", "none.tar.gz", "--sample", "row.csv"], "none.tar.gz' does not exist"),
        (["--manifest", "none.csv"], "cannot be read"),
        (["acme", "--manifest", "models.csv"], "TENANT and --manifest do not go together"),
        (["--manifest", "models.csv", "--accept", "text/csv"], "--accept and --manifest do not go together"),
        (["acme", "iris", "0.tar.gz", "--sample", "row.csv", "--stack", "a", "--api-url", "b"], "either --stack or --api-url"),
        (["acme", "iris", "0.tar.gz", "--sample", "row.csv", "--region", "eu-central-1"], "belong to --stack or --api-url"),
    ],
)
def test_wrong_usage_is_one_sentence_and_sends_nothing(api, folder, arguments, part):
    _, text = mme("onboard", *arguments, error=UsageError)
    assert part in text
    assert not api.calls


def test_a_manifest_is_brought_with_a_report(connection, folder):
    connection.api.fates["acme/m3"] = "rejected"
    output, text = mme("onboard", "--manifest", "models.csv", error=CommandError)
    assert connection.principals == ["admin"]
    assert "4 of 5 models admitted" in output
    assert "line 5: acme/m3: rejected: a/b: is damaged (gzip); pack it again" in output
    assert "1 of 5 models failed: 'models.failed.csv' lists them" in text
    assert not (folder / "models.csv.journal").exists()

    connection.api.fates.clear()
    output, _ = mme("onboard", "--manifest", "models.failed.csv", "--json")
    report = json.loads(output)
    assert (report["models"], report["admitted"], report["failed"], report["failed_manifest"]) == (1, 1, 0, None)
    assert [(outcome["tenant"], outcome["model"], outcome["state"]) for outcome in report["outcomes"]] == [("acme", "m3", "active")]
    mme("onboard", "--manifest", "models.csv")
    assert not (folder / "models.failed.csv").exists(), "an old report would mislead"


def test_a_wrong_manifest_exits_with_2_and_any_failure_with_1(folder):
    (folder / "models.csv").write_text("tenant,model,artifact,sample\nacme,Iris,0.tar.gz,row.csv\n")
    done = subprocess.run(
        [sys.executable, "-m", "mme_cli.main", "onboard", "--manifest", "models.csv"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "line 2: model 'Iris' is not allowed" in done.stderr
    (folder / "models.csv").write_text("tenant,model,artifact,sample\nacme,iris,0.tar.gz,row.csv\n")
    done = subprocess.run(
        [sys.executable, "-m", "mme_cli.main", "onboard", "--manifest", "models.csv"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "no local cloud runs here" in done.stderr
    assert "Traceback" not in done.stderr


def test_models_versions_and_one_version_are_shown(api, folder):
    mme("onboard", "acme", "iris", "0.tar.gz", "--sample", "row.csv")
    (version,) = api.versions["acme", "iris"]
    version |= {"tenant": "acme", "model": "iris", "framework": "xgboost", "created_at": "then", "updated_at": "now"}
    version |= {"timings": {"first_invocation_seconds": 1.5}, "warnings": [{"rule": "code", "detail": "is ignored", "fix": "remove it"}]}
    name = version["version"]
    api.trouble["models"] = [
        _page(
            {"model": "iris", "active_version": name, "canary": {"version": "v2-b", "percent": 10}, "last_version": 2, "updated_at": "now"}
        )
    ]
    output, _ = mme("models", "acme")
    assert all(part in output for part in ("iris", name, "v2-b 10 %"))
    output, _ = mme("models", "acme", "iris")
    assert f"acme/iris: {name} is active" in output
    assert "1.50 s" in output
    output, _ = mme("models", "acme", "iris", name)
    assert all(
        part in output for part in ("active, xgboost", "warning: code", "found: is ignored", "fix: remove it", "first invocation 1.50 s")
    )
    assert json.loads(mme("models", "acme", "iris", "--json")[0])["versions"][0]["version"] == name
    assert "has no models" in mme("models", "globex")[0]
    _, text = mme("models", "acme", "wine", error=ApiError)
    assert "404" in text


def _page(model):
    from tests.cli.fake_api import answer

    return answer(200, {"models": [model]})


def test_activation_asks_for_all_requests_or_a_part(api, folder):
    mme("onboard", "acme", "iris", "0.tar.gz", "--sample", "row.csv")
    assert json.loads(mme("activate", "acme", "iris", "v1-0", "--json")[0])["asked"] == {"version": "v1-0"}
    asked = json.loads(mme("activate", "acme", "iris", "v1-0", "--canary", "12.5", "--json")[0])["asked"]
    assert asked == {"version": "v1-0", "canary": {"percent": 12.5}}
    asked = json.loads(mme("activate", "acme", "iris", "v1-0", "--no-warm", "--json")[0])["asked"]
    assert asked == {"version": "v1-0", "warm": False}
    assert CliRunner().invoke(main.app, ["activate", "acme", "iris", "v1-0", "--canary", "101"]).exit_code == 2
    assert "is active" in mme("activate", "acme", "iris", "v1-0")[0]


def test_retirement_of_a_version_and_of_a_model(api, folder):
    api.versions["acme", "iris"] = []
    assert "retired: version v1-0 of acme/iris" in mme("retire", "acme", "iris", "v1-0", "--yes")[0]
    assert api.calls["delete_version"] == 1
    assert "retired: model acme/iris with all its versions" in mme("retire", "acme", "iris", "--yes")[0]
    assert api.calls["delete_model"] == 1
    mme("retire", "acme", "iris", "--force", error=UsageError)


def test_tenants_are_created_and_changed_by_what_is_named(connection, api):
    assert json.loads(mme("tenants", "set", "acme", "--json")[0]) == {"tenant": "acme"}
    known = {
        "tenant": "acme",
        "tier": "standard",
        "quotas": {"models": 5, "stored_bytes": 6, "requests_per_second": 7},
        "formats": ["onnx"],
        "usage": {"models": 3, "stored_bytes": 4},
    }
    from tests.cli.fake_api import answer

    api.trouble["tenant"] = [answer(200, known)]
    changed = json.loads(mme("tenants", "set", "acme", "--models", "9", "--formats", "all", "--json")[0])
    assert changed == {"tenant": "acme", "quotas": {"models": 9}, "formats": None}, "what is not named stays"
    output, _ = mme("tenants", "show", "acme")
    assert all(part in output for part in ("standard", "onnx", "3 of 5", "4 of 6"))
    new = json.loads(mme("tenants", "set", "new", "--tier", "trusted", "--formats", "xgboost, onnx", "--json")[0])
    assert new == {"tenant": "new", "tier": "trusted", "formats": ["xgboost", "onnx"]}
    mme("tenants", "set", "new", "--formats", ",", error=UsageError)
    assert set(connection.principals) == {"admin"}
    assert "deleted: acme" in mme("tenants", "delete", "acme", "--yes")[0]


def test_on_a_terminal_it_is_asked_first():
    """A real terminal: no is no, yes is yes, and --yes does not ask."""
    ask = "import sys; from mme_cli.commands.options import confirm; confirm('retire it?', yes='-y' in sys.argv); print('done')"

    def answered(text, *arguments):
        ours, theirs = pty.openpty()
        try:
            os.write(ours, text)
            return subprocess.run(
                [sys.executable, "-c", ask, *arguments], stdin=theirs, capture_output=True, text=True, check=False, timeout=60
            )
        finally:
            os.close(ours)
            os.close(theirs)

    no, yes, unasked = answered(b"n\n"), answered(b"y\n"), answered(b"", "-y")
    assert (no.returncode != 0, "done" in no.stdout, "retire it? [y/N]" in no.stderr) == (True, False, True)
    assert (yes.stdout.strip(), unasked.stdout.strip(), unasked.stderr) == ("done", "done", "")
    confirm("without a terminal it goes on", yes=False)


def test_a_tenants_key_is_shown_and_rotated_only_on_request(connection, api):
    assert mme("tenants", "key", "acme")[0].strip() == "secret-0"
    assert json.loads(mme("tenants", "key", "acme", "--json")[0])["id"] == "k0"
    assert api.calls["delete_api_key"] == 0
    assert mme("tenants", "key", "acme", "--rotate", "--yes")[0].strip() == "secret-1"
