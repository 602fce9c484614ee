"""One local cloud with the reference app, deployed by the real CDK CLI, for all end-to-end tests of a worker."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from mme_cli.cdk import deploy
from mme_cli.cloud import running_cloud
from mme_cli.console import stdout
from mme_cli.demo import models
from mme_cli.platform import LocalPlatform
from tests.e2e.support import PROJECT, onboard_model


@pytest.fixture
def tell(capsys):
    """Prints what was measured, whatever becomes of the test's other output."""

    def printed(*texts):
        with capsys.disabled():
            stdout.print(*texts, soft_wrap=True)

    return printed


@pytest.fixture(scope="session")
def demo_models(tmp_path_factory):
    """The demo's trained models and the folder of their artifacts."""
    folder = tmp_path_factory.mktemp("models")
    return folder, list(models.prepare(folder))


@pytest.fixture(scope="session")
def marked_project(tmp_path_factory):
    """A copy of the reference app whose Lambda code carries a mark that the checkout does not have."""
    project = copied_app(tmp_path_factory.mktemp("marked"))
    append(project / "mme_tenancy" / "handlers" / "onboarding" / "__init__.py", "marked_handler.txt")
    return project


def copied_app(project):
    """A copy of the reference app in the folder ``project``, to be changed and deployed."""
    for name in ("app.py", "cdk.json"):
        shutil.copy(PROJECT / name, project / name)
    for source, target in (
        ("stacks", "stacks"),
        ("lambda/mme_tenancy", "mme_tenancy"),
        ("mme_facts", "mme_facts"),
        ("mme_constructs", "mme_constructs"),
    ):
        shutil.copytree(PROJECT / source, project / target, ignore=shutil.ignore_patterns("__pycache__"))
    return project


def append(module, name):
    """Append the file ``name`` of this folder to a module of a copied app."""
    module.write_text(module.read_text() + (Path(__file__).parent / name).read_text())


@contextmanager
def deployed(project, output):
    with running_cloud(models_per_instance=2, faults=True) as state:
        yield LocalPlatform(deploy(state, project, print, "--output", str(output)))


@pytest.fixture(scope="session")
def platform(marked_project, tmp_path_factory):
    """The deployed platform. Its Lambda code is the marked copy; everything else is the reference app as it is."""
    with deployed(marked_project, tmp_path_factory.mktemp("cdk.out")) as platform:
        yield platform


@pytest.fixture(scope="module")
def own_platform(marked_project, tmp_path_factory):
    """Such a platform for one module alone, whose tests leave nothing as it was or count everything that is there."""
    with deployed(marked_project, tmp_path_factory.mktemp("cdk.out")) as platform:
        yield platform


@pytest.fixture(scope="session")
def served(platform, demo_models):
    """The demo's models, all onboarded over HTTP: ``(tenant, model) -> (DemoModel, version)``."""
    folder, prepared = demo_models
    admin = platform.admin_client()
    clients = {}
    for tenant in sorted({model.tenant for model in prepared}):
        admin.expect((200, 201), "PUT", f"/tenants/{tenant}", {})
        clients[tenant] = platform.tenant_client(tenant)
    return {
        (model.tenant, model.model): (
            model,
            onboard_model(clients[model.tenant], model.tenant, model.model, (folder / model.artifact).read_bytes(), model.rows[0]),
        )
        for model in prepared
    }


def pytest_collection_modifyitems(items):
    """All tests of this folder share one worker, and so one deployed platform."""
    for item in items:
        if Path(item.path).parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group("platform"))
