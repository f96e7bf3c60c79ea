"""The machine's file systems, as a block of lines in /etc/fstab.

With fstab the machine mounts them again at every boot, and an operator finds them in the usual place.
"""

import os
import re
import socket
from pathlib import Path
from typing import Any

from interface import SPOOLS, Mount
from system import text_block
from system.host import SetupError, enable, log, reload_units, run, succeeds, wait, which, write_unit

FSTAB = Path("/etc/fstab")
HELPERS = {"nfs": "nfs-common", "gcsfuse": "gcsfuse", "lustre": "lustre-client-utils"}
"""Types of file systems that need a program /sbin/mount.TYPE, and the package that contains it."""
CONTROLLER_SECONDS = 900  # the controller exports its folders at the end of its set-up, which begins at the same time
PORTS = {"nfs": 2049, "lustre": 988}


def mount_all(mounts: list[Mount], *, seconds: float = 120, controller: str = "") -> bool:
    """Write every mount to fstab and mount it; return whether anything changed.

    It waits up to `seconds` for each server, and for the `controller` (HOST:PORT) as long as its set-up may take.
    Raises SetupError if a mount fails, with the message of mount(8) and the state of the server as seen from here, and
    for a type of file system that this machine can't mount.
    """
    changed = write_fstab(mounts)
    reload_units()
    # Parents first: /opt before /opt/apps.
    for mount in sorted(mounts, key=lambda mount: mount["target"].count("/")):
        target = mount["target"]
        if is_mounted(target):
            continue
        Path(target).mkdir(parents=True, exist_ok=True)
        if not try_mount(target):
            try:
                on_controller = bool(controller) and mount["source"].startswith(controller.partition(":")[0] + ":")
                if on_controller:
                    log(f"waiting for the controller to share {target}")
                timeout = max(seconds, CONTROLLER_SECONDS) if on_controller else seconds
                wait(f"the mount of {target}", lambda t=target: try_mount(t), seconds=timeout, interval=1)
            except SetupError:
                try:
                    run("mount", target)  # again, for its error message
                except SetupError as error:
                    raise SetupError(f"{error}{describe_server(mount)}") from None
        log(f"mounted {mount['source']} on {target}")
        changed = True
    return changed


def write_fstab(mounts: list[Mount]) -> bool:
    """Write every mount to fstab; return whether it changed. Raises SetupError for a type that can't be mounted."""
    require_mount_programs(mounts)
    # Minimal images do not enable this target, and without it no network file system is mounted at a boot.
    if mounts:
        enable("remote-fs.target")
    return write_block(fstab_lines(mounts))


def write_block(lines: list[str], *, mark: str = text_block.MARK) -> bool:
    """Replace the block of lines under this mark in fstab; return whether it changed."""
    return write_unit(FSTAB, text_block.with_block(FSTAB.read_text() if FSTAB.exists() else "", lines, mark=mark))


def try_mount(target: str) -> bool:
    """Mount `target` as fstab says; return whether it is mounted now.

    While the machine boots, systemd may mount it first. The kernel then refuses the second mount.
    """
    return succeeds("mount", target) or is_mounted(target)


def is_mounted(target: str) -> bool:
    """Return whether something is mounted there, also a bind mount, by the kernel's table: no server is contacted."""
    point = target.replace(" ", "\\040")  # as in proc(5)
    return any(line.split()[4] == point for line in Path("/proc/self/mountinfo").read_text().splitlines())


def fstab_lines(mounts: list[Mount]) -> list[str]:
    """Return the fstab lines of `mounts`, with blanks in paths escaped as in fstab(5).

    nosuid and nodev: root of any machine may write to a shared file system, and must not become root of another one.
    """
    return [
        " ".join(
            field.replace(" ", "\\040")
            for field in (row["source"], row["target"], row["fs_type"], f"{row['options'] or 'defaults'},nosuid,nodev")
        )
        + " 0 0"
        for row in mounts
    ]


def require_mount_programs(mounts: list[Mount]) -> None:
    """Raise SetupError if a mount needs a program that is not installed."""
    for kind in {mount["fs_type"] for mount in mounts} & set(HELPERS):
        if not _has_helper(kind):
            targets = ", ".join(sorted(mount["target"] for mount in mounts if mount["fs_type"] == kind))
            raise SetupError(
                f"{targets} can't be mounted: this machine has no mount.{kind}; install the package {HELPERS[kind]}, "
                "or make the machine with an image that has it"
            )


def without_new_clients(mounts: list[Mount]) -> list[Mount]:
    """Return `mounts` without new ones whose client program comes with an image that this machine does not have yet.

    The controller is recreated with that image first, and does not leave out any. Mounts that are in fstab already are
    kept. On a machine without any mount yet all are kept: the client is missing from its own image, and it must not run
    jobs without its file systems.
    """
    before = _options()
    missing = {kind for kind in ("gcsfuse", "lustre") if not _has_helper(kind)}
    postponed = [
        mount["target"] for mount in mounts if before and mount["fs_type"] in missing and mount["target"] not in before
    ]
    if postponed:
        log(f"not mounted before this machine is recreated with another image: {', '.join(postponed)}")
    return [mount for mount in mounts if mount["target"] not in postponed]


def _has_helper(kind: str) -> bool:
    return bool(which(f"mount.{kind}", "/sbin:/usr/sbin:/bin:/usr/bin"))


def describe_server(mount: Mount) -> str:
    """Return whether the server of a mount answers, as a line for an error message; empty for one without a server."""
    port = PORTS.get(mount["fs_type"])
    host = re.split("[@:]", mount["source"])[0]
    if port is None or not host:
        return ""
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError as error:
        why = "does not answer" if isinstance(error, socket.timeout) else f"can't be reached ({error})"
        return f"\n{host}:{port} {why}: is the server up, the address right, and a firewall or peering in the way?"
    return f"\n{host}:{port} answers: the server is up, but does not give {mount['source']} to this machine"


def local_paths(roles: list[str]) -> list[str]:
    """Return the paths of this machine whose file system stops a daemon when it is full."""
    paths = ["/", "/var/log", "/var/log/slurm", *(SPOOLS[role] for role in roles if role in SPOOLS), "/var/lib/mysql"]
    return [path for path in paths if os.path.isdir(path)]  # noqa: PTH112 - Path.is_dir raises where a disk has an error


def shared_targets() -> list[str]:
    """Return the mount points of the shared file systems: those in the set-up's block of fstab."""
    return list(_options())


def shared_usage(path: str) -> dict[str, Any]:
    """Return the `disk_usage` of a shared file system, without any figures if it is not mounted.

    The kernel's table says whether it is: a call on the path itself would wait for a server that is gone. `read_only`
    is False for one whose fstab line has the option `ro`.
    """
    if not is_mounted(path):
        return {"mounted": False, "shared": True}
    usage = {"mounted": True, "shared": True, **disk_usage(path)}
    return {**usage, "read_only": usage["read_only"] and "ro" not in _options().get(path, [])}


def _options() -> dict[str, list[str]]:
    """Return the options of each mount in the set-up's block of fstab, by mount point."""
    rows = [line.split() for line in (text_block.lines_in_block(FSTAB.read_text()) if FSTAB.exists() else [])]
    return {row[1].replace("\\040", " "): row[3].split(",") if len(row) > 3 else [] for row in rows if len(row) > 1}


def disk_usage(path: str) -> dict[str, Any]:
    """Return bytes, inodes and the device number of the file system of `path`. The caller bounds the time.

    `free` is for everybody but root. A file system that does not count inodes has 0.
    """
    status = os.statvfs(path)
    return {
        "device": Path(path).stat().st_dev,
        "size": status.f_blocks * status.f_frsize,
        "used": (status.f_blocks - status.f_bfree) * status.f_frsize,
        "free": status.f_bavail * status.f_frsize,
        "inodes": status.f_files,
        "inodes_free": status.f_favail,
        "read_only": bool(status.f_flag & os.ST_RDONLY),
    }
