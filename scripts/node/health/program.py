"""The health check of this node, as /usr/local/sbin/hpc-health runs it:

    hpc-health            all checks: HealthCheckProgram of slurm.conf. Always ends with exit code 0, because a slurmd
                          that starts runs it until it does.
    hpc-health prolog     the quick checks, before a job: exit code 1 keeps the job away from this node
    hpc-health epilog     what a job has left on GPUs
    hpc-health now        all checks, and their result as JSON on standard output

A node that fails a check is drained (drain.py) with a reason of kinds.py. Nothing here ends a job, or sets a node down.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from health.kinds import nodeset_key
from system.host import SetupError, printable, read_json, remove, take_lock, write

PROGRAM = Path("/usr/local/sbin/hpc-health")  # HealthCheckProgram of slurm.conf
SETTINGS = Path("/etc/hpc/health.json")
"""On the machine's own disk: a check must not wait for a file system whose loss it is to report."""
KEPT_SECONDS = 60
"""A run that waits longer for another one gives up."""
# -S: no site packages; the program is started on every node every few minutes, and before each job.
_STARTER = """\
#!/bin/sh
# Written by the cluster's set-up: health checks of nodes. With --help it says more.
exec python3 -S -c '
import sys
sys.path.insert(0, "/usr/local/lib/hpc/node")
from MODULE import main
sys.exit(main(sys.argv[1:]))
' "$@"
"""


def main(arguments: list[str]) -> int:
    """Run the checks of one occasion; the exit code."""
    mode = arguments[0] if arguments else "periodic"
    if len(arguments) > 1 or mode not in ("periodic", "now", "prolog", "epilog"):
        sys.stderr.write(str(__doc__))
        return 2
    if os.geteuid() != 0:
        sys.stderr.write("hpc-health reads devices and drains nodes: run it as root\n")
        return 1
    wanted = read_settings()
    if wanted is None:
        sys.stdout.write("null\n" if mode == "now" else "")
        return 0
    try:
        return _run(mode, wanted)
    except (SetupError, OSError) as error:
        # Never the reason why a node does not start, or a job does not.
        sys.stderr.write(printable(f"hpc-health: {error}\n"))
        return 0


def _run(mode: str, wanted: dict[str, Any]) -> int:
    # Where it checks; a machine that is only set up would compile them.
    from health import checks, drain, outcome

    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    outcome.RUN.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (outcome.RUN / "run").open("w") as lock:
        if mode == "periodic" and not take_lock(lock):
            return 0
        if mode == "now" and not take_lock(lock, seconds=KEPT_SECONDS):
            raise SetupError(f"another run has not ended in {KEPT_SECONDS} s")
        began = time.time()
        if mode == "prolog":
            found = checks.quick(wanted)
        elif mode == "epilog":
            found = checks.after_job(wanted, os.environ.get("SLURM_JOB_ID", ""))
        else:
            found = checks.all_checks(wanted)
            if (left := outcome.last_record().get("left")) is not None:
                found |= checks.left(wanted, left)
        bad = {kind: result["text"] for kind, result in found.items() if result["state"] == "failed"}
        for kind, text in bad.items():
            sys.stderr.write(printable(f"hpc-health: {kind}: {text}\n"))
        # Quick checks before a job that pass leave no trace: they cost no write and no lock.
        if mode in ("periodic", "now") or (bad and take_lock(lock, seconds=KEPT_SECONDS)):
            kept = drain.apply_results(name, mode, wanted, found, began=began)
            if mode == "now":
                sys.stdout.write(json.dumps(kept) + "\n")
    return 1 if mode == "prolog" and bad and wanted["drain"] else 0


def converge(health: dict[str, Any] | None) -> None:
    """Have the program and its settings here on a node of a cluster with health checks, else neither."""
    mine = node_settings(health, socket.gethostname()) if health else None
    if mine is None:
        for path in (PROGRAM, SETTINGS):
            remove(path)
        return
    # Settings first: a program without them checks nothing.
    write(SETTINGS, json.dumps(mine, indent=1) + "\n")
    write(PROGRAM, starter("health.program"), mode=0o755)


def starter(module: str) -> str:
    """A program that runs `main` of a module of the set-up."""
    return _STARTER.replace("MODULE", module)


def node_settings(health: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The settings of one node: those of the cluster, and as `mine` what it must have; None for a machine that is no
    node."""
    mine = health["nodes"].get(nodeset_key(name)) or health["nodes"].get(name)
    if mine is None:
        return None
    return {**{name: value for name, value in health.items() if name != "nodes"}, "mine": mine}


def read_settings() -> dict[str, Any] | None:
    """The settings of this node; None where it is not to be checked."""
    found = read_json(SETTINGS, None)
    return found if isinstance(found, dict) else None
