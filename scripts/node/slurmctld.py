"""The controller's daemons: slurmdbd, then slurmctld, with the files rendered for them."""

from __future__ import annotations

from pathlib import Path

import changes
import database
from system import folder, link, run, say, service, stop_service, succeeds, wait, write

ETC = Path("/etc/slurm")
STATE = Path("/var/spool/slurmctld")
PASSWORD_MARK = "@database-password@"  # noqa: S105 - the mark in the rendered slurmdbd.conf, not a password
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


def folders() -> None:
    """The folders that the daemons do not make themselves."""
    # /run is empty after every boot: tmpfiles.d makes the folder again, before the daemons start.
    if write("/etc/tmpfiles.d/hpc-slurm.conf", "d /run/slurm 0755 slurm slurm -\n"):
        run("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/hpc-slurm.conf")
    folder("/var/log/slurm", owner="slurm")
    write("/etc/logrotate.d/hpc-slurm", LOGROTATE)
    # Distributions differ in where the daemons' files are looked for; the field's own folder is /etc/slurm.
    for old in ("/etc/slurm-llnl", "/usr/local/etc/slurm"):
        if Path(old).is_dir() and not Path(old).is_symlink() and not any(Path(old).iterdir()):
            link(old, str(ETC))


def accounting_daemon(conf: str, *, database_started: bool) -> bool:
    """slurmdbd.conf (0600: it holds the password) and the daemon; True when it was (re)started."""
    text = conf.replace(PASSWORD_MARK, database.PASSWORD.read_text().strip())
    changed = write(ETC / "slurmdbd.conf", text, mode=0o600, owner="slurm")
    database.prepare()
    started = service("slurmdbd", restart=changed or database_started)
    if started:
        wait("slurmdbd", _answers, seconds=60, interval=0.2, help="see /var/log/slurm/slurmdbd.log")
    return started


def _answers() -> bool:
    return succeeds("sacctmgr", "--readonly", "show", "cluster", timeout=5)


def register_cluster(name: str) -> None:
    """Make the cluster known to slurmdbd before slurmctld first speaks to it: else the cluster ids will not match."""
    if name not in run("sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster").split():
        run("sacctmgr", "--immediate", "add", "cluster", name)
        say(f"registered cluster {name}")


def controller_daemon(files: dict[str, str]) -> None:
    """Write Slurm's files and have slurmctld run with them, by the mildest means: nothing, reconfigure, or a restart.

    Jobs survive all three. Raises SetupError when slurmctld does not answer afterwards.
    """
    folder(STATE, mode=0o700, owner="slurm")
    old = {name: (ETC / name).read_text() for name in files if (ETC / name).exists()}
    need = changes.need(old, files)
    for name, text in files.items():
        write(ETC / name, text)
    running = succeeds("systemctl", "is-active", "--quiet", "slurmctld")
    if need is changes.Need.NOTHING and running:
        return
    if need is changes.Need.RECONFIGURE and running:
        run("scontrol", "reconfigure")
        say("slurmctld: reconfigured")
        return
    service("slurmctld", restart=True)
    wait("slurmctld", lambda: "UP" in run("scontrol", "ping"), seconds=60, help="see /var/log/slurm/slurmctld.log")
    if old:
        # slurmd on the nodes gets its files from slurmctld, which hands out new ones only when told to.
        run("scontrol", "reconfigure")


def disable() -> None:
    """A machine without the controller role runs none of this."""
    for unit in ("slurmctld", "slurmdbd", "mariadb"):
        stop_service(unit)
