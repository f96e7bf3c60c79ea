"""Shared file systems, local disks and local SSDs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from health.outcome import Outcome, failed, in_container, ok, skipped
from system import disk_usage
from system.mounts import mounted

LOCAL_SSDS = Path("/mnt/localssd")  # scripts/image/storage/50-localssd.sh
LOCAL = ("/", "/var", "/var/log", "/var/spool/slurmd", "/tmp", str(LOCAL_SSDS))  # noqa: S108 - is looked at only


def mounts() -> Outcome:
    """Whether everything is mounted that fstab has in our block, by the kernel's table: no server is asked."""
    wanted = disk_usage.mounts()
    missing = [path for path in wanted if not mounted(path)]
    if missing:
        return failed(", ".join(f"{path} is not mounted" for path in missing))
    return ok(f"{len(wanted)} file systems mounted") if wanted else skipped("no shared file systems")


def answers(path: str) -> Outcome:
    """Whether a file system answers, and accepts writes if it should; hangs where its server is gone."""
    found = disk_usage.shared(path)
    if not found["mounted"]:
        return failed(f"{path} is not mounted")
    return failed(f"{path} is read only") if found["read_only"] else ok()


def disk(least: int, paths: tuple[str, ...] = LOCAL) -> Outcome:
    """Whether local file systems have at least this share of space and of inodes left, in percent."""
    seen: set[int] = set()
    wrong: list[str] = []
    smallest = 100.0
    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112 - beside statvfs
            continue
        found = disk_usage.usage(path)
        if found["device"] in seen or not found["size"]:
            continue
        seen.add(found["device"])
        if found["read_only"]:
            wrong.append(f"{path} is read only")
        for what, free, whole in (
            ("free", found["free"], found["used"] + found["free"]),
            ("of inodes free", found["inodes_free"], found["inodes"]),
        ):
            percent = 100 * free / whole if whole else 100.0
            smallest = min(smallest, percent)
            if percent < least:
                wrong.append(f"{path} has {percent:.1f} % {what}, least {least} %")
    return failed(", ".join(wrong)) if wrong else ok(f"{smallest:.0f} % free or more")


def local_ssd(wanted: int, path: Path = LOCAL_SSDS) -> Outcome:
    """Whether the local SSDs are mounted, and users may write there: enroot keeps containers on them."""
    if not wanted:
        return skipped("no local SSDs on this machine type")
    if in_container():
        return skipped("a container has no local SSDs")
    if not mounted(str(path)):
        return failed(f"{path} is not mounted: {wanted} local SSDs")
    mode = stat.S_IMODE(path.stat().st_mode)
    return ok(f"{wanted} local SSDs") if mode == 0o1777 else failed(f"{path} has mode {mode:04o}, not 1777")
