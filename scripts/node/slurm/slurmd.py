"""Slurm on every machine: logs and their rotation, MPI's library, plugstack.conf; and slurmd on compute nodes."""

from pathlib import Path

from system.host import folder, link, log, service, stop_services, write, write_unit

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


def keep_logs() -> None:
    """Have the folders for them, and have logs rotated."""
    # /run is empty after every boot: tmpfiles.d makes the folder again, before the daemons start.
    write("/etc/tmpfiles.d/hpc-slurm.conf", "d /run/slurm 0755 slurm slurm -\n")
    folder("/run/slurm", owner="slurm")
    folder("/var/log/slurm", owner="slurm")
    write("/etc/logrotate.d/hpc-slurm", LOGROTATE)
    # Debian's packages bring a file each, by size and with a reload. logrotate refuses a log that two files name.
    for unit in DAEMONS:
        theirs = Path("/etc/logrotate.d") / unit
        if theirs.exists():
            theirs.unlink()
            log(f"removed {theirs}")


DROP_IN = """\
# Written by the cluster's set-up.
[Unit]
# Configless: there is no slurm.conf on this machine, and the controller may come later than we do.
ConditionPathExists=
StartLimitIntervalSec=0
[Service]
Restart=on-failure
RestartSec=1
# For one start, from watch.sh.
EnvironmentFile=-/run/hpc/slurmd-once
"""


def write_settings(controller: str) -> str:
    """Write what systemd starts slurmd with, and return it. `controller` is where slurmd asks for its files, as
    host:port, on the controller itself too."""
    options = f"--conf-server {controller}"
    write("/etc/default/slurmd", f'SLURMD_OPTIONS="{options}"\n')
    write_unit("/etc/systemd/system/slurmd.service.d/hpc.conf", DROP_IN)
    return f"{options}\n{DROP_IN}"


def start_slurmd(controller: str, epoch: str, *, at_boot: bool) -> None:
    """Have slurmd run with `write_settings`.

    `epoch` stands for the settings that slurmd reads only when it starts; another one restarts it, and jobs go on.
    `at_boot`: systemd starts it at every boot. A machine that joins by itself does so when it has its file systems,
    users and key: it must not take jobs before.
    """
    keep_logs()
    folder("/var/spool/slurmd")
    settings = write_settings(controller)
    # Only asked for: slurmd tries again until the controller answers, and the machine need not wait for that.
    service("slurmd", settings=f"{settings}\n{epoch}", block=False, enabled=at_boot)


def stop_controller_daemons() -> None:
    """A machine without the controller role runs none of them."""
    stop_services("slurmctld", "slurmdbd", "mariadb")


def link_pmix(root: Path = Path("/usr/lib")) -> bool:
    """Give every installed libpmix.so.2 its plain name beside it; True when a link was made.

    Slurm's plugin opens pmix2/lib/libpmix.so, which Debian and Ubuntu ship with the headers only, so that
    `srun --mpi=pmix`, the default, would fail on every machine without a compiler.
    """
    made = [link(path.with_name("libpmix.so"), path.name) for path in sorted(root.glob("*/pmix2/lib/libpmix.so.2"))]
    return any(made)


ETC = Path("/etc/slurm")
EMPTY = "# Written by the cluster's set-up: there is no SPANK plugin.\n"


def drop_empty_include(etc: Path = ETC) -> bool:
    """Leave out the pattern that Debian 13's plugstack.conf includes while no file is of it; True when that was done.

    slurmctld can't send patterns to machines that fetch their files from it: each of its starts, and each of their
    requests, would be an error in its log (src/common/parse_config.c, from 23.11 on).
    """
    file = etc / "plugstack.conf"
    if not file.is_file() or any((etc / "plugstack.conf.d").glob("*.conf")):
        return False
    said = [line.split() for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    if said != [["include", f"{ETC}/plugstack.conf.d/*.conf"]]:
        return False
    return write(file, EMPTY)
