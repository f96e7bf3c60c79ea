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

from interface import ClusterDocument, MachineReport
from system import host, munge
from system.host import SetupError, folder, wait, write

FOLDER = Path("/opt/apps/adm/hpc")
CONFIG = FOLDER / "cluster.json"  # written by the controller; users, groups, what makes slurmd restart
CLIENT = FOLDER / "etc"  # slurm.conf for machines that have client tools only
REPORTS = FOLDER / "nodes"  # one file per machine
HEALTH = FOLDER / "health"  # one file per node
REGISTER = FOLDER / "register"  # from the reconcile loop: nodes that must register as after a boot
JOBS = FOLDER / "jobs"  # output of the jobs that measure nodes
METRICS = FOLDER / "metrics"  # GPU use of jobs, from Prometheus where it has a machine of its own
MACHINE_FOLDERS = ("nodes", "health", "jobs", "metrics")  # other machines write here, as slurm; the rest is root's
OWNER = "slurm"  # has the same uid on every machine
PLACE = Path("/etc/hpc/place")  # the cloud's name of this machine's host, written by scripts/gcp/start.py
LONGEST = 1 << 20  # bytes that are read of a report
GRACE = 10  # seconds for which a machine ignores an earlier failure of the controller
HOST_KEY = Path("/etc/ssh/ssh_host_ed25519_key.pub")


def publish(config: dict[str, Any], client: dict[str, str]) -> bool:
    """Write a config version and the files for clients; return whether any of them changed."""
    host.protect_shared(FOLDER)
    host.require_root_only(CLIENT)
    for path in (FOLDER.parent, FOLDER, CLIENT):
        if path.exists() and not path.is_dir():
            path.unlink()
        folder(path)
    for name in MACHINE_FOLDERS:
        _make_folder_of_slurm(FOLDER / name)
    changed = [write(CLIENT / name, text) for name, text in sorted(client.items())]
    for obsolete in set(CLIENT.iterdir()) - {CLIENT / name for name in client}:
        obsolete.unlink()
        changed.append(True)
    changed.append(write(CONFIG, json.dumps({**config, "digest": digest(config)}, indent=1) + "\n"))
    return any(changed)


def wait_for_config(*, seconds: float = 900, controller: str = "") -> ClusterDocument:
    """Wait for the config version, and return it.

    Raises SetupError after `seconds`, or as soon as the set-up of the machine `controller` has failed: `up` runs it
    again only after the set-up of every machine has ended.
    """
    failed_since: float | None = None

    def is_published() -> bool:
        nonlocal failed_since
        if CONFIG.exists():
            return True
        report = read_object(REPORTS / f"{controller}.json") if controller else {}
        if report.get("state") != "failed":
            failed_since = None
            return False
        # The controller withdraws the failure of an earlier run when it starts, possibly a moment after this machine.
        failed_since = failed_since or time.monotonic()
        if time.monotonic() - failed_since < GRACE:
            return False
        raise SetupError(f"the set-up of {controller} failed, so no config version comes: {report['message']}")

    hint = "is the controller up, and its set-up done?"
    wait(f"the config version ({CONFIG})", is_published, seconds=seconds, interval=0.2, hint=hint)
    host.require_root_only(FOLDER)
    try:
        return json.loads(CONFIG.read_text())
    except ValueError:
        raise SetupError(
            f"can't read the config version ({CONFIG}). To do: run `./hpc drift STACK --mend`, which writes it again"
        ) from None


def withdraw_failure() -> None:
    """Delete this machine's report of an earlier failure, because its set-up runs again."""
    path = REPORTS / f"{socket.gethostname()}.json"
    if read_object(path).get("state") == "failed":
        _run_as_slurm('rm -f "$1"', path)


def report_failure(message: str) -> None:
    """Report that this machine's set-up failed, so that others stop waiting for it, if the cluster state exists."""
    with contextlib.suppress(OSError, SetupError):
        if os.path.ismount(FOLDER.parents[1]) or FOLDER.is_dir():
            report("failed", "", message)


def report(state: str, version: str, message: str = "") -> None:
    """Write this machine's report: `state` is configured or failed, `version` the digest of the applied config version.

    The report also has the SSH host key, which nodes generate themselves; the fingerprint of the MUNGE key, since a new
    key may arrive after the config version that names it; and the machine's place, if the cloud names one.
    """
    if not REPORTS.is_dir():
        folder(FOLDER)
        _make_folder_of_slurm(REPORTS)
    key = munge.fingerprint(munge.KEY.read_bytes()) if munge.KEY.exists() else ""
    content = MachineReport(
        state=state, digest=version, message=message, boot=boot_id(), host_key=host_key(), munge=key
    )
    if place := (PLACE.read_text(errors="replace").strip() if PLACE.exists() else ""):
        content["place"] = place
    write_as_slurm(REPORTS / f"{socket.gethostname()}.json", json.dumps(content) + "\n")


def reports() -> dict[str, MachineReport]:
    """Return the last report of every machine, by name, without those that can't be read."""
    return {path.stem: report for path in REPORTS.glob("*.json") if (report := read_object(path))}


def write_as_slurm(path: Path, text: str) -> None:
    """Write a file of MACHINE_FOLDERS as slurm.

    The controller's NFS server maps root of this machine to nobody. A link that root of another machine has put in the
    file's place then leads to nothing but slurm's own files.
    """
    _run_as_slurm('new=$(mktemp "$1.XXXXXX") && cat >"$new" && chmod 644 "$new" && mv -fT "$new" "$1"', path, text)


def read_object(path: Path) -> Any:  # noqa: ANN401 - a JSON object
    """Return the JSON object in a file of MACHINE_FOLDERS, or an empty one if there is no regular file with one.

    It follows no link and waits for no pipe, because root of every machine may put anything there.
    """
    try:
        value = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_text(path: Path) -> str:
    """Return the beginning of a file of MACHINE_FOLDERS, or an empty text if it is not a regular file."""
    try:
        with host.open_regular(path) as file:
            return file.read(LONGEST).decode(errors="replace")
    except OSError:
        return ""


def _run_as_slurm(script: str, path: Path, text: str = "") -> None:
    """Run a line of sh with the path of a file as slurm, or as root if a set-up failed before that user existed."""
    user: dict[str, Any] = {}
    with contextlib.suppress(KeyError):
        account = pwd.getpwnam(OWNER)
        user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    command = ["/bin/sh", "-c", script, "sh", str(path)]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False, cwd="/", **user)
    if done.returncode:
        raise SetupError(f"{path} can't be written by {OWNER}: {done.stderr.strip()}")


def _make_folder_of_slurm(path: Path) -> None:
    # If a link is in its place, replace the link and do not follow it.
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
    """Return the public SSH host key of this machine without its comment, as in known_hosts; empty if it has none."""
    return " ".join(HOST_KEY.read_text().split()[:2]) if HOST_KEY.exists() else ""


def host_keys() -> dict[str, str]:
    """Return the reported SSH host keys, by machine."""
    return {name: key for name, report in sorted(reports().items()) if (key := report.get("host_key", ""))}


def digest(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a short stable hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def boot_id() -> str:
    """Return an id of this boot. (All containers of a host share the kernel's own.)"""
    path = Path("/run/hpc/boot-id")
    if not path.exists():
        write(path, os.urandom(16).hex(), quiet=True)
    return path.read_text()
