"""The board: a folder on the shared file system. The controller says there what holds, every machine what it did.

Nodes configure themselves, so nobody logs in to them: a change of users or of slurmd's settings reaches them through
here. Polled, because no notification crosses a network file system.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import time
import uuid
from pathlib import Path
from typing import Any

from system import munge, root_only
from system.host import SetupError, folder, kept, wait, write

BOARD = Path("/opt/apps/adm/hpc")
ORDERS = BOARD / "cluster.json"  # the controller's word: users, groups, what makes slurmd restart
CLIENT = BOARD / "etc"  # slurm.conf for machines that have client tools only
REPORTS = BOARD / "nodes"  # one file a machine
GRACE = 10  # seconds that a machine waits for another whose earlier failure it finds
HOST_KEY = Path("/etc/ssh/ssh_host_ed25519_key.pub")


def publish(orders: dict[str, Any], client: dict[str, str]) -> bool:
    """Put up new orders and client files; True when they differ from what was there."""
    root_only.hold(BOARD)
    for path in (BOARD.parent, BOARD, CLIENT, REPORTS):
        if path.exists() and not path.is_dir():
            path.unlink()
        folder(path)
    changed = [write(CLIENT / name, text) for name, text in sorted(client.items())]
    for stale in set(CLIENT.iterdir()) - {CLIENT / name for name in client}:
        stale.unlink()
        changed.append(True)
    changed.append(write(ORDERS, json.dumps({**orders, "digest": digest(orders)}, indent=1) + "\n"))
    return any(changed)


def orders(*, seconds: float = 900, controller: str = "") -> dict[str, Any]:
    """The controller's orders, once they are there.

    Raises SetupError after `seconds`, or as soon as the set-up of the machine `controller` has failed: who sets that up
    tries again only when all have ended.
    """
    seen: dict[str, float] = {}

    def there() -> bool:
        if ORDERS.exists():
            return True
        report = kept(REPORTS / f"{controller}.json", {}) if controller else {}
        if report.get("state") != "failed":
            seen.clear()
            return False
        # A failure of another time is taken back when the controller begins, which may be a moment after us.
        if time.monotonic() - seen.setdefault("failed", time.monotonic()) < GRACE:
            return False
        raise SetupError(f"the set-up of {controller} failed, so there is nothing to wait for: {report['message']}")

    wait(
        f"the controller's orders ({ORDERS})", there, seconds=seconds, interval=0.2,
        hint="is the controller up, and its set-up done?",
    )  # fmt: skip
    root_only.check(BOARD)
    try:
        return json.loads(ORDERS.read_text())
    except ValueError:
        raise SetupError(
            f"the controller's orders can't be read ({ORDERS}): `./hpc drift STACK --mend` writes them anew"
        ) from None


def withdraw() -> None:
    """What this machine reported of an earlier failure does not hold while it is set up again."""
    mine = REPORTS / f"{socket.gethostname()}.json"
    if kept(mine, {}).get("state") == "failed":
        mine.unlink(missing_ok=True)


def tell_failure(message: str) -> None:
    """Tell that this machine's set-up failed, so that who waits for it need not; where there is a board already."""
    with contextlib.suppress(OSError, SetupError):
        if os.path.ismount(BOARD.parents[1]) or BOARD.is_dir():
            report("failed", "", message)


def report(state: str, order: str, message: str = "") -> None:
    """Tell what this machine did: `state` is configured or failed, `order` the digest of the orders it followed.

    And by which key it is known to who logs in: a node that makes its own has nobody else to tell it to; and with which
    MUNGE key it runs, by its fingerprint: another one of the stack's may come after the orders that name it.
    """
    folder(REPORTS)
    found = {
        "state": state, "digest": order, "message": message, "boot": boot_id(), "host_key": host_key(),
        "munge": munge.fingerprint(munge.KEY.read_bytes()) if munge.KEY.exists() else "",
    }  # fmt: skip
    write(REPORTS / f"{socket.gethostname()}.json", json.dumps(found) + "\n")


def reports() -> dict[str, dict[str, str]]:
    """What every machine reported last, by its name; without those whose report can't be read."""
    found = {path.stem: kept(path, {}) for path in REPORTS.glob("*.json")} if REPORTS.is_dir() else {}
    return {name: report for name, report in found.items() if report}


def host_key() -> str:
    """Public half of this machine's SSH host key without its comment, as known_hosts has it; empty if it has none."""
    return " ".join(HOST_KEY.read_text().split()[:2]) if HOST_KEY.exists() else ""


def host_keys() -> dict[str, str]:
    """The SSH host keys of all machines that told theirs, by name."""
    return {name: key for name, report in sorted(reports().items()) if (key := report.get("host_key", ""))}


def digest(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A short stable hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def boot_id() -> str:
    """A word that changes with every boot of this machine. (The kernel's own is shared by all containers of a host.)"""
    kept = Path("/run/hpc/boot-id")
    if not kept.exists():
        write(kept, uuid.uuid4().hex, quiet=True)
    return kept.read_text()
