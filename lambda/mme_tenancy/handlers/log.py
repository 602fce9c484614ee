"""The logger of the functions that log more than one line a call."""

from __future__ import annotations

import os

from aws_lambda_powertools import Logger

__all__ = ["service_logger"]


def service_logger(service: str) -> Logger:
    """Powertools' logger at INFO, or at ``POWERTOOLS_LOG_LEVEL``; a ``LOG_LEVEL`` that is meant for others does not silence it."""
    return Logger(service=service, level=os.environ.get("POWERTOOLS_LOG_LEVEL", "INFO"))
