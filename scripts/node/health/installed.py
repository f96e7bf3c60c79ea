"""The health check on this machine: its program and what it checks for; on the controller a timer that measures idle
nodes. Removed where the stack no longer has them."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from health import measure
from health import program as settings
from system.host import log, run, stop_service, succeeds, write

PROGRAM = Path("/usr/local/sbin/hpc-health")  # HealthCheckProgram of slurm.conf
MEASURE = Path("/usr/local/sbin/hpc-health-measure")
UNITS = Path("/etc/systemd/system")
NAME = "hpc-health-measure"
SERVICE = f"""\
[Unit]
Description=Measure idle nodes of the Slurm cluster
After=slurmctld.service

[Service]
Type=oneshot
ExecStart={MEASURE}
"""
TIMER = """\
[Unit]
Description=Measure idle nodes of the Slurm cluster, those that are due

[Timer]
OnCalendar=hourly
RandomizedDelaySec=600
Persistent=false

[Install]
WantedBy=timers.target
"""
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
    mine = settings.node_settings(health, socket.gethostname()) if health else None
    if mine is None:
        for path in (PROGRAM, settings.SETTINGS):
            if path.exists():
                path.unlink()
                log(f"removed {path}")
        return
    # Settings first: a program without them checks nothing.
    write(settings.SETTINGS, json.dumps(mine, indent=1) + "\n")
    write(PROGRAM, program("health.program"), mode=0o755)


def keep_measuring(wanted: dict[str, Any] | None) -> None:
    """Have the timer running with these settings, or nothing of it."""
    files = [MEASURE, measure.SETTINGS, UNITS / f"{NAME}.service", UNITS / f"{NAME}.timer"]
    if not wanted:
        if any(path.exists() for path in files):
            stop_service(f"{NAME}.timer")
            for path in files:
                path.unlink(missing_ok=True)
            run("systemctl", "daemon-reload")
            log("measurements of nodes are removed")
        return
    write(measure.SETTINGS, json.dumps(wanted, indent=1) + "\n", mode=0o600)
    write(MEASURE, program("health.measure"), mode=0o755)
    changed = [write(UNITS / f"{NAME}.{kind}", text) for kind, text in (("service", SERVICE), ("timer", TIMER))]
    if any(changed):
        run("systemctl", "daemon-reload")
    if any(changed) or not succeeds("systemctl", "is-active", "--quiet", f"{NAME}.timer"):
        run("systemctl", "enable", "--now", "--quiet", f"{NAME}.timer")
