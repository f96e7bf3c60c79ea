"""The machine's file systems: lines in /etc/fstab, marked as ours, and mounted.

fstab rather than a mount of our own: the machine mounts them again at every boot, and an operator finds them where they
are looked for.
"""

import os
import re
import socket
from pathlib import Path
from typing import Any

from interface import Mount
from system import text_block
from system.host import SetupError, enable, log, reload_units, run, succeeds, wait, which, write_unit

FSTAB = Path("/etc/fstab")
HELPERS = {"nfs": "nfs-common", "gcsfuse": "gcsfuse", "lustre": "lustre-client-utils"}
"""Kinds of file systems that need a program of their own, /sbin/mount.KIND, and the package that has it."""
CONTROLLER_SECONDS = 900  # it shares folders when it is set up, which begins at the same time
PORTS = {"nfs": 2049, "lustre": 988}


def mount_all(mounts: list[Mount], *, seconds: float = 120, controller: str = "") -> bool:
    """Have every mount in fstab and mounted; True when anything had to change.

    A server that is not there yet is waited for, up to `seconds` each; the `controller` (HOST:PORT) for as long as its
    own set-up may take. Raises SetupError for one that does not come, with the mount's own message and what can be seen
    of the server from here, and for a kind of file system that this machine can't mount.
    """
    changed = write_fstab(mounts)
    reload_units()
    # A parent before what lies inside it: /opt before /opt/apps.
    for mount in sorted(mounts, key=lambda m: m["target"].count("/")):
        target = mount["target"]
        if mounted(target):
            continue
        Path(target).mkdir(parents=True, exist_ok=True)
        if not mount_one(target):
            try:
                theirs = bool(controller) and mount["source"].startswith(controller.partition(":")[0] + ":")
                if theirs:
                    log(f"waiting for the controller to share {target}")
                timeout = max(seconds, CONTROLLER_SECONDS) if theirs else seconds
                wait(f"the mount of {target}", lambda t=target: mount_one(t), seconds=timeout, interval=1)
            except SetupError:
                try:
                    run("mount", target)  # once more, for its own words
                except SetupError as error:
                    raise SetupError(f"{error}{seen(mount)}") from None
        log(f"mounted {mount['source']} on {target}")
        changed = True
    return changed


def write_fstab(mounts: list[Mount]) -> bool:
    """Have every mount in fstab; True when it changed. Raises SetupError for what this machine can't mount."""
    refuse_unknown(mounts)
    # Minimal images leave this target off, and with it every network file system at the next boot.
    if mounts:
        enable("remote-fs.target")
    return write_block(fstab_lines(mounts))


def write_block(lines: list[str], *, mark: str = text_block.MARK) -> bool:
    """Have these lines of ours in fstab, and no others under this mark; True when it changed."""
    return write_unit(FSTAB, text_block.with_block(FSTAB.read_text() if FSTAB.exists() else "", lines, mark=mark))


def mount_one(target: str) -> bool:
    """Return whether fstab's line for `target` is mounted now.

    Either may mount it: the machine may be booting, and where systemd was first the kernel refuses this one.
    """
    return succeeds("mount", target) or mounted(target)


def mounted(target: str) -> bool:
    """Return whether something is mounted there, also a folder of the same disk; asks no server that may be gone."""
    point = target.replace(" ", "\\040")  # as proc(5) writes it
    return any(line.split()[4] == point for line in Path("/proc/self/mountinfo").read_text().splitlines())


def fstab_lines(mounts: list[Mount]) -> list[str]:
    """The fstab lines of `mounts`; a blank in a path is written as fstab(5) requires.

    Root of any machine may write there: nobody becomes root of another one by a file of theirs.
    """
    return [
        " ".join(
            field.replace(" ", "\\040")
            for field in (m["source"], m["target"], m["fs_type"], f"{m['options'] or 'defaults'},nosuid,nodev")
        )
        + " 0 0"
        for m in mounts
    ]


def refuse_unknown(mounts: list[Mount]) -> None:
    """Raises SetupError where a mount needs a program that is not installed, which no waiting would bring."""
    for kind in {m["fs_type"] for m in mounts} & set(HELPERS):
        if not _has_helper(kind):
            targets = ", ".join(sorted(m["target"] for m in mounts if m["fs_type"] == kind))
            raise SetupError(
                f"{targets} can't be mounted: this machine has no mount.{kind}; install the package {HELPERS[kind]}, "
                "or make the machine with an image that has it"
            )


def of_image(mounts: list[Mount]) -> list[Mount]:
    """The mounts without new ones whose client comes with an image that this machine has not got yet: the controller
    gets it first, and is refused where it has no client.

    What the machine has mounted before is not left out, nor is anything where it mounts for the first time: then its
    own image lacks the client, and it must not run jobs without its file systems.
    """
    had = _options()
    late = {kind for kind in ("gcsfuse", "lustre") if not _has_helper(kind)}
    left = [one["target"] for one in mounts if had and one["fs_type"] in late and one["target"] not in had]
    if left:
        log(f"not mounted before this machine is recreated with another image: {', '.join(left)}")
    return [mount for mount in mounts if mount["target"] not in left]


def _has_helper(kind: str) -> bool:
    return bool(which(f"mount.{kind}", "/sbin:/usr/sbin:/bin:/usr/bin"))


def seen(mount: Mount) -> str:
    """Return what can be seen of a mount's server from this machine, as a line to add; nothing where it has none."""
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


SPOOLS = {"controller": "/var/spool/slurmctld", "node": "/var/spool/slurmd"}


def local_paths(roles: list[str]) -> list[str]:
    """Paths on this machine whose filling up stops a daemon."""
    paths = ["/", "/var/log", "/var/log/slurm", *(SPOOLS[role] for role in roles if role in SPOOLS), "/var/lib/mysql"]
    return [path for path in paths if os.path.isdir(path)]  # noqa: PTH112 - as the rest here


def shared_targets() -> list[str]:
    """Return where fstab says, in our block, that shared file systems are mounted."""
    return list(_options())


def shared_usage(path: str) -> dict[str, Any]:
    """`usage` of a shared file system; only {"mounted": False} where it is not mounted.

    The kernel's table is asked for that, because asking the path itself waits for a server that may be gone. One that
    is meant to be read only does not count as one that refuses writes.
    """
    if not mounted(path):
        return {"mounted": False, "shared": True}
    found = {"mounted": True, "shared": True, **disk_usage(path)}
    return {**found, "read_only": found["read_only"] and "ro" not in _options().get(path, [])}


def _options() -> dict[str, list[str]]:
    """Options of each mount in our block of fstab, by where it is mounted."""
    rows = [line.split() for line in (text_block.block(FSTAB.read_text()) if FSTAB.exists() else [])]
    return {row[1].replace("\\040", " "): row[3].split(",") if len(row) > 3 else [] for row in rows if len(row) > 1}


def disk_usage(path: str) -> dict[str, Any]:
    """Bytes and inodes of the file system that `path` lies on; which one that is, by its device number.

    `free` is what is left for everybody but root; 0 inodes: the file system does not count them.
    """
    found = os.statvfs(path)
    return {
        "device": os.stat(path).st_dev,  # noqa: PTH116 - a plain system call, bounded by the caller
        "size": found.f_blocks * found.f_frsize,
        "used": (found.f_blocks - found.f_bfree) * found.f_frsize,
        "free": found.f_bavail * found.f_frsize,
        "inodes": found.f_files,
        "inodes_free": found.f_favail,
        "read_only": bool(found.f_flag & os.ST_RDONLY),
    }
