"""MUNGE: the cluster's key, and the daemon that authenticates with it."""

import hashlib
import time
from pathlib import Path
from typing import Any

from system.host import SetupError, folder, forget, log, run, service, write

DELIVERED = Path("/etc/hpc/munge.key")  # from the platform's secret channel, for root only
KEY = Path("/etc/munge/munge.key")


def start(wanted: str | None = None) -> bool:
    """Install the delivered key and run munged with it; return whether munged was started or restarted.

    `wanted` is the fingerprint of the controller's key, from the config version: a node keeps its key until the
    controller has changed to the delivered one, so that both change within seconds.

    A munged that does not authenticate is restarted. Raises SetupError if no key was delivered, or if munged does not
    accept its own credential after its restart.
    """
    if not DELIVERED.exists():
        raise SetupError(f"no MUNGE key was delivered: {DELIVERED} is missing, so this machine cannot join the cluster")
    key = DELIVERED.read_bytes()
    before = KEY.read_bytes() if KEY.exists() else b""
    if wanted is not None and fingerprint(key) != wanted == fingerprint(before):
        log("the controller has not changed to the MUNGE key that was delivered: kept the one before")
        key = before
    folder(KEY.parent, mode=0o700, owner="munge")
    if before != key:
        # munged may run with the other key. `forget` comes first, so that a kill in between does not skip the restart.
        forget("munge")
    write(KEY, key, mode=0o400, owner="munge")
    # munged refuses a log or a key in a folder that others can write to.
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
    """Return whether munged creates a credential and accepts it within ten seconds; the machine may be busy."""
    try:
        _test_credential(10)
    except SetupError:
        return False
    return True


def _test_credential(seconds: float) -> str:
    return run("unmunge", stdin=run("munge", "--no-input", timeout=seconds), timeout=seconds)


def fingerprint(key: bytes) -> str:
    """Return a short hash that identifies a key, the same as in components/slurm/keys.py."""
    return hashlib.sha256(key).hexdigest()[:12]


def check() -> dict[str, Any]:
    """Return whether munged accepts its own credential, and fingerprints of its key and of the delivered one.

    `ahead`: the whole seconds by which munged's clock differs from this machine's.
    """
    status: dict[str, Any] = {"works": False, "key": "", "delivered": ""}
    for name, file in (("key", KEY), ("delivered", DELIVERED)):
        if file.exists():
            status[name] = fingerprint(file.read_bytes())
    try:
        printed = _test_credential(2)
    except SetupError as error:
        return {**status, "why": str(error)}
    encoded = next((line for line in printed.splitlines() if line.startswith("ENCODE_TIME:")), "")
    ahead = int(encoded.rpartition("(")[2].rstrip(")")) - time.time() if encoded else 0.0
    # MUNGE counts whole seconds, and this line runs a moment later.
    return {**status, "works": True, "ahead": round(ahead) if abs(ahead) > 2 else 0}
