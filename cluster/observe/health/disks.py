"""File systems that are full, or shared ones that are not there."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.observe.health.finding import Finding
from cluster.observe.observation import ClusterObservation, MachineObservation

NEARLY = 0.90
"""Of the bytes, or of the inodes, that everybody may use."""
FULL = 0.99


def full(seen: ClusterObservation) -> Iterator[Finding]:
    """File systems that have no room, or soon will not; each by the first path that lies on it."""
    for one in seen.machines:
        told: set[int] = set()
        for path, disk in _disks(one):
            if not disk.get("size") or disk["device"] in told:
                continue
            told.add(disk["device"])
            if bytes_used(disk) >= NEARLY:
                left, fills = (
                    f"{disk['free'] / 2**30:.1f} GiB are left",
                    f"du -xh --max-depth=2 {path} | sort -h | tail",
                )
                yield _full(seen, one, f"{_called(path, disk)} {_degree(bytes_used(disk), 'space')}, {left}", fills)
            if inodes_used(disk) >= NEARLY:
                left, fills = f"{disk['inodes_free']} are left", f"du -x --inodes {path} | sort -n | tail"
                yield _full(seen, one, f"{_called(path, disk)} {_degree(inodes_used(disk), 'inodes')}, {left}", fills)


def _full(seen: ClusterObservation, one: MachineObservation, what: str, fills: str) -> Finding:
    todo = f"./hpc ssh {seen.stack} {one.name} -- '{fills}'"
    return Finding(id="disk-full", where=(one.name,), what=what, todo=todo, note="It shows what fills it.")


def _called(path: str, disk: Mapping[str, Any]) -> str:
    return f"the shared file system {path}" if disk.get("shared") else path


def _degree(used: float, thing: str) -> str:
    return f"is {'full' if used >= FULL else 'nearly full'}: {used:.0%} of its {thing} used"


def bytes_used(disk: Mapping[str, Any]) -> float:
    """Share of the space that everybody may use, as df(1) counts it."""
    room = disk["used"] + disk["free"]
    return disk["used"] / room if room else 1.0


def inodes_used(disk: Mapping[str, Any]) -> float:
    """Share of the inodes; 0 where the file system does not count them."""
    return 1 - disk["inodes_free"] / disk["inodes"] if disk["inodes"] else 0.0


def missing(seen: ClusterObservation) -> Iterator[Finding]:
    """Shared file systems that are not mounted, or whose server does not answer; and disks that refuse writes."""
    for one in seen.machines:
        for path, disk in one.disks.items():
            what = todo = note = ""
            if disk.get("mounted") is False:
                what = f"the shared file system {path} is not mounted"
                todo = f"./hpc ssh {seen.stack} {one.name} -- mount {path}"
            elif "error" in disk:
                what = f"{path} does not answer ({disk['error']})"
                todo = f"./hpc ssh {seen.stack} {one.name} -- timeout 5 ls {path}"
                note = "Look at its server and at the network between the two."
            elif disk.get("read_only"):
                what = f"{path} is mounted read-only"
                todo = f"./hpc ssh {seen.stack} {one.name} -- 'dmesg | tail'"
                note = "The kernel tells there whether the disk fails."
            if what:
                yield Finding(id="mount-missing", where=(one.name,), what=what, todo=todo, note=note)


def _disks(one: MachineObservation) -> list[tuple[str, Mapping[str, Any]]]:
    """Those that were read, shortest path first: the file system is known by where it is mounted."""
    found = [(path, disk) for path, disk in one.disks.items() if "error" not in disk]
    return sorted(found, key=lambda pair: len(pair[0]))
