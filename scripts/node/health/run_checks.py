"""The health check of a node, /usr/local/sbin/hpc-health:

    hpc-health            all checks: HealthCheckProgram of slurm.conf. The exit code is always 0, because a slurmd that
                          starts repeats the program until it is.
    hpc-health prolog     the quick checks, before a job: exit code 1 keeps the job away from this node
    hpc-health epilog     checks of the GPUs after a job
    hpc-health now        all checks, and their result as JSON on standard output

A node that fails a check is drained (drain_unhealthy.py), with a reason of check_kinds.py. Nothing here ends a job or
sets a node down.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from health.check_kinds import nodeset_key
from system.host import SetupError, printable, read_json, remove, write
from system.locks import describe_holders, open_lock, take_lock

PROGRAM = Path("/usr/local/sbin/hpc-health")  # HealthCheckProgram of slurm.conf
SETTINGS = Path("/etc/hpc/health.json")
"""On the machine's own disk, since a check must not wait for a file system whose loss it has to report."""
WAIT_SECONDS = 60
"""A run that waits longer for another one gives up."""
# -S: without site packages it starts faster. It runs on every node every few minutes, and before each job.
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
    """Run the checks of one occasion; return the exit code."""
    mode = arguments[0] if arguments else "periodic"
    if len(arguments) > 1 or mode not in ("periodic", "now", "prolog", "epilog"):
        sys.stderr.write(str(__doc__))
        return 2
    if os.geteuid() != 0:
        sys.stderr.write("hpc-health reads devices and drains nodes: run it as root\n")
        return 1
    settings = read_settings()
    if settings is None:
        sys.stdout.write("null\n" if mode == "now" else "")
        return 0
    try:
        return _run(mode, settings)
    except (SetupError, OSError) as error:
        # An error of the program itself must keep neither a node nor a job from starting.
        sys.stderr.write(printable(f"hpc-health: {error}\n"))
        return 0


def _run(mode: str, settings: dict[str, Any]) -> int:
    # Imported here, so that a machine's set-up, which imports this module, does not compile them.
    from health import checks, drain_unhealthy, outcome

    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    with open_lock(outcome.RUN / "run") as lock:
        if mode == "periodic" and not take_lock(lock):
            return 0
        if mode == "now" and not take_lock(lock, seconds=WAIT_SECONDS):
            raise SetupError(f"another run has not ended in {WAIT_SECONDS} s: {describe_holders(lock)}")
        began = time.time()
        if mode == "prolog":
            found = checks.quick(settings)
        elif mode == "epilog":
            found = checks.after_job(settings, os.environ.get("SLURM_JOB_ID", ""))
        else:
            found = checks.all_checks(settings)
            if (job := outcome.last_record().get("left")) is not None:
                found |= checks.left(settings, job)
        failed = {kind: result["text"] for kind, result in found.items() if result["state"] == "failed"}
        for kind, text in failed.items():
            sys.stderr.write(printable(f"hpc-health: {kind}: {text}\n"))
        # Checks of a prolog or an epilog that pass are not recorded, which saves a lock and a write for each job.
        if mode in ("periodic", "now") or (failed and take_lock(lock, seconds=WAIT_SECONDS)):
            record = drain_unhealthy.apply_results(name, mode, settings, found, began=began)
            if mode == "now":
                sys.stdout.write(json.dumps(record) + "\n")
    return 1 if mode == "prolog" and failed and settings["drain"] else 0


def converge(health: dict[str, Any] | None) -> None:
    """Install the program and its settings on a node of a cluster with health checks; else remove both."""
    settings = node_settings(health, socket.gethostname()) if health else None
    if settings is None:
        for path in (PROGRAM, SETTINGS):
            remove(path)
        return
    # Settings first: the program checks nothing without them.
    write(SETTINGS, json.dumps(settings, indent=1) + "\n")
    write(PROGRAM, starter("health.run_checks"), mode=0o755)


def starter(module: str) -> str:
    """Return the text of a program that runs `main` of a module of the set-up."""
    return _STARTER.replace("MODULE", module)


def node_settings(health: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return the cluster's settings with the hardware of one node as `mine`; None for a machine that is not a node."""
    hardware = health["nodes"].get(nodeset_key(name)) or health["nodes"].get(name)
    if hardware is None:
        return None
    return {**{key: value for key, value in health.items() if key != "nodes"}, "mine": hardware}


def read_settings() -> dict[str, Any] | None:
    """Return the settings of this node; None if it has no health checks."""
    settings = read_json(SETTINGS, None)
    return settings if isinstance(settings, dict) else None
