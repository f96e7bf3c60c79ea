"""Places of their own for tests that make real machines, beside whatever else runs on this host."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.local.host import stacks
from components.local.host.locks import locked, remove_empty

# Not pytest's own folder: what a killed test run leaves must be found again, and layers must lie on a disk.
PLACE = Path("/var/tmp/hpc-tests")  # noqa: S108 - root's own folder in it, made below


@contextmanager
def own_root(kind: str) -> Iterator[Path]:
    """A root for stacks; all that killed test runs left of theirs is removed first, and all of this at the end."""
    PLACE.mkdir(mode=0o700, exist_ok=True)
    for left in PLACE.glob("*/"):
        with locked(PLACE / f"{left.name}.lock", wait=False) as dead:
            if dead:
                _clear(left)
    root = PLACE / f"{kind}-{os.getpid()}"
    with locked(PLACE / f"{root.name}.lock"):
        root.mkdir()
        yield root
        _clear(root)
    remove_empty(PLACE)


def _clear(root: Path) -> None:
    for stack in stacks.stacks(root):
        stacks.sweep(root, stack)
    shutil.rmtree(root, ignore_errors=True)
    (PLACE / f"{root.name}.lock").unlink(missing_ok=True)
