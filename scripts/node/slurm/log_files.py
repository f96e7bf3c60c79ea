"""Where Slurm's daemons write on a machine: logs, with those of prologs and epilogs, and pid files."""

from __future__ import annotations

from pathlib import Path

from system.host import folder, log, run, write

DAEMONS = ("slurmctld", "slurmdbd", "slurmd")
LOGROTATE = """\
# Written by the cluster's set-up. The daemons reopen their logs on SIGUSR2.
/var/log/slurm/*.log {
    weekly
    rotate 12
    compress
    delaycompress
    missingok
    notifempty
    sharedscripts
    postrotate
        for unit in slurmctld slurmdbd slurmd; do
            systemctl kill --signal=SIGUSR2 --kill-whom=main "$unit" 2>/dev/null || true
        done
    endscript
}
"""


def keep() -> None:
    """Have the folders for them, and have logs rotated."""
    # /run is empty after every boot: tmpfiles.d makes the folder again, before the daemons start.
    if write("/etc/tmpfiles.d/hpc-slurm.conf", "d /run/slurm 0755 slurm slurm -\n"):
        run("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/hpc-slurm.conf")
    folder("/var/log/slurm", owner="slurm")
    write("/etc/logrotate.d/hpc-slurm", LOGROTATE)
    # Debian's packages bring a file each, by size and with a reload. logrotate refuses a log that two files name.
    for unit in DAEMONS:
        theirs = Path("/etc/logrotate.d") / unit
        if theirs.exists():
            theirs.unlink()
            log(f"removed {theirs}")
