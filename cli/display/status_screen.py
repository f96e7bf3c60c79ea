"""The status of a cluster as people read it: one sentence, what is wrong, then tables."""

import shutil
import sys
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from cli import console
from cluster.findings import ClusterFinding
from cluster.observe.health_machines import bytes_used, inodes_used
from cluster.observe.nodes import Node
from cluster.observe.observation import ClusterObservation, MachineObservation
from scripts.node.slurm.hostlist import compress

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def ago(seconds: float) -> str:
    """A span of time, with one or two units: `40 s`, `12 min`, `3 h 5 min`, `2 d 4 h`."""
    whole = max(int(seconds), 0)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def size(count: float) -> str:
    """Bytes in the unit that fits: `612 MiB`, `7.5 GiB`, `1.2 TiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def cut(text: str, longest: int = 48) -> str:
    """The text, or its beginning where it is longer than a table's last column should be."""
    return text if len(text) <= longest else text[: longest - 3].rstrip() + "..."


def counted(number: int, thing: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


Table = list[tuple[str, ...]]
JOBS = 12
"""Jobs that are listed; the others are counted."""


def nodes(seen: ClusterObservation) -> Table:
    """Nodes by state, reason and size."""
    groups: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for name, row in (seen.slurm("nodes") or {}).items():
        node, gres = Node.of(name, row), row.get("Gres", "")
        size = "-" if gres in ("", "(null)") else gres.partition("(")[0]
        groups[node.word, size, node.why or "-"][name] = row
    rows = []
    for (state, size, reason), there in groups.items():
        used, cpus = (sum(int(row.get(key, 0)) for row in there.values()) for key in ("CPUAlloc", "CPUTot"))
        rows.append((compress(there), str(len(there)), state, f"{used}/{cpus}", size, cut(reason)))
    return _headed(("NODES", "COUNT", "STATE", "CPUS USED", "GPUS EACH", "REASON"), rows)


def partitions(seen: ClusterObservation) -> Table:
    """Partitions; a star marks the default."""
    rows = [
        (
            f"{name}*" if row.get("Default") == "YES" else name,
            row.get("State", "").lower(),
            row.get("MaxTime", "").lower(),
            row.get("TotalNodes", ""),
            row.get("TotalCPUs", ""),
            row.get("Nodes", ""),
        )
        for name, row in (seen.slurm("partitions") or {}).items()
    ]
    return _headed(("PARTITION", "STATE", "TIME LIMIT", "NODES", "CPUS", "NAMES"), rows)


def queue(seen: ClusterObservation) -> Table:
    """The first jobs of the queue."""
    first = (seen.slurm("jobs") or {}).get("first", [])
    comments = (seen.controller.part("reconcile") or {}).get("jobs", {})

    def where(job: Mapping[str, Any]) -> str:
        comment = comments.get(job.get("number", ""))
        # A job whose machines are in the cloud's queue has its nodes already.
        queued = job["state"] == "CONFIGURING" and str(comment).startswith("hpc: waits for ")
        return f"({comment or job['reason']})" if queued or not job["nodes"] else job["nodes"]

    rows = [
        (
            job["id"],
            job["user"],
            job["partition"],
            job["state"].lower(),
            job["seconds"],
            job["count"],
            where(job),
            cut(job["name"]),
        )
        for job in first[:JOBS]
    ]
    total = sum((seen.slurm("jobs") or {}).get("states", {}).values())
    if total > len(rows):
        rows.append(("...", f"and {total - len(rows)} more", "", "", "", "", "", ""))
    return _headed(("JOB", "USER", "PARTITION", "STATE", "TIME", "NODES", "WHERE OR WHY", "NAME"), rows)


def actions(seen: ClusterObservation, now: float) -> Table:
    """The last actions of the reconcile loop."""
    rows = [
        (
            ago(now - row["time"]),
            row.get("action") or row["rule"],
            compress(row["nodes"]) if row["nodes"] else "-",
            row.get("slurm", "").lower() or "-",
            cut(row.get("result") or row.get("reason") or row.get("way") or row["rule"], 80),
        )
        for row in (seen.controller.part("reconcile") or {}).get("actions", [])
        if not row["rule"].startswith("asked-")
    ]
    return _headed(("AGO", "ACTION", "NODES", "STATE BEFORE", "WHY"), rows)


def failover(seen: ClusterObservation, now: float) -> Table:
    """The machine that brings the controller back in its other zone."""
    found = seen.controller.part("failover")
    if not found or found["why"]:
        return []
    state = "armed" if found["armed"] else "not armed" if found["mode"] == "act" else found["mode"]
    did = found["journal"][0] if found["journal"] else "-"
    rows = [(state, ago(now - found["time"]), cut(found["said"], 80), cut(did, 80))]
    return _headed(("FAILOVER", "LAST LOOK", "WHAT IT SAW", "WHAT IT DID LAST"), rows)


def alerts(seen: ClusterObservation) -> Table:
    """Alerts of Prometheus that fire; of one that fires for many machines, the first."""
    groups: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    for one in seen.monitoring.part("alerts") or []:
        groups[one["name"], one["severity"], one["actor"]].append((one["since"][:19], one["summary"]))
    rows = []
    for (name, severity, actor), there in groups.items():
        since, what = min(there)
        more = f", and {len(there) - 1} more" if len(there) > 1 else ""
        rows.append((name, severity, since, actor, f"{cut(what, 100)}{more}"))
    return _headed(("ALERT", "SEVERITY", "SINCE (UTC)", "WHO ACTS", "WHAT"), rows)


def daemons(seen: ClusterObservation, now: float) -> Table:
    """Daemons by what they are and where; since when the one that was started last runs."""
    groups: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for machine in seen.machines:
        for name, unit in machine.daemons.items():
            state = "running" if unit["state"] == "active" else f"{unit['state']} ({unit['sub']})"
            groups[name, state].append((machine.name, unit["since"]))
    rows = []
    for (name, state), there in groups.items():
        since = max(started for _, started in there)
        rows.append((name, state, ago(now - since) if since else "-", _all(seen, [machine for machine, _ in there])))
    return _headed(("DAEMON", "STATE", "FOR", "MACHINES"), rows)


def versions(seen: ClusterObservation) -> Table:
    """Versions by what and which, with the machines that have them."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for machine in seen.machines:
        image = machine.part("image") or {}
        made = ", ".join(str(image[key]) for key in ("recipe", "snapshot") if image.get(key))
        for name, version in {**(machine.part("versions") or {}), **({"image": made} if made else {})}.items():
            groups[name, version].append(machine.name)
    rows = [(name, version, _all(seen, there)) for (name, version), there in sorted(groups.items())]
    return _headed(("PROGRAM", "VERSION", "MACHINES"), rows)


def storage(seen: ClusterObservation) -> Table:
    """File systems by path: the fullest of those that like machines have, shared ones once."""
    groups: dict[str, list[tuple[MachineObservation, Mapping[str, Any]]]] = defaultdict(list)
    for machine in seen.machines:
        devices: set[int | None] = set()
        disks = machine.disks.items()
        for path, disk in sorted(disks, key=lambda pair: len(pair[0])):
            if "size" in disk and disk.get("device") not in devices:
                groups[path].append((machine, disk))
            if "size" in disk and not disk.get("shared"):
                devices.add(disk.get("device"))
    rows = []
    for path, there in sorted(groups.items(), key=lambda pair: _shared(pair[1])):
        _, disk = max(there, key=lambda pair: max(bytes_used(pair[1]), inodes_used(pair[1])))
        names = _all(seen, [machine.name for machine, _ in there])
        names += "" if len(there) == 1 or _shared(there) else ", fullest shown"
        figures = (f"{bytes_used(disk):.0%}", size(disk["free"]), size(disk["used"] + disk["free"]))
        rows.append((path, *figures, f"{inodes_used(disk):.0%}", names))
    return _headed(("STORAGE", "USED", "FREE", "OF", "INODES", "MACHINES"), rows)


def _shared(there: list[tuple[MachineObservation, Mapping[str, Any]]]) -> bool:
    return any(disk.get("shared") for _, disk in there)


def _all(seen: ClusterObservation, there: list[str]) -> str:
    return "all" if len(there) == len(seen.machines) else compress(there)


def _headed(heading: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    found = list(rows)
    return [heading, *found] if found else []


def states(seen: ClusterObservation) -> str:
    """Count the nodes by state, in words: `62 nodes idle, 2 drained`."""
    every = seen.slurm("nodes")
    if not every:
        return "the nodes' states are not known" if every is None else "no nodes"
    counts = Counter(Node.of(name, row).word for name, row in every.items())
    first, *rest = counts.most_common()
    return ", ".join([f"{counted(first[1], 'node')} {first[0]}", *(f"{number} {state}" for state, number in rest)])


def jobs(seen: ClusterObservation) -> str:
    """Count the jobs by state, in words: `3 jobs running, 1 pending`."""
    found = seen.slurm("jobs")
    if found is None:
        return "the queue is not known"
    counts = sorted(found["states"].items(), key=lambda pair: (pair[0] != "RUNNING", pair[0]))
    if not counts:
        return "0 jobs"
    first, *rest = counts
    return ", ".join([f"{counted(first[1], 'job')} {first[0].lower()}", *(f"{n} {state.lower()}" for state, n in rest)])


WIDTH = 100
"""Greatest width of paragraphs; tables are as wide as they are."""


def show(seen: ClusterObservation, found: list[ClusterFinding]) -> None:
    now = time.time()
    show_findings(seen, found, now)
    for table in filter(None, tables(seen, now).values()):
        console.line()
        console.table(table)


def tables(seen: ClusterObservation, now: float) -> dict[str, Table]:
    """Every table by its name, in their order; empty those without rows."""
    return {
        "nodes": nodes(seen),
        "partitions": partitions(seen),
        "queue": queue(seen),
        "actions": actions(seen, now),
        "failover": failover(seen, now),
        "alerts": alerts(seen),
        "daemons": daemons(seen, now),
        "storage": storage(seen),
        "versions": versions(seen),
    }


def show_findings(seen: ClusterObservation, found: list[ClusterFinding], now: float) -> None:
    """Print the first line, and what is wrong."""
    console.line(sentence(seen, found), style="bold red" if found else "bold green")
    for finding in found:
        console.line()
        show_finding(finding, now)


def sentence(seen: ClusterObservation, found: list[ClusterFinding]) -> str:
    """The first line."""
    result = "all is well" if not found else f"{counted(len(found), 'thing')} to look at"
    return f"{seen.stack}: {result}: {states(seen)}, {jobs(seen)}."


def show_finding(finding: ClusterFinding, now: float) -> None:
    since = f", for {ago(now - finding.since)}" if finding.since else ""
    console.line(f"{compress(finding.where)}: {finding.id}{since}", style="bold")
    for text in paragraph(f"{finding.what}."):
        console.line(text)
    # A command is typed as it stands: it is never broken.
    console.line(f"    > {finding.todo}", style="cyan")
    for text in paragraph(finding.note) if finding.note else ():
        console.line(text)


def paragraph(text: str) -> list[str]:
    """Indented lines; on a terminal none is wider than it."""
    if not sys.stdout.isatty():
        return [f"    {text}"]
    width = min(WIDTH, shutil.get_terminal_size().columns)
    return textwrap.wrap(
        text, width, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
