"""Files that can be read to their end."""

import errno
import stat
from pathlib import Path

NULL = Path("/dev/null")


def refuse_special(path: Path, *, pipes: bool = False) -> None:
    """Raises OSError for a device, a socket and (without `pipes`) a pipe, which reading may never end, and as `stat`
    does."""
    mode = path.stat().st_mode
    allowed = stat.S_ISREG(mode) or stat.S_ISDIR(mode) or (pipes and stat.S_ISFIFO(mode)) or path == NULL
    if not allowed:
        raise OSError(errno.EINVAL, "not a regular file", str(path))
