"""Reads the outputs of a stack from its state."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from cli.stack import project, state_dir, state_edit

_FOR_PROGRAMS = {
    "admin_key",
    "config",
    "config_hash",
    "kubeconfig",
    "kubernetes",
    "munge_key",
    "place",
    "platform",
    "port",
    "prometheus",
}
"""Outputs that only --json and the key print."""


def for_people(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs that `up` and `./hpc outputs` show, by name: those that are not empty and not for programs."""
    # `targets` has all machines.
    hidden = _FOR_PROGRAMS | ({"machines"} if values.get("targets") else set())
    return {name: value for name, value in sorted(values.items()) if name not in hidden and value not in ("", [], {})}


def read(stack: str, *, show_secrets: bool) -> dict[str, Any]:
    """Return the stack's outputs from the state, without running the program."""
    if state_dir.on_files(stack):
        stored = project.require_state(stack)
        deployment = stored.export_state()["deployment"]
        values = stored.outputs(show_secrets=show_secrets, deployment=deployment)
        renew_host_keys(values, deployment.get("resources") or [])
        return values
    secrets = ["--show-secrets"] if show_secrets else []
    return json.loads(state_edit.run_pulumi(stack, "stack", "output", "--json", *secrets))


def renew_host_keys(values: Mapping[str, Any], resources: Iterable[Mapping[str, Any]]) -> None:
    """Replace the SSH host keys in the outputs with those of the state's resources.

    Outputs are exported at the end of a run. After an `up` that recreated machines and was stopped, they have the keys
    of the old machines, and ssh would refuse the new ones.
    """
    for row in resources:
        machine = row.get("outputs") or {}
        if row.get("delete") or not machine.get("host_key"):
            continue
        for kind in ("machines", "targets"):
            rows = values.get(kind) or {}
            if machine.get("name") in rows:
                rows[machine["name"]]["host_key"] = machine["host_key"]
