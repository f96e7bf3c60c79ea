"""env.sh, which jobs source: on the file system that all machines share. Its text is the stack's."""

from __future__ import annotations

from pathlib import Path

from system import root_only
from system.host import folder, write

FILE = Path("/opt/apps/hpc/env.sh")


def keep(lines: list[str]) -> None:
    """Have it with these lines, where nobody but root can put another in its place. An earlier `up` may have none."""
    if not lines:
        return
    root_only.check(FILE.parent)
    folder(FILE.parent)
    root_only.protect(FILE.parent)
    write(FILE, "\n".join(lines) + "\n", mode=0o755)
