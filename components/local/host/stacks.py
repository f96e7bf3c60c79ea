"""All stacks of this host, seen from outside their state: what is left of them, and ending one for good."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.local.host.locks import locked, remove_empty
from components.local.host.machines import cgroups, machine
from components.local.host.networks import bridge, names
from components.local.host.paths import StackPaths


def stacks(root: Path) -> list[str]:
    """Names of the stacks that have anything on disk."""
    return sorted(path.name for path in (root / "stacks").glob("*") if path.is_dir())


def leftovers(root: Path) -> list[str]:
    """Everything of any stack under `root` that is on this host: files, mounts, bridges, processes, control groups.

    Base images are a cache and not counted. Empty after every stack's destroy.
    """
    return [
        *(f"folder {path}" for path in (root / "stacks").glob("*")),
        *(f"mount {path}" for path in _mounts(root / "stacks")),
        *(f"bridge {name}" for name in bridge.ours(root)),
        *(f"process {line}" for line in _processes(root / "stacks")),
        *(f"control group {path}" for path in cgroups.left(root)),
    ]


def sweep(root: Path, stack: str) -> None:
    """Remove all that there is of a stack, whatever made it and whatever is known of it elsewhere."""
    paths = StackPaths(root, stack)
    machine.delete_all(root, stack)
    bridge.remove(names.bridge_name(root, stack), root, stack)
    if paths.folder.exists():
        shutil.rmtree(paths.folder)
    remove_empty(root / "stacks")


@contextmanager
def own_root(place: Path, kind: str) -> Iterator[Path]:
    """A root in the folder `place` for the stacks of this process alone, swept with all that is in it at the end.

    What killed processes left of theirs is swept first.
    """
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for left in place.glob("*/"):
        with locked(place / f"{left.name}.lock", wait=False) as dead:
            if dead:
                _clear(left)
    root = place / f"{kind}-{os.getpid()}"
    with locked(place / f"{root.name}.lock"):
        root.mkdir()
        try:
            yield root
        finally:
            _clear(root)
            remove_empty(place)


def _clear(root: Path) -> None:
    for stack in stacks(root):
        sweep(root, stack)
    shutil.rmtree(root, ignore_errors=True)
    root.with_name(f"{root.name}.lock").unlink(missing_ok=True)


def _mounts(folder: Path) -> Iterator[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # Blanks in a mount point are written as octal escapes (proc(5)).
        target = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), line.split()[4])
        if target.startswith(f"{folder}/"):
            yield target


def _processes(folder: Path) -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(argument.startswith((f"--directory={folder}/", f"{folder}/")) for argument in arguments):
            yield f"{path.parent.name} ({arguments[0]})"
