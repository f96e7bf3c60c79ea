"""The cluster state: a folder on the shared file system, with the config version and a report of every machine.

Nodes configure themselves: a change of users or of slurmd's settings reaches them through this folder. They poll it,
because no notification crosses a network file system.
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

from interface import ClusterConfig, Report
from system import munge, root_only
from system.host import SetupError, folder, read_json, wait, write

FOLDER = Path("/opt/apps/adm/hpc")
CONFIG = FOLDER / "cluster.json"  # written by the controller; users, groups, what makes slurmd restart
CLIENT = FOLDER / "etc"  # slurm.conf for machines that have client tools only
REPORTS = FOLDER / "nodes"  # one file a machine
GRACE = 10  # seconds that a machine ignores an earlier failure of the controller
HOST_KEY = Path("/etc/ssh/ssh_host_ed25519_key.pub")


def publish(config: dict[str, Any], client: dict[str, str]) -> bool:
    """Write a config version and the client files; True when they differ from those that were there."""
    root_only.protect(FOLDER)
    for path in (CLIENT, REPORTS):
        root_only.check(path)
    for path in (FOLDER.parent, FOLDER, CLIENT, REPORTS):
        if path.exists() and not path.is_dir():
            path.unlink()
        folder(path)
    changed = [write(CLIENT / name, text) for name, text in sorted(client.items())]
    for stale in set(CLIENT.iterdir()) - {CLIENT / name for name in client}:
        stale.unlink()
        changed.append(True)
    changed.append(write(CONFIG, json.dumps({**config, "digest": digest(config)}, indent=1) + "\n"))
    return any(changed)


def wait_for_config(*, seconds: float = 900, controller: str = "") -> ClusterConfig:
    """Wait for the config version, and return it.

    Raises SetupError after `seconds`, or as soon as the set-up of the machine `controller` has failed: it is only run
    again when all have ended.
    """
    seen: dict[str, float] = {}

    def there() -> bool:
        if CONFIG.exists():
            return True
        report = read_json(REPORTS / f"{controller}.json", {}) if controller else {}
        if report.get("state") != "failed":
            seen.clear()
            return False
        # The failure of an earlier run is withdrawn when the controller starts, possibly a moment after this machine.
        if time.monotonic() - seen.setdefault("failed", time.monotonic()) < GRACE:
            return False
        raise SetupError(f"the set-up of {controller} failed, so no config version comes: {report['message']}")

    wait(
        f"the config version ({CONFIG})", there, seconds=seconds, interval=0.2,
        hint="is the controller up, and its set-up done?",
    )  # fmt: skip
    root_only.check(FOLDER)
    try:
        return json.loads(CONFIG.read_text())
    except ValueError:
        raise SetupError(
            f"can't read the config version ({CONFIG}). To do: run `./hpc drift STACK --mend`, which writes it again"
        ) from None


def withdraw_failure() -> None:
    """Remove this machine's report of an earlier failure: it is being set up again."""
    mine = REPORTS / f"{socket.gethostname()}.json"
    if read_json(mine, {}).get("state") == "failed":
        mine.unlink(missing_ok=True)


def report_failure(message: str) -> None:
    """Report that this machine's set-up failed, so that others stop waiting for it; where the cluster state exists."""
    with contextlib.suppress(OSError, SetupError):
        if os.path.ismount(FOLDER.parents[1]) or FOLDER.is_dir():
            report("failed", "", message)


def report(state: str, version: str, message: str = "") -> None:
    """Write this machine's report: `state` is configured or failed, `version` the digest of the applied config version.

    It has the SSH host key too, which nodes generate themselves, and the fingerprint of the MUNGE key: a new key may be
    delivered after the config version that names it.
    """
    folder(REPORTS)
    found: Report = {
        "state": state, "digest": version, "message": message, "boot": boot_id(), "host_key": host_key(),
        "munge": munge.fingerprint(munge.KEY.read_bytes()) if munge.KEY.exists() else "",
    }  # fmt: skip
    write(REPORTS / f"{socket.gethostname()}.json", json.dumps(found) + "\n")


def reports() -> dict[str, Report]:
    """The last report of every machine, by name; without those that can't be read."""
    found = {path.stem: read_json(path, {}) for path in REPORTS.glob("*.json")} if REPORTS.is_dir() else {}
    return {name: report for name, report in found.items() if report}


def host_key() -> str:
    """Public half of this machine's SSH host key without its comment, as known_hosts has it; empty if it has none."""
    return " ".join(HOST_KEY.read_text().split()[:2]) if HOST_KEY.exists() else ""


def host_keys() -> dict[str, str]:
    """The reported SSH host keys, by machine."""
    return {name: key for name, report in sorted(reports().items()) if (key := report.get("host_key", ""))}


def digest(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A short stable hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def boot_id() -> str:
    """An id of this boot. (The kernel's own is shared by all containers of a host.)"""
    path = Path("/run/hpc/boot-id")
    if not path.exists():
        write(path, uuid.uuid4().hex, quiet=True)
    return path.read_text()
