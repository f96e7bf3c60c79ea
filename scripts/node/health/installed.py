"""The health check on this machine: its program, and what it checks for. Removed where the stack no longer has it."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from health import settings
from system.host import log, write

PROGRAM = Path("/usr/local/sbin/hpc-health")  # HealthCheckProgram of slurm.conf
# -S: no site packages; the program is started on every node every few minutes, and before each job.
_TEXT = """\
#!/bin/sh
# Written by the cluster's set-up: health checks of nodes. With --help it says more.
exec python3 -S -c '
import sys
sys.path.insert(0, "/usr/local/lib/hpc/node")
from MODULE import main
sys.exit(main(sys.argv[1:]))
' "$@"
"""


def program(module: str) -> str:
    """A program that runs `main` of a module of the set-up."""
    return _TEXT.replace("MODULE", module)


def keep(health: dict[str, Any] | None) -> None:
    """Have the program and its settings here on a node of a cluster with health checks, else neither."""
    mine = settings.of(health, socket.gethostname()) if health else None
    if mine is None:
        for path in (PROGRAM, settings.SETTINGS):
            if path.exists():
                path.unlink()
                log(f"removed {path}")
        return
    # Settings first: a program without them checks nothing.
    write(settings.SETTINGS, json.dumps(mine, indent=1) + "\n")
    write(PROGRAM, program("health.program"), mode=0o755)
