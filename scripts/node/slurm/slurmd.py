"""Slurm on every machine: logs and their rotation, MPI's library, plugstack.conf; and slurmd on compute nodes."""

from pathlib import Path

from interface import SPOOLS
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
    """Create the folders for logs, and configure their rotation."""
    # /run is empty after every boot: tmpfiles.d creates the folder before the daemons start.
    write("/etc/tmpfiles.d/hpc-slurm.conf", "d /run/slurm 0755 slurm slurm -\n")
    folder("/run/slurm", owner="slurm")
    folder("/var/log/slurm", owner="slurm")
    write("/etc/logrotate.d/hpc-slurm", LOGROTATE)
    # Each of Debian's packages has a file of its own, and logrotate refuses a log that two files name.
    for unit in DAEMONS:
        of_package = Path("/etc/logrotate.d") / unit
        if of_package.exists():
            of_package.unlink()
            log(f"removed {of_package}")


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
    """Write the options and the drop-in of slurmd's unit, and return both. `controller` is the slurmctld (host:port)
    that slurmd gets its files from, also on the controller itself."""
    options = f"--conf-server {controller}"
    write("/etc/default/slurmd", f'SLURMD_OPTIONS="{options}"\n')
    write_unit("/etc/systemd/system/slurmd.service.d/hpc.conf", DROP_IN)
    return f"{options}\n{DROP_IN}"


def start_slurmd(controller: str, epoch: str, *, at_boot: bool) -> None:
    """Run slurmd with the settings of `write_settings`.

    `epoch` is the hash of the settings that slurmd reads only when it starts: another one restarts it, and jobs go on.
    `at_boot`: systemd starts slurmd at every boot. On a machine that sets itself up, the set-up starts it, when file
    systems, users and key are in place: it must not take jobs before.
    """
    keep_logs()
    folder(SPOOLS["node"])
    settings = write_settings(controller)
    # It is not waited for: slurmd retries until the controller answers.
    service("slurmd", settings=f"{settings}\n{epoch}", block=False, enabled=at_boot)


def stop_controller_daemons() -> None:
    """Stop the controller's daemons on a machine that is not the controller."""
    stop_services("slurmctld", "slurmdbd", "mariadb")


def link_pmix(root: Path = Path("/usr/lib")) -> bool:
    """Link libpmix.so to every installed libpmix.so.2, and return whether a link was made.

    Slurm's plugin opens pmix2/lib/libpmix.so, which Debian and Ubuntu ship with the headers only, so that
    `srun --mpi=pmix`, the default, would fail on every machine without a compiler.
    """
    made = [link(path.with_name("libpmix.so"), path.name) for path in root.glob("*/pmix2/lib/libpmix.so.2")]
    return any(made)


ETC = Path("/etc/slurm")
EMPTY = "# Written by the cluster's set-up: there is no SPANK plugin.\n"


def drop_empty_include(etc: Path = ETC) -> bool:
    """Remove the include of Debian 13's plugstack.conf while no file matches it, and return whether it was removed.

    slurmctld can't send included patterns to machines that get their files from it: each of its starts and each of
    their requests would be an error in its log (src/common/parse_config.c, from 23.11 on).
    """
    file = etc / "plugstack.conf"
    if not file.is_file() or any((etc / "plugstack.conf.d").glob("*.conf")):
        return False
    lines = [line.split() for line in file.read_text().splitlines() if line.strip() and not line.startswith("#")]
    if lines != [["include", f"{ETC}/plugstack.conf.d/*.conf"]]:
        return False
    return write(file, EMPTY)
