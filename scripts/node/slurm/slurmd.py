"""A compute node: slurmd, configless. It asks the controller for slurm.conf, so no file of Slurm's lives here."""

from __future__ import annotations

from slurm import log_files
from system.host import folder, run, service, write

DROP_IN = """\
# Written by the cluster's set-up.
[Unit]
# Configless: there is no slurm.conf on this machine, and the controller may come later than we do.
ConditionPathExists=
StartLimitIntervalSec=0
[Service]
Restart=on-failure
RestartSec=1
"""


def start(controller: str, epoch: str, *, at_boot: bool) -> None:
    """Have slurmd run. `controller` is where it asks for its files, as host:port, on the controller itself too.

    `epoch` stands for the settings that slurmd reads only when it starts; another one restarts it, and jobs go on.
    `at_boot`: systemd starts it at every boot. A machine that joins by itself does so when it has its file systems,
    users and key: it must not take jobs before.
    """
    log_files.keep()
    folder("/var/spool/slurmd")
    options = f"--conf-server {controller}"
    write("/etc/default/slurmd", f'SLURMD_OPTIONS="{options}"\n')
    if write("/etc/systemd/system/slurmd.service.d/hpc.conf", DROP_IN):
        run("systemctl", "daemon-reload")
    # Only asked for: slurmd tries again until the controller answers, and the machine need not wait for that.
    service("slurmd", settings=f"{options}\n{epoch}\n{DROP_IN}", block=False, enabled=at_boot)
