"""Run a CDK app as it stands, with both rule packs added to it: ``run_with_rule_packs.py app.py``."""

import runpy
import sys
from pathlib import Path

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks, NIST80053R5Checks

synth = cdk.App.synth


def synth_with_rule_packs(app, **options):
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app, verbose=True), NIST80053R5Checks(app, verbose=True))
    return synth(app, **options)


cdk.App.synth = synth_with_rule_packs
sys.path.insert(0, str(Path.cwd()))
runpy.run_path(sys.argv[1], run_name="__main__")
