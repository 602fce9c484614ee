"""Synthesis in process: the kernel starts once per worker, the reference app is synthesized once per variant."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mme_local.toolchain import node

CHECKOUT = Path(__file__).parents[2]

# Importing aws_cdk starts the jsii kernel, which reads its environment then: the Node of our environment, and no default validation, which
# takes most of a synthesis (test_reference_app.py has it on).
with pytest.MonkeyPatch.context() as _patch:
    _patch.setenv("JSII_NODE", str(node()))
    _patch.setenv("CDK_VALIDATION", "false")
    import aws_cdk as cdk


@dataclass(frozen=True)
class Synthesized:
    """One synthesized app.

    Attributes:
        folder: the cloud assembly.
        templates: stack name -> template.
    """

    folder: Path
    templates: dict[str, dict[str, Any]]

    def resources(self, resource_type: str) -> dict[str, dict[str, Any]]:
        """Logical id -> resource of a type, in all stacks."""
        return {
            name: resource
            for template in self.templates.values()
            for name, resource in template["Resources"].items()
            if resource["Type"] == resource_type
        }

    def only(self, resource_type: str) -> dict[str, Any]:
        """The single resource of a type."""
        (resource,) = self.resources(resource_type).values()
        return resource


@pytest.fixture(scope="session")
def flags() -> dict[str, Any]:
    """The feature flags of ``cdk.json``: tests synthesize as the app does."""
    context: dict[str, Any] = json.loads((CHECKOUT / "cdk.json").read_text("utf-8"))["context"]
    return context


@pytest.fixture(scope="session")
def synthesize(flags: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Synthesized]:
    """Build an app with a function and synthesize it."""

    def run(build: Callable[[Any], object], **context: Any) -> Synthesized:
        app = cdk.App(context=flags | context, outdir=str(tmp_path_factory.mktemp("cdk.out")), analytics_reporting=False)
        build(app)
        assembly = app.synth()
        return Synthesized(Path(assembly.directory), {stack.stack_name: stack.template for stack in assembly.stacks})

    return run


@pytest.fixture(scope="session")
def reference(synthesize: Callable[..., Synthesized]) -> Synthesized:
    """The reference app, environment-agnostic."""
    from stacks.reference import build

    return synthesize(build)


@pytest.fixture(scope="session")
def reference_local(synthesize: Callable[..., Synthesized]) -> Synthesized:
    """The reference app with ``-c environment=local``."""
    from stacks.reference import build

    return synthesize(build, environment="local")


@pytest.fixture(scope="session")
def reference_concrete(synthesize: Callable[..., Synthesized]) -> Synthesized:
    """The reference app in one account and region."""
    from stacks.reference import build

    return synthesize(lambda app: build(app, env=cdk.Environment(account="111122223333", region="eu-central-1")))


@pytest.fixture
def synthesize_stack(synthesize: Callable[..., Synthesized]) -> Callable[..., Synthesized]:
    """Build one stack with a function and synthesize it."""

    def run(build: Callable[[cdk.Stack], object], *, env: cdk.Environment | None = None) -> Synthesized:
        return synthesize(lambda app: build(cdk.Stack(app, "Test", env=env)))

    return run


@pytest.fixture
def stack(flags: dict[str, Any]) -> Any:
    """A stack that is not synthesized: for what is refused at construction."""
    return cdk.Stack(cdk.App(context=flags), "Test")
