"""Pydantic's errors, said as findings."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from cluster.config.findings import Finding, dotted, show


def explain(error: ValidationError, given: Mapping[str, Any]) -> list[Finding]:
    """One finding for each error."""
    return [
        Finding(where=dotted(item["loc"]), given=show(item["input"]), allowed=item["msg"], todo="correct it")
        for item in error.errors()
    ]
