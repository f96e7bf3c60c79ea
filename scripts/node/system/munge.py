"""MUNGE: the key that makes a machine a member, and the daemon that authenticates with it."""

import hashlib
import time
from pathlib import Path
from typing import Any

from system.host import SetupError, folder, forget, log, run, service, write

DELIVERED = Path("/etc/hpc/munge.key")  # put here by the platform's own secret channel, root only
KEY = Path("/etc/munge/munge.key")


def start(wanted: str | None = None) -> bool:
    """Install the delivered key, 0400 and munge's own, and have munged run with it; True when it was (re)started.

    `wanted` is the fingerprint of the controller's key, from the config version: a node keeps its key until the
    controller has changed to the delivered one, so that both change within seconds.

    A munged that does not authenticate is restarted. Raises SetupError when no key was delivered, or when munged does
    not accept its own credential after that either.
    """
    if not DELIVERED.exists():
        raise SetupError(f"no MUNGE key was delivered: {DELIVERED} is missing, so this machine cannot join the cluster")
    key = DELIVERED.read_bytes()
    had = KEY.read_bytes() if KEY.exists() else b""
    if wanted is not None and fingerprint(key) != wanted == fingerprint(had):
        log("the controller has not changed to the MUNGE key that was delivered: kept the one before")
        key = had
    folder(KEY.parent, mode=0o700, owner="munge")
    if had != key:
        # Whoever put another key there may have started munged with it; forgotten first, lest a kill comes between.
        forget("munge")
    write(KEY, key, mode=0o400, owner="munge")
    # munged refuses to log into a folder that others can write to, and takes no key from one.
    folder("/var/log/munge", mode=0o700, owner="munge")
    started = service("munge", settings=key.hex())
    if not started and not authenticates():
        log("munged is running but does not authenticate: restarting it")
        forget("munge")
        started = service("munge", settings=key.hex())
    if started:
        _test_credential(120)
    return started


def authenticates() -> bool:
    """Return whether munged makes a credential and accepts it; it is given ten seconds, since a machine may be busy."""
    try:
        _test_credential(10)
    except SetupError:
        return False
    return True


def _test_credential(seconds: float) -> str:
    return run("unmunge", stdin=run("munge", "--no-input", timeout=seconds), timeout=seconds)


def fingerprint(key: bytes) -> str:
    """A short hash that identifies a key; components/slurm/keys.py has the same."""
    return hashlib.sha256(key).hexdigest()[:12]


def check() -> dict[str, Any]:
    """Return whether munged accepts its own credential, and a fingerprint of its key: no machine accepts another key.

    `ahead`: by how many whole seconds munged's clock differs from this machine's.
    """
    found: dict[str, Any] = {"works": False, "key": "", "delivered": ""}
    for name, file in (("key", KEY), ("delivered", DELIVERED)):
        if file.exists():
            found[name] = fingerprint(file.read_bytes())
    try:
        said = _test_credential(2)
    except SetupError as error:
        return {**found, "why": str(error)}
    encoded = next((line for line in said.splitlines() if line.startswith("ENCODE_TIME:")), "")
    ahead = int(encoded.rpartition("(")[2].rstrip(")")) - time.time() if encoded else 0.0
    # MUNGE counts whole seconds, and this line comes a moment after its own.
    return {**found, "works": True, "ahead": round(ahead) if abs(ahead) > 2 else 0}
