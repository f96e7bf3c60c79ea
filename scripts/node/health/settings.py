"""What this node is to be checked for: /etc/hpc/health.json, which the set-up writes with the config version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from health.kinds import key
from system.host import read_json

SETTINGS = Path("/etc/hpc/health.json")
"""On the machine's own disk: a check must not wait for a file system whose loss it is to report."""


def of(health: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The settings of one node: those of the cluster, and as `mine` what it must have; None for a machine that is no
    node."""
    mine = health["nodes"].get(key(name)) or health["nodes"].get(name)
    if mine is None:
        return None
    return {**{name: value for name, value in health.items() if name != "nodes"}, "mine": mine}


def read(path: Path = SETTINGS) -> dict[str, Any] | None:
    """The settings of this node; None where it is not to be checked."""
    found = read_json(path, None)
    return found if isinstance(found, dict) else None
