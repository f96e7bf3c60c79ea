"""Slurm's own view of the cluster, as the controller's commands print it."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from typing import Any

from slurm import output, slurmctld
from slurm.output import columns, summary, table
from system.host import SetupError, listens, run

SECONDS = 3


def nodes() -> dict[str, dict[str, str]]:
    """Every node, by name, with the fields of KEPT that `scontrol show node` has."""
    return output.node_rows(_ask("scontrol", "-o", "show", "node"))


def partitions() -> dict[str, dict[str, str]]:
    """Every partition, by name, with the fields of PARTITION."""
    return output.partition_rows(_ask("scontrol", "-o", "--all", "show", "partition"))


def jobs() -> dict[str, Any]:
    """How many jobs are in each state, and the first JOBS of them: running ones, then waiting ones by priority.

    Those that Slurm, or an operator, holds stand once more under `held`, JOBS at most: they come last in the queue.
    """
    os.environ["SLURM_BITSTR_LEN"] = "0"  # the numbers of a long array in full
    # A job's name may hold anything, whole rows of other jobs too: nobody who gave one could know this mark.
    mark = secrets.token_hex(8)
    text = _ask("squeue", "--noheader", "--sort=-t,-p", f"--format={columns(mark)}")
    return summary(table(text, mark))


def config() -> dict[str, str]:
    """The values that slurmctld runs with, by parameter, as `scontrol show config` prints them."""
    return output.parameters(_ask("scontrol", "show", "config"))


def ping() -> dict[str, Any]:
    """Whether slurmctld answers, and in how many seconds."""
    began = time.monotonic()
    said = _ask("scontrol", "ping").strip()
    return {"up": said.endswith("UP"), "said": said, "seconds": round(time.monotonic() - began, 3)}


def statistics() -> dict[str, int]:
    """What waits for slurmdbd in slurmctld: its records are kept until slurmdbd takes them."""
    for line in _ask("sdiag").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "DBD Agent queue size":
            return {"waiting": int(value)}
    raise SetupError("sdiag does not say how many records wait for slurmdbd")


def database() -> dict[str, Any]:
    """Whether slurmdbd answers. Its port tells that it runs; only an answer tells that MariaDB does, too."""
    if not listens(slurmctld.SLURMDBD_PORT):
        return {"up": False, "said": f"nothing listens on port {slurmctld.SLURMDBD_PORT}"}
    try:
        run("sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster", timeout=SECONDS)
    except SetupError as error:
        return {"up": False, "said": str(error)}
    return {"up": True, "said": ""}


def _ask(*command: str) -> str:
    # A command whose daemon is gone tries for many seconds before it says so.
    if not listens(slurmctld.SLURMCTLD_PORT):
        raise SetupError(f"nothing listens on slurmctld's port {slurmctld.SLURMCTLD_PORT}")
    return run(*command, timeout=SECONDS)


PARTS: dict[str, Callable[[], Any]] = {
    "nodes": nodes,
    "partitions": partitions,
    "jobs": jobs,
    "config": config,
    "ping": ping,
    "statistics": statistics,
    "database": database,
}
