"""The controller's part of health checks: a timer that measures idle nodes. Removed where the stack has none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from health import measure
from health.installed import program
from system.host import log, run, stop_service, succeeds, write

PROGRAM = Path("/usr/local/sbin/hpc-health-measure")
UNITS = Path("/etc/systemd/system")
NAME = "hpc-health-measure"
SERVICE = f"""\
[Unit]
Description=Measure idle nodes of the Slurm cluster
After=slurmctld.service

[Service]
Type=oneshot
ExecStart={PROGRAM}
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


def keep(wanted: dict[str, Any] | None) -> None:
    """Have the timer running with these settings, or nothing of it."""
    files = [PROGRAM, measure.SETTINGS, UNITS / f"{NAME}.service", UNITS / f"{NAME}.timer"]
    if not wanted:
        if any(path.exists() for path in files):
            stop_service(f"{NAME}.timer")
            for path in files:
                path.unlink(missing_ok=True)
            run("systemctl", "daemon-reload")
            log("measurements of nodes are removed")
        return
    write(measure.SETTINGS, json.dumps(wanted, indent=1) + "\n", mode=0o600)
    write(PROGRAM, program("health.measure"), mode=0o755)
    changed = [write(UNITS / f"{NAME}.{kind}", text) for kind, text in (("service", SERVICE), ("timer", TIMER))]
    if any(changed):
        run("systemctl", "daemon-reload")
    if any(changed) or not succeeds("systemctl", "is-active", "--quiet", f"{NAME}.timer"):
        run("systemctl", "enable", "--now", "--quiet", f"{NAME}.timer")
