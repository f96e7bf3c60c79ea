"""slurmrestd, Slurm's REST API, and the key by which slurmctld and slurmdbd sign and know their tokens (auth/jwt)."""

from __future__ import annotations

import pwd
import socket
from pathlib import Path

from system.host import SetupError, forget, listens, log, run, service, stop_service, succeeds, wait, write

DELIVERED = Path("/etc/hpc/jwt.key")  # put here by the stack, root only
KEY = Path("/etc/slurm/jwt.key")  # as rendered (AuthAltParameters)
UNIT = Path("/etc/systemd/system/slurmrestd.service")  # in the place of the package's own
PROGRAM, PORT, USER = "/usr/sbin/slurmrestd", 6820, "slurmrestd"
SHELL = "/usr/sbin/nologin"
LOOPBACK = "127."


def keep_key() -> None:
    """Install the key that slurmctld and slurmdbd are about to read, 0600 and slurm's own.

    Raises SetupError, before anything was changed, where this machine can't run slurmrestd, or has no key.
    """
    if not Path(PROGRAM).exists():
        raise SetupError("slurm.slurmrestd: there is no slurmrestd on this machine: its image is of an earlier version")
    if not DELIVERED.exists():
        raise SetupError(f"slurm.slurmrestd: no key for tokens was delivered: {DELIVERED} is missing")
    key = DELIVERED.read_bytes()
    if not KEY.exists() or KEY.read_bytes() != key:
        # They read it when they start, and are started by who calls this; jobs do not notice. Ended first, lest a kill
        # comes between.
        for name in ("slurmctld", "slurmdbd"):
            if succeeds("systemctl", "is-active", "--quiet", name):
                run("systemctl", "stop", name)
    write(KEY, key, mode=0o600, owner="slurm")


def start() -> None:
    """Have slurmrestd running as a user of its own: it refuses root and slurm. slurmctld must answer."""
    try:
        pwd.getpwnam(USER)
    except KeyError:
        run(
            "useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell", SHELL,
            USER,
        )  # fmt: skip
        log(f"made the user {USER}")
    address = socket.gethostbyname(socket.gethostname())
    if address.startswith(LOOPBACK):
        raise SetupError(f"{socket.gethostname()} is {address} on this machine, where no other reaches slurmrestd")
    text = unit(address)
    if write(UNIT, text):
        run("systemctl", "daemon-reload")
    service("slurmrestd", settings=text)
    wait("slurmrestd", lambda: listens(PORT), seconds=60, unit="slurmrestd")


def unit(address: str) -> str:
    """The unit: on the cluster's own network alone, and for nobody without a token. A pure function."""
    return f"""\
# Written by the cluster's set-up.
[Unit]
Description=Slurm REST daemon
After=network-online.target slurmctld.service
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
User={USER}
Group={USER}
# The token comes with each request.
Environment=SLURM_JWT=daemon
ExecStart={PROGRAM} -a rest_auth/jwt {address}:{PORT}
Restart=on-failure
RestartSec=2
NoNewPrivileges=yes

[Install]
WantedBy=multi-user.target
"""


def undo() -> None:
    """Take all of it away; slurmctld and slurmdbd must no longer know the key. Also where there is nothing of it."""
    stop_service("slurmrestd")  # the package's own too, which an image may have left enabled
    if UNIT.exists():
        UNIT.unlink()
        run("systemctl", "daemon-reload")
        forget("slurmrestd")
        log("removed slurmrestd's unit")
    for path in (KEY, DELIVERED):
        path.unlink(missing_ok=True)
    if any(row.pw_name == USER for row in pwd.getpwall()):
        run("userdel", USER)
