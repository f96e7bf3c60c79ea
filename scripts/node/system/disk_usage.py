"""How full the machine's file systems are, and whether the shared ones are mounted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from system import text_block

SPOOLS = {"controller": "/var/spool/slurmctld", "node": "/var/spool/slurmd"}


def local(roles: list[str]) -> list[str]:
    """Paths on this machine whose filling up stops a daemon."""
    paths = ["/", "/var/log", "/var/log/slurm", *(SPOOLS[role] for role in roles if role in SPOOLS), "/var/lib/mysql"]
    return [path for path in paths if os.path.isdir(path)]  # noqa: PTH112 - as the rest here


def mounts(fstab: Path = Path("/etc/fstab")) -> list[str]:
    """Where fstab says, in our block, that shared file systems are mounted."""
    return list(_options(fstab))


def shared(path: str, fstab: Path = Path("/etc/fstab")) -> dict[str, Any]:
    """`usage` of a shared file system; only {"mounted": False} where it is not mounted.

    The kernel's table is asked for that, because asking the path itself waits for a server that may be gone. One that
    is meant to be read only is not told as one that refuses writes.
    """
    points = [line.split()[4].replace("\\040", " ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if path not in points:
        return {"mounted": False, "shared": True}
    found = {"mounted": True, "shared": True, **usage(path)}
    return {**found, "read_only": found["read_only"] and "ro" not in _options(fstab).get(path, [])}


def _options(fstab: Path) -> dict[str, list[str]]:
    """Options of each mount in our block of fstab, by where it is mounted."""
    rows = [line.split() for line in (text_block.block(fstab.read_text()) if fstab.exists() else [])]
    return {row[1].replace("\\040", " "): row[3].split(",") if len(row) > 3 else [] for row in rows if len(row) > 1}


def usage(path: str) -> dict[str, Any]:
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
