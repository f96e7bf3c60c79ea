"""Outputs of a stack, read from its state."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from cli.stack import project, state_dir, state_edit


def read(stack: str, *, show_secrets: bool) -> dict[str, Any]:
    """The stack's outputs, from the state alone: the program does not run."""
    if state_dir.on_files(stack):
        kept = project.require_state(stack)
        deployment = kept.export_state()["deployment"]
        values = kept.outputs(show_secrets=show_secrets, deployment=deployment)
        renew_host_keys(values, deployment.get("resources") or [])
        return values
    secrets = ["--show-secrets"] if show_secrets else []
    return json.loads(state_edit.run_pulumi(stack, "stack", "output", "--json", *secrets))


def renew_host_keys(values: Mapping[str, Any], resources: Iterable[Mapping[str, Any]]) -> None:
    """Replace the SSH host keys that were exported with those that resources of the state have now.

    A stack exports at its end. If an `up` that recreated machines was stopped, the exported keys are those of machines
    that are gone, and ssh would refuse the new ones.
    """
    for row in resources:
        there = row.get("outputs") or {}
        if row.get("delete") or not there.get("host_key"):
            continue
        for kind in ("machines", "targets"):
            known = values.get(kind) or {}
            if there.get("name") in known:
                known[there["name"]]["host_key"] = there["host_key"]
