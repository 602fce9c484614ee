"""The reference app: ``cdk deploy --all``. Context: ``environment`` (``aws`` or ``local``), ``nag`` (``true`` runs the rule packs)."""

from __future__ import annotations

import os

import aws_cdk as cdk

from stacks.reference import build

app = cdk.App()
account, region = os.environ.get("CDK_DEFAULT_ACCOUNT"), os.environ.get("CDK_DEFAULT_REGION")
build(app, env=cdk.Environment(account=account, region=region) if account and region else None)
if app.node.try_get_context("nag") == "true":
    from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks

    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True), NIST80053R5Checks(app, verbose=True))
app.synth()
