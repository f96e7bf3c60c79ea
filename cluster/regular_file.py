"""Refusing files that can't be read to their end."""

import errno
import stat
from pathlib import Path

NULL = Path("/dev/null")


def refuse_special(path: Path, *, pipes: bool = False) -> None:
    """Raise OSError for a device, a socket and (without `pipes`) a pipe, since reading these may never end. Raises
    OSError as `stat` does, too."""
    mode = path.stat().st_mode
    allowed = stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (pipes and stat.S_ISFIFO(mode)) or path == NULL
    if not allowed:
        raise OSError(errno.EINVAL, "not a regular file", str(path))
