"""Places of their own for tests that make real machines, beside whatever else runs on this host."""

from contextlib import AbstractContextManager
from pathlib import Path

from components.local.host import network

# Not pytest's own folder: what a killed test run leaves must be found again, and layers must lie on a disk.
PLACE = Path("/var/tmp/hpc-tests")  # noqa: S108 - root's own folder in it, made on use


def own_root(kind: str) -> AbstractContextManager[Path]:
    """A root for stacks; all that killed test runs left of theirs is removed first, and all of this at the end."""
    return network.own_root(PLACE, kind)
