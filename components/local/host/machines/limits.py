"""Limits of the host that a cluster's worth of machines runs into."""

from collections.abc import Callable
from pathlib import Path

WATCHES = 8192
"""inotify instances per user: each machine's systemd takes about seven, so the usual 128 stop the eighteenth."""
_WATCHES = Path("/proc/sys/fs/inotify/max_user_instances")


def allow_watches(report: Callable[[str], None], path: Path = _WATCHES) -> None:
    """Raise the host's limit of inotify instances, if it is lower.

    It is only ever raised, and not put back: other programs may rely on it by then. A restart of the host does that.
    """
    now = int(path.read_text())
    if now < WATCHES:
        path.write_text(str(WATCHES))
        report(f"raised this host's fs.inotify.max_user_instances from {now} to {WATCHES}, until it is restarted")
