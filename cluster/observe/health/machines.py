"""Machines: unreachable, not set up, cut off; their MUNGE keys, clocks, file systems, configuration and packages."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from cluster.findings import OLDEST_KERNEL, ClusterFinding
from cluster.observe.health.daemons import last_words
from cluster.observe.observation import ClusterObservation, MachineObservation
from cluster.slurm.paths import CONTROLLER_FILES

LIFETIME = 300
"""Seconds that a credential lives (munge(7)): a clock that differs by more makes every one expired or not yet made."""
SKEW = 5.0
"""Smallest difference in seconds that is a finding, long before it breaks anything."""
NEARLY = 0.90
"""Share of the bytes, or of the inodes, that everybody may use."""
FULL = 0.99
DAY = 86400
OLDEST = 60
"""Days after which old packages are a finding. Ubuntu publishes security updates nearly every week."""


_LOSSES = {
    "controller": ("controller machine", "no job starts and nobody can ask for one; jobs that run go on"),
    "login": ("login machine", "nobody can log in there"),
    "monitoring": ("machine of Prometheus", "nothing collects metrics and no alert fires; Slurm and jobs go on"),
}
"""Machines by their role: what they are called, and what is missing without them."""


def unreachable(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Machines that do not answer SSH; nodes have a finding of their own."""
    for machine in seen.machines:
        if machine.reached or machine.late or machine.roles == ("node",):
            continue
        kind, loss = next(said for role, said in _LOSSES.items() if role in machine.roles)
        yield ClusterFinding(
            id="machine-unreachable",
            where=(machine.name,),
            what=f"{kind} does not answer SSH ({machine.why}): {loss}",
            todo=f"./hpc up {seen.stack}",
            note=f"It starts the machine again if it is not running; on Google Cloud after ./hpc refresh {seen.stack}.",
        )


def late(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Machines that are there and gave no report, or a part of one, in time: nothing is known of what is missing."""
    todo = f"./hpc status {seen.stack} --timeout 60"
    silent = [machine for machine in seen.machines if machine.late]
    if len(silent) == len(seen.machines) > 1:
        yield ClusterFinding(
            id="host-busy",
            where=tuple(machine.name for machine in silent),
            what=f"each accepts connections, and none gave a report ({silent[0].why}): this host is busy, or the "
            "network to them is slow. Nothing is known of the cluster",
            todo=todo,
        )
        return
    for machine in seen.machines:
        if machine.late or machine.is_busy:
            yield ClusterFinding(
                id="machine-late",
                where=(machine.name,),
                what=f"is there, and gave no report: {machine.why}"
                if machine.late
                else "gave a part of its report only",
                todo=todo,
                note="It or this host is busy, or it hangs. What is missing is not checked.",
            )


def not_set_up(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Machines without the set-up, or with one that failed."""
    for machine in seen.machines:
        if not machine.reached:
            continue
        if not machine.has_facts:
            yield ClusterFinding(
                id="setup-missing",
                where=(machine.name,),
                what=f"has no set-up that can report ({machine.why})",
                # `up` compares the stack with what it did last, and finds nothing to do where it was damaged since.
                todo=f"./hpc up {seen.stack}" if machine.old else f"./hpc drift {seen.stack} --mend",
                note="" if machine.old else "It brings the set-up again, and has the machine do its part.",
            )
        elif why := failure(machine):
            yield ClusterFinding(
                id="setup-failed",
                where=(machine.name,),
                what=f"its set-up failed: {why}",
                todo=f"./hpc ssh {seen.stack} {machine.name} -- journalctl -u hpc-node -n 50",
                note="It is tried again by itself, every few seconds.",
                since=joining(machine).get("since"),
            )


def cluster_state(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """A cluster state that can't be read: nodes apply no new config version, and their reports are lost."""
    for machine in seen.machines:
        if why := machine.part("cluster_state", "damaged"):
            yield ClusterFinding(
                id="cluster-state-damaged",
                where=(machine.name,),
                what=f"the cluster state, from which nodes read their configuration, is damaged: {why}",
                todo=f"./hpc drift {seen.stack} --mend",
                note="The controller writes it again, and machines report again.",
            )


def failure(one: MachineObservation) -> str:
    """Return why the set-up of a machine failed at its last try; empty where it did not."""
    report = one.report
    # A report of another boot says nothing about this one.
    if report.get("state") == "failed" and report.get("boot") == one.part("boot", "id"):
        return str(report.get("message", "")).strip()
    unit = joining(one)
    if unit.get("state") == "failed" or unit.get("sub") == "auto-restart":
        return last_words(unit.get("journal") or ()) or "its journal says nothing"
    return ""


def joining(one: MachineObservation) -> Mapping[str, Any]:
    """The unit by which a node sets itself up; empty on other machines."""
    return one.daemons.get("hpc-node") or {}


def cut_off(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Machines that answer us but can't reach slurmctld, although it is up."""
    for machine in seen.machines:
        port = machine.controller
        if port.get("reached") is not False or not seen.slurmctld_answers:
            continue
        address = f"{port.get('host')}:{port.get('port')}"
        yield ClusterFinding(
            id="network-cut",
            where=(machine.name,),
            what=f"answers SSH from here, but cannot reach the controller ({address}: {port.get('why', '')}), where "
            "slurmctld is up: the network between the two is cut",
            todo=f"./hpc ssh {seen.stack} {machine.name} -- ping -c 3 {port.get('host')}",
            note="Look at its network and at firewalls between the two.",
        )


def munge_keys(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Machines with another MUNGE key than the controller; none where that is not known."""
    known = {machine.name: key for machine in seen.machines if (key := (machine.munge or {}).get("key"))}
    right = known.get(seen.controller.name)
    if right is None:
        return
    for machine in seen.machines:
        if machine.has_facts and known.get(machine.name, "") != right and machine.munge is not None:
            if machine.name not in known:
                yield ClusterFinding(
                    id="munge-key",
                    where=(machine.name,),
                    what="has no MUNGE key: its set-up has not come that far",
                    todo=f"./hpc up {seen.stack}",
                )
                continue
            again = f"./hpc ssh {seen.stack} {machine.name} -- systemctl restart hpc-node"
            yield ClusterFinding(
                id="munge-key",
                where=(machine.name,),
                what="has another MUNGE key than the controller: no authentication between the two succeeds",
                todo=again if machine.roles == ("node",) else f"./hpc drift {seen.stack} --mend",
                note="It installs again the key that the stack gave it.",
            )


def clocks(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Machines whose clock differs from the controller's; what it took to ask is taken off."""
    reference = seen.controller
    if not reference.has_facts:
        return
    for machine in seen.machines:
        if machine is reference or not machine.has_facts:
            continue
        skew = ahead(machine, reference)
        if abs(skew) < SKEW:
            continue
        effect = (
            "Every credential between the two is refused"
            if abs(skew) >= LIFETIME
            else f"MUNGE refuses credentials from {LIFETIME} s on"
        )
        yield ClusterFinding(
            id="clock-skew",
            where=(machine.name,),
            what=f"its clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the controller's. {effect}",
            todo=f"./hpc ssh {seen.stack} {machine.name} -- timedatectl",
            note="Let it follow the time server that the controller follows.",
        )


def strangers(seen: ClusterObservation) -> set[str]:
    """Machines that can't authenticate to the controller: it gets no answer from them, whatever the network does."""
    late = {
        machine.name
        for machine in seen.machines
        if machine.has_facts and seen.controller.has_facts and abs(ahead(machine, seen.controller)) >= LIFETIME
    }
    return late.union(*(found.where for found in munge_keys(seen)))


def ahead(one: MachineObservation, reference: MachineObservation) -> float:
    """Return the seconds by which the clock of `one`, as its munged reads it, surely is ahead; negative: behind.

    The clock was read at some time between asking and answer, so that much of a difference is no difference.
    """
    low, high = _clock_bounds(one)
    other_low, other_high = _clock_bounds(reference)
    if low > other_high:
        return low - other_high
    return min(high - other_low, 0.0)


def _clock_bounds(one: MachineObservation) -> tuple[float, float]:
    time = one.time + (one.munge or {}).get("ahead", 0)
    return time - one.answered, time - one.asked


def full_disks(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """File systems that have no room, or soon will not; each by the first path that lies on it."""
    for machine in seen.machines:
        counted: set[int] = set()
        for path, disk in _disks(machine):
            if not disk.get("size") or disk["device"] in counted:
                continue
            counted.add(disk["device"])
            if bytes_used(disk) >= NEARLY:
                left, fills = (
                    f"{disk['free'] / 2**30:.1f} GiB are left",
                    f"du -xh --max-depth=2 {path} | sort -h | tail",
                )
                yield _disk_finding(
                    seen, machine, f"{_called(path, disk)} {_degree(bytes_used(disk), 'space')}, {left}", fills
                )
            if inodes_used(disk) >= NEARLY:
                left, fills = f"{disk['inodes_free']} are left", f"du -x --inodes {path} | sort -n | tail"
                yield _disk_finding(
                    seen, machine, f"{_called(path, disk)} {_degree(inodes_used(disk), 'inodes')}, {left}", fills
                )


def _disk_finding(seen: ClusterObservation, one: MachineObservation, what: str, fills: str) -> ClusterFinding:
    todo = f"./hpc ssh {seen.stack} {one.name} -- '{fills}'"
    return ClusterFinding(id="disk-full", where=(one.name,), what=what, todo=todo, note="It shows what fills it.")


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


def missing_mounts(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Shared file systems that are not mounted, or whose server does not answer; and disks that refuse writes."""
    for machine in seen.machines:
        for path, disk in machine.disks.items():
            what = todo = note = ""
            if disk.get("mounted") is False:
                what = f"the shared file system {path} is not mounted"
                todo = f"./hpc ssh {seen.stack} {machine.name} -- mount {path}"
            elif "error" in disk:
                what = f"{path} does not answer ({disk['error']})"
                todo = f"./hpc ssh {seen.stack} {machine.name} -- timeout 5 ls {path}"
                note = "Look at its server and at the network between the two."
            elif disk.get("read_only"):
                what = f"{path} is mounted read-only"
                todo = f"./hpc ssh {seen.stack} {machine.name} -- 'dmesg | tail'"
                note = "The kernel reports there whether the disk fails."
            if what:
                yield ClusterFinding(id="mount-missing", where=(machine.name,), what=what, todo=todo, note=note)


def _disks(one: MachineObservation) -> list[tuple[str, Mapping[str, Any]]]:
    """Return those that were read, shortest path first: the file system is known by where it is mounted."""
    found = [(path, disk) for path, disk in one.disks.items() if "error" not in disk]
    return sorted(found, key=lambda pair: len(pair[0]))


def older_slurm(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Machines with an earlier release of Slurm than the controller has: works, but the next release has to wait."""
    new = _release(seen.controller)
    for machine in seen.machines:
        if (old := _release(machine)) and old < new:
            yield ClusterFinding(
                id="slurm-older",
                where=(machine.name,),
                what=f"runs Slurm {old}, the controller {new}: an upgrade is not at its end",
                todo=f"./hpc up {seen.stack}",
                note="It goes on with it: nodes are recreated when their jobs have ended, then login machines.",
            )


def _release(machine: MachineObservation) -> str:
    """The release of a machine's Slurm, such as 26.05; empty where it is not known."""
    version = (machine.part("versions") or {}).get("slurm") or ""
    return ".".join(version.split(".")[:2])


def outdated(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Machines that are behind the controller."""
    newest = (seen.controller.part("cluster_state", "newest") or {}).get("digest")
    files = seen.controller.part("files", "etc") or {}
    applied = seen.controller.part("files", "applied") or {}
    served = {name: files.get(name) for name in applied if name not in CONTROLLER_FILES}
    for machine in seen.machines:
        if not machine.has_facts:
            continue
        why = [*_config_files(machine, served), *_config_version(machine, newest)]
        if why:
            yield ClusterFinding(
                id="old-config",
                where=(machine.name,),
                what=f"has another configuration than the controller: {'; '.join(why)}",
                todo=f"./hpc drift {seen.stack}",
                note=f"It shows what differs; ./hpc drift {seen.stack} --mend makes it as the stack says.",
            )


def _config_files(one: MachineObservation, served: dict[str, str | None]) -> Iterator[str]:
    cached = one.part("files", "cache") or {}
    # A node that shares the controller's machine reads the controller's own files.
    if "node" not in one.roles or not cached or not served:
        return
    differing = sorted(name for name, value in served.items() if value is not None and cached.get(name) != value)
    if differing:
        yield f"its slurmd's {', '.join(differing)} differ{'s' * (len(differing) == 1)} from the controller's"


def _config_version(one: MachineObservation, newest: str | None) -> Iterator[str]:
    report = one.report
    # A login machine is configured by its own command of `up`, not by the config version.
    if not newest or "node" not in one.roles or report.get("state") == "failed":
        return
    if report and report.get("digest") != newest:
        yield f"it reported config version {report.get('digest') or 'unknown'}, the controller has {newest}"
    elif one.roles == ("node",) and (followed := one.part("followed")) is not None and followed != newest:
        yield f"it applied config version {followed or 'none'}, the controller has {newest}"


def old_packages(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Machines that take no security updates by themselves, and have had none for too long."""
    for machine in seen.machines:
        image = machine.part("image") or {}
        since = _packages_since(image)
        if not image.get("baked") or since is None:
            continue
        days = int((machine.answered - since) // DAY)
        if days > OLDEST:
            day = datetime.fromtimestamp(since, tz=timezone.utc).date()
            yield ClusterFinding(
                id="image-old",
                where=(machine.name,),
                what=f"its packages are of {day}, {days} days ago: security updates since then are missing",
                todo=f"./hpc preview {seen.stack}",
                note="After writing a later day as image.snapshot in the stack file: another image is baked then, and "
                "machines are recreated from it, nodes as their jobs end (docs/guides/google-cloud.md).",
                since=since,
            )


def old_kernels(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Machines whose kernel, which is held, lacks the fixes of too long a time."""
    for machine in seen.machines:
        day = (machine.part("image") or {}).get("kernel")
        since = datetime.strptime(f"{day}+0000", "%Y-%m-%d%z").timestamp() if day else machine.answered
        days = int((machine.answered - since) // DAY)
        if days > OLDEST_KERNEL:
            yield ClusterFinding(
                id="kernel-old",
                where=(machine.name,),
                what=f"its kernel is of {day}, {days} days ago: security fixes since then are missing",
                todo=f"./hpc preview {seen.stack}",
                note="After writing a newer image.recipe in the stack file: its kernel comes with another image, and "
                "machines are recreated from it, nodes as their jobs end (docs/guides/google-cloud.md).",
                since=since,
            )


def _packages_since(image: Mapping[str, Any]) -> float | None:
    """Return the date of the packages: of Ubuntu's archive, else of the image."""
    try:
        return datetime.strptime(f"{image.get('snapshot')}+0000", "%Y%m%dT%H%M%SZ%z").timestamp()
    except ValueError:
        return image.get("made")
