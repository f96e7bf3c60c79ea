"""MUNGE: the key that makes a machine a member, and the daemon that vouches with it."""

from __future__ import annotations

from pathlib import Path

from system import SetupError, folder, run, service, write

DELIVERED = Path("/etc/hpc/munge.key")  # put here by the platform's own secret channel, root only
KEY = Path("/etc/munge/munge.key")


def start() -> bool:
    """Install the delivered key, 0400 and munge's own, and have munged run with it; True when it was (re)started.

    Raises SetupError when no key was delivered, or when munged does not accept its own credential.
    """
    if not DELIVERED.exists():
        raise SetupError(f"no MUNGE key was delivered: {DELIVERED} is missing, so this machine cannot join the cluster")
    key = DELIVERED.read_bytes()
    folder(KEY.parent, mode=0o700, owner="munge")
    write(KEY, key, mode=0o400, owner="munge")
    # munged refuses to log into a folder that others can write to, and takes no key from one.
    folder("/var/log/munge", mode=0o700, owner="munge")
    started = service("munge", settings=key.hex())
    if started:
        run("unmunge", stdin=run("munge", "--no-input"))
    return started
