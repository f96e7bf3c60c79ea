"""Slurm's own view of a cluster of pods: one script for the controller's container, and what it prints."""

import shlex
from collections.abc import Mapping
from typing import Any

from scripts.node.slurm.scontrol import nodes, partitions
from scripts.node.slurm.squeue import columns, summary, table

SECONDS = 10
"""For each command: slurmctld's own timeout is longer, but then it is not well."""
ACCOUNTING: Mapping[str, str] = {
    "cluster": "sacctmgr --noheader --parsable2 show cluster format=cluster",
    "users": "sacctmgr --noheader --parsable2 show user format=user,defaultaccount",
    "accounts": "sacctmgr --noheader --parsable2 show account format=account",
    "qos": "sacctmgr --noheader --parsable2 show qos format=name",
}
"""Commands that print what `drift` compares of the database, by their part."""


def script(mark: str, *, more: Mapping[str, str] | None = None) -> str:
    """The line for root's shell; `mark` is one that nobody who gave a job its name could know. `more` are commands
    besides, by the name of their part."""
    jobs = ["squeue", "--noheader", "--sort=-t,-p", f"--format={columns(mark)}"]
    commands = {
        "nodes": "scontrol --oneliner --all show node",
        "partitions": "scontrol --oneliner --all show partition",
        "jobs": shlex.join(jobs),
        **(more or {}),
    }
    printed = f'printf \'%s %s %s\\n%s\\n\' {_start(mark)} "$name" "$?" "$out"'
    lines = [
        # Slurm prints local times and does not say of which zone.
        "export TZ=UTC SLURM_BITSTR_LEN=0",
        f'part() {{ name=$1; shift; out=$(timeout {SECONDS} "$@" 2>&1); {printed}; }}',
        "part ping scontrol ping",
        # A command whose daemon is gone tries for many seconds before it says so.
        'case "$out" in *" is UP"*) ;; *) exit 0 ;; esac',
        *(f"part {name} {command}" for name, command in commands.items()),
    ]
    return "\n".join(lines)


def parsed(text: str, mark: str) -> dict[str, Any]:
    """The parts by name, in the form of a machine's observation; one that could not be read is {"error": why}."""
    found: dict[str, Any] = {}
    for section in text.split(f"{_start(mark)} ")[1:]:
        heading, _, body = section.partition("\n")
        name, _, code = heading.partition(" ")
        if code != "0" and name != "ping":
            found[name] = {"error": " ".join(body.split())[:300] or f"exit code {code}"}
        else:
            found[name] = _part(name, body.rstrip("\n"), mark)
    return found


def _part(name: str, body: str, mark: str) -> Any:  # noqa: ANN401 - any JSON value
    if name == "ping":
        return {"up": " is UP" in body, "said": " ".join(body.split())}
    if name == "nodes":
        return nodes(body)
    if name == "partitions":
        return partitions(body)
    if name == "jobs":
        return summary(table(body, mark))
    return [line.split("|") for line in body.splitlines() if line]


def _start(mark: str) -> str:
    return f"part-{mark}"
