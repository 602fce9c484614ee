"""Where rules are from: titles of AWS's pages, or what the platform's behaviour makes necessary."""

from __future__ import annotations

__all__ = ["CONTAINER_APIS", "GOOD_SERVER", "HOW_CONTAINERS_SERVE", "PLATFORM", "RUNTIME_API"]

CONTAINER_APIS = 'Developer Guide: "Container contract for multi-model endpoints"'
HOW_CONTAINERS_SERVE = 'Developer Guide: "Custom inference code with hosting services"'
RUNTIME_API = "API Reference: InvokeEndpoint"
PLATFORM = "follows from what the platform does with the answers"
GOOD_SERVER = "not documented: robustness"
