"""A control group of its own for every machine.

Machines that shared one would find each other's units in it. Where systemd runs the host it is asked for a scope with
delegation; elsewhere (containers, small virtual machines with another first process) the groups are created here, in
each mounted hierarchy, cgroup v1 or v2, below `hpc/<digest of the root>/`.
"""

import contextlib
import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from components.local.host.paths import HostError
from components.local.host.process import Process, run
from scripts.hostfiles import remove_empty

TASKS = 1024
"""Processes and threads of one machine: a controller with its daemons has fifty, a step of a job six. What a job starts
beyond this fails with EAGAIN there; it took the host's process table (32,768 by default) and its cores along before.
With twice as many, small machines ran out of memory first, and two cores were busy with ending what exceeded it."""
WEIGHT = 400
"""CPU weight of a controller (100 by default). All machines wait for its daemons, also while many machines boot, and
while jobs keep every core busy."""
_MOUNTS = Path("/proc/self/mountinfo")
_BOOTED = Path("/run/systemd/system")
"""Exists if systemd runs the host (sd_booted(3))."""


@dataclass(frozen=True)
class Hierarchy:
    mount: Path
    unified: bool
    """cgroup v2."""
    cpuset: bool
    """cgroup v1 with the cpuset controller, whose new groups have no CPUs."""


def _scope(machine_id: str) -> str:
    return f"hpc-{machine_id}.scope"


def prefix(machine_id: str, root: Path, *, controller: bool = False) -> list[str]:
    """Return the command to put before the machine's own, so that it starts in its control group."""
    weight = WEIGHT if controller else 100
    if _BOOTED.is_dir():
        limits = ("--property=Delegate=yes", f"--property=TasksMax={TASKS}", f"--property=CPUWeight={weight}")
        return ["systemd-run", "--scope", "--quiet", "--collect", f"--unit={_scope(machine_id)}", *limits, "--"]
    tasks = [str(folder / "cgroup.procs") for folder in _make(machine_id, root, weight)]
    join = 'while [ "$1" != -- ]; do echo $$ > "$1" || exit 1; shift; done; shift; exec "$@"'
    return ["sh", "-c", join, "sh", *tasks, "--"]


def remove(machine_id: str, root: Path) -> None:
    """End all processes in the machine's group, and remove the group."""
    if _BOOTED.is_dir():
        _end_scope(_scope(machine_id))
        return
    for hierarchy in hierarchies():
        _remove_tree(hierarchy.mount / "hpc" / _key(root) / machine_id)
        if remove_empty(hierarchy.mount / "hpc" / _key(root)):
            remove_empty(hierarchy.mount / "hpc")


def _end_scope(unit: str) -> None:
    """Kill the processes of the scope and wait for its end: the machine's next start needs its name."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        state = run(["systemctl", "show", "--property=ActiveState", "--value", unit]).strip()
        if state in {"inactive", "failed"}:
            return
        with contextlib.suppress(HostError):  # it may have ended by itself
            run(["systemctl", "kill", "--signal=SIGKILL", unit])
        time.sleep(0.02)


def leftover_groups(root: Path) -> list[Path]:
    return sorted(group for hierarchy in hierarchies() for group in (hierarchy.mount / "hpc" / _key(root)).glob("*/"))


def is_unified() -> bool:
    """Return whether controllers are those of cgroup v2 alone."""
    return all(hierarchy.unified for hierarchy in hierarchies())


def hierarchies() -> Iterator[Hierarchy]:
    """Yield all mounted hierarchies that can be written to."""
    seen: set[str] = set()
    for line in _MOUNTS.read_text().splitlines():
        before, after = line.split(" - ", 1)
        fields, kind = before.split(), after.split()
        if kind[0] in {"cgroup", "cgroup2"} and fields[4] not in seen and os.access(fields[4], os.W_OK):
            seen.add(fields[4])
            yield Hierarchy(Path(fields[4]), kind[0] == "cgroup2", "cpuset" in kind[2].split(","))


def _make(machine_id: str, root: Path, weight: int) -> Iterator[Path]:
    # cgroup v1 has shares of 1024 in place of weights of 100.
    limits = {"pids.max": TASKS, "cpu.weight": weight, "cpu.shares": weight * 1024 // 100}
    for hierarchy in hierarchies():
        folder = hierarchy.mount
        for name in ("hpc", _key(root), machine_id):
            if hierarchy.unified:
                _enable_controllers(folder)
            folder = folder / name
            folder.mkdir(exist_ok=True)
            if hierarchy.cpuset:
                for setting in ("cpuset.cpus", "cpuset.mems"):
                    (folder / setting).write_text((folder.parent / setting).read_text())
        # Only the hierarchy with its controller has such a file; a host without it has no limit.
        for name, value in limits.items():
            with contextlib.suppress(OSError):
                if (folder / name).exists():
                    (folder / name).write_text(str(value))
        yield folder


def _enable_controllers(folder: Path) -> None:
    # Some can't be delegated (threaded groups, processes in the group); machines do without them.
    with contextlib.suppress(OSError):
        controllers = (folder / "cgroup.controllers").read_text().split()
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in controllers))


def _remove_tree(group: Path) -> None:
    deadline = time.monotonic() + 5
    while group.is_dir() and time.monotonic() < deadline:
        for folder, _, _ in os.walk(group, topdown=False):
            if not remove_empty(Path(folder)):
                _kill_members(Path(folder))
        if group.is_dir():
            time.sleep(0.02)


def _kill_members(group: Path) -> None:
    try:
        members = [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    except OSError:
        return
    for pid in members:
        process = Process.of(pid)
        if process:
            process.end(signal.SIGKILL, wait=0)


def _key(root: Path) -> str:
    return hashlib.sha256(str(root).encode()).hexdigest()[:8]


WATCHES = 8192
"""inotify instances per user: each machine's systemd takes about seven, so the usual 128 stop the eighteenth."""
_WATCHES = Path("/proc/sys/fs/inotify/max_user_instances")


def allow_watches(report: Callable[[str], None], path: Path = _WATCHES) -> None:
    """Raise the host's limit of inotify instances if it is lower.

    It is not lowered again, since other programs may rely on it. A restart of the host restores it.
    """
    now = int(path.read_text())
    if now < WATCHES:
        path.write_text(str(WATCHES))
        report(f"raised this host's fs.inotify.max_user_instances from {now} to {WATCHES}, until it is restarted")
