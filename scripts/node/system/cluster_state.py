"""The cluster state: a folder on the shared file system, with the config version and a report of every machine.

Nodes configure themselves: a change of users or of slurmd's settings reaches them through this folder. They poll it,
because no notification crosses a network file system.
"""

import contextlib
import hashlib
import json
import os
import pwd
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from interface import ClusterConfig, Report
from system import host, munge
from system.host import SetupError, folder, wait, write

FOLDER = Path("/opt/apps/adm/hpc")
CONFIG = FOLDER / "cluster.json"  # written by the controller; users, groups, what makes slurmd restart
CLIENT = FOLDER / "etc"  # slurm.conf for machines that have client tools only
REPORTS = FOLDER / "nodes"  # one file a machine
HEALTH = FOLDER / "health"  # one file a node
REGISTER = FOLDER / "register"  # nodes that are to register as after a boot, from the reconcile loop
JOBS = FOLDER / "jobs"  # what jobs of the controller's measurements print
METRICS = FOLDER / "metrics"  # what Prometheus has of jobs now, where it is not on the controller
GIVEN = ("nodes", "health", "jobs", "metrics")  # what other machines write is slurm's, the rest is root's
OWNER = "slurm"  # on every machine, with one number
PLACE = Path("/etc/hpc/place")  # what the cloud calls this machine's host, from scripts/gcp/start.py
LONGEST = 1 << 20  # bytes of a report
GRACE = 10  # seconds that a machine ignores an earlier failure of the controller
HOST_KEY = Path("/etc/ssh/ssh_host_ed25519_key.pub")


def publish(config: dict[str, Any], client: dict[str, str]) -> bool:
    """Write a config version and the client files; True when they differ from those that were there."""
    host.protect_shared(FOLDER)
    host.require_root_only(CLIENT)
    for path in (FOLDER.parent, FOLDER, CLIENT):
        if path.exists() and not path.is_dir():
            path.unlink()
        folder(path)
    for name in GIVEN:
        _folder_of_slurm(FOLDER / name)
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
        report = given(REPORTS / f"{controller}.json") if controller else {}
        if report.get("state") != "failed":
            seen.clear()
            return False
        # The failure of an earlier run is withdrawn when the controller starts, possibly a moment after this machine.
        if time.monotonic() - seen.setdefault("failed", time.monotonic()) < GRACE:
            return False
        raise SetupError(f"the set-up of {controller} failed, so no config version comes: {report['message']}")

    hint = "is the controller up, and its set-up done?"
    wait(f"the config version ({CONFIG})", there, seconds=seconds, interval=0.2, hint=hint)
    host.require_root_only(FOLDER)
    try:
        return json.loads(CONFIG.read_text())
    except ValueError:
        raise SetupError(
            f"can't read the config version ({CONFIG}). To do: run `./hpc drift STACK --mend`, which writes it again"
        ) from None


def withdraw_failure() -> None:
    """Take back this machine's report of an earlier failure: it is being set up again."""
    mine = REPORTS / f"{socket.gethostname()}.json"
    if given(mine).get("state") == "failed":
        _as_slurm('rm -f "$1"', mine)


def report_failure(message: str) -> None:
    """Report that this machine's set-up failed, so that others stop waiting for it; where the cluster state exists."""
    with contextlib.suppress(OSError, SetupError):
        if os.path.ismount(FOLDER.parents[1]) or FOLDER.is_dir():
            report("failed", "", message)


def report(state: str, version: str, message: str = "") -> None:
    """Write this machine's report: `state` is configured or failed, `version` the digest of the applied config version.

    It has the SSH host key too, which nodes generate themselves, the fingerprint of the MUNGE key, as a new key may be
    delivered after the config version that names it, and the machine's place, if the cloud gives one.
    """
    if not REPORTS.is_dir():
        folder(FOLDER)
        _folder_of_slurm(REPORTS)
    key = munge.fingerprint(munge.KEY.read_bytes()) if munge.KEY.exists() else ""
    found = Report(state=state, digest=version, message=message, boot=boot_id(), host_key=host_key(), munge=key)
    if where := (PLACE.read_text(errors="replace").strip() if PLACE.exists() else ""):
        found["place"] = where
    give(REPORTS / f"{socket.gethostname()}.json", json.dumps(found) + "\n")


def reports() -> dict[str, Report]:
    """The last report of every machine, by name; without those that can't be read."""
    found = {path.stem: given(path) for path in REPORTS.glob("*.json")} if REPORTS.is_dir() else {}
    return {name: report for name, report in found.items() if report}


def give(path: Path, text: str) -> None:
    """Write a file of GIVEN as slurm: root of this machine is nobody to the controller's NFS server, and a link that
    root of another machine put there leads to nothing that is not slurm's."""
    _as_slurm('new=$(mktemp "$1.XXXXXX") && cat >"$new" && chmod 644 "$new" && mv -fT "$new" "$1"', path, text)


def given(path: Path) -> Any:  # noqa: ANN401 - a JSON object
    """Return what a machine wrote there; empty for what is no regular file with a JSON object. No link is followed, and
    no pipe waited for: root of every machine may put anything there."""
    try:
        found = json.loads(given_text(path))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def given_text(path: Path) -> str:
    """The begin of a file of GIVEN; nothing where there is no regular file."""
    try:
        with host.open_regular(path) as file:
            return file.read(LONGEST).decode(errors="replace")
    except OSError:
        return ""


def _as_slurm(script: str, path: Path, text: str = "") -> None:
    """Run a line of sh with the path of a file as slurm; as root where a set-up has failed before Slurm was there."""
    try:
        account = pwd.getpwnam(OWNER)
    except KeyError:
        account = None
    user: dict[str, Any] = {}
    if account:
        user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    command = ["/bin/sh", "-c", script, "sh", str(path)]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False, cwd="/", **user)
    if done.returncode:
        raise SetupError(f"{path} can't be written by {OWNER}: {done.stderr.strip()}")


def _folder_of_slurm(path: Path) -> None:
    # A link in its place is not followed.
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    path.mkdir(exist_ok=True)
    with contextlib.suppress(KeyError):
        account = pwd.getpwnam(OWNER)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchown(handle, account.pw_uid, account.pw_gid)
            os.fchmod(handle, 0o755)
        finally:
            os.close(handle)


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
        write(path, os.urandom(16).hex(), quiet=True)
    return path.read_text()
