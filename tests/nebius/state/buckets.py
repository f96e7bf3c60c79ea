"""The bucket that the tests initialize, and what a stand-in for Nebius's API has of it."""

import json
from typing import Any

from cli.backends.nebius import default_name
from lab.nebius_api.server import NebiusServer

TENANT, PROJECT = "tenant-e00abc", "project-e00def"
BUCKET = default_name(TENANT, PROJECT)
ACCOUNT = "slurm-pulumi-sa"
INIT = ("backend", "init", "nebius", "--stack", "nb")


def rows(api: NebiusServer, kind: str) -> list[dict[str, Any]]:
    """All objects of a kind."""
    with api.lock:
        return list(api.store.of(kind))


def world(api: NebiusServer) -> str:
    """All that exists."""
    with api.lock:
        return json.dumps([{**row, "facts": {}} for row in api.store.objects.values()], sort_keys=True)
