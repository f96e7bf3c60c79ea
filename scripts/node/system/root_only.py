"""Folders on the shared file system that only root may write to: the cluster state and the prologs.

Root of every machine applies what is in them.
"""

from __future__ import annotations

import stat
from pathlib import Path

from system.host import SetupError, log

SHARED = Path("/opt/apps")


def protect(path: Path) -> None:
    """See to it that nobody but root can put something else in the place of a folder below SHARED.

    The shared folder itself may be open to others: with the sticky bit they can't move what is root's. Raises
    SetupError where what is there already is not root's alone.
    """
    check(path)
    mode = stat.S_IMODE(SHARED.stat().st_mode)
    if mode & 0o022 and not mode & stat.S_ISVTX:
        SHARED.chmod(mode | stat.S_ISVTX)
        log(f"{SHARED}: others may write there; set its sticky bit, so that they can't move what is root's")


def check(path: Path) -> None:
    """Raises SetupError unless every folder from SHARED down to `path`, as far as there are any, is root's alone."""
    below = path.relative_to(SHARED)
    for part in [SHARED / parent for parent in [*reversed(below.parents), below] if parent != Path()]:
        try:
            found = part.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        why = ""
        if stat.S_ISLNK(found.st_mode):
            why = f"is a symbolic link to {part.readlink()}"
        elif found.st_uid != 0:
            why = f"belongs to uid {found.st_uid}"
        elif found.st_mode & 0o022:
            why = f"may be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
        if why:
            raise SetupError(
                f"{part} {why}, and root of every machine applies what is in it. Look at what is there; if it "
                f"is yours: chown root {part} && chmod 755 {part}; if not, move it away"
            )
