# ruff: noqa: SLF001 - dashboards are the emulator's: they are stored, nothing is drawn
"""Dashboards: the emulator keeps them, for CloudFormation, too; here are the checks that it lacks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mme_local.wire import AwsError

__all__ = ["DASHBOARD_OPERATIONS", "dashboard_call"]

DASHBOARD_OPERATIONS = ("DeleteDashboards", "GetDashboard", "ListDashboards", "PutDashboard")


def dashboard_call(operation: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Perform one operation, in the request's scope.

    Raises:
        AwsError: the dashboard is not there, or its body is not one.
    """
    from ministack.services import cloudwatch

    dashboards = cloudwatch._dashboards
    match operation:
        case "PutDashboard":
            _check_body(given["DashboardBody"])
            cloudwatch.cloudformation_put_dashboard(given["DashboardName"], given["DashboardBody"])
            return {"DashboardValidationMessages": []}
        case "GetDashboard":
            found = dashboards.get(given["DashboardName"])
            if found is None:
                raise AwsError("DashboardNotFoundError", f"Dashboard {given['DashboardName']} does not exist", 404)
            return {member: found[member] for member in ("DashboardArn", "DashboardBody", "DashboardName")}
        case "DeleteDashboards":
            if missing := [name for name in given["DashboardNames"] if name not in dashboards]:
                raise AwsError("DashboardNotFoundError", f"Dashboard {', '.join(missing)} does not exist", 404)
            for name in given["DashboardNames"]:
                cloudwatch.cloudformation_delete_dashboard(name)
            return {}
    prefix = given.get("DashboardNamePrefix", "")
    return {
        "DashboardEntries": [
            {
                **{member: dashboards[name][member] for member in ("DashboardArn", "DashboardName", "Size")},
                "LastModified": datetime.fromtimestamp(dashboards[name]["LastModified"], UTC),
            }
            for name in sorted(dashboards)
            if name.startswith(prefix)
        ]
    }


def _check_body(text: str) -> None:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("widgets"), list):
        raise AwsError("InvalidParameterInput", "The field DashboardBody must be a valid JSON object with a list of widgets.")
