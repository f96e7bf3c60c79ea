"""The output of `./hpc status`: one sentence, the findings, then tables."""

import shutil
import sys
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from cli import console
from cluster.findings import ClusterFinding
from cluster.observe.observation import ClusterObservation, MachineObservation
from cluster.printable import counted
from scripts.node.judge.document import bytes_used, inodes_used
from scripts.node.slurm.hostlist import compress
from scripts.node.slurm.nodes import Node

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def ago(seconds: float) -> str:
    """Return a span of time as text, with one or two units: `40 s`, `12 min`, `3 h 5 min`, `2 d 4 h`."""
    whole = max(int(seconds), 0)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def size(count: float) -> str:
    """Return a number of bytes as text, in the unit that fits: `612 MiB`, `7.5 GiB`, `1.2 TiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def cut(text: str, longest: int = 48) -> str:
    """Return the text, or its beginning if it is longer than a table's last column should be."""
    return text if len(text) <= longest else text[: longest - 3].rstrip() + "..."


Table = list[tuple[str, ...]]
JOBS = 12
"""Jobs that are listed; the others are counted."""


def nodes(observation: ClusterObservation) -> Table:
    """Return the nodes by state, GPUs and reason."""
    groups: dict[tuple[str, str, str], list[Node]] = defaultdict(list)
    for node in (observation.slurm_nodes or {}).values():
        groups[node.word, node.gres.partition("(")[0] or "-", node.why or "-"].append(node)
    rows = []
    for (state, size, reason), members in groups.items():
        names = compress(node.name for node in members)
        used, cpus = sum(node.used_cpus for node in members), sum(node.cpus for node in members)
        rows.append((names, str(len(members)), state, f"{used}/{cpus}", size, cut(reason)))
    return _with_heading(("NODES", "COUNT", "STATE", "CPUS USED", "GPUS EACH", "REASON"), rows)


def partitions(observation: ClusterObservation) -> Table:
    """Return the partitions; a star marks the default one."""
    rows = [
        (
            f"{name}*" if row.get("Default") == "YES" else name,
            row.get("State", "").lower(),
            row.get("MaxTime", "").lower(),
            row.get("TotalNodes", ""),
            row.get("TotalCPUs", ""),
            row.get("Nodes", ""),
        )
        for name, row in (observation.slurm("partitions") or {}).items()
    ]
    return _with_heading(("PARTITION", "STATE", "TIME LIMIT", "NODES", "CPUS", "NAMES"), rows)


def queue(observation: ClusterObservation) -> Table:
    """Return the first jobs of the queue."""
    first = (observation.slurm("jobs") or {}).get("first", [])
    comments = (observation.controller.part("reconcile") or {}).get("jobs", {})

    def where(job: Mapping[str, Any]) -> str:
        comment = comments.get(job.get("number", ""))
        # Slurm has assigned nodes to a job whose machines still wait in the cloud's queue.
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
    total = sum((observation.slurm("jobs") or {}).get("states", {}).values())
    if total > len(rows):
        rows.append(("...", f"and {total - len(rows)} more", "", "", "", "", "", ""))
    return _with_heading(("JOB", "USER", "PARTITION", "STATE", "TIME", "NODES", "WHERE OR WHY", "NAME"), rows)


def actions(observation: ClusterObservation, now: float) -> Table:
    """Return the last actions of the reconcile loop."""
    rows = [
        (
            ago(now - row["time"]),
            row.get("action") or row["rule"],
            compress(row["nodes"]) if row["nodes"] else "-",
            row.get("slurm", "").lower() or "-",
            cut(row.get("result") or row.get("reason") or row.get("way") or row["rule"], 80),
        )
        for row in (observation.controller.part("reconcile") or {}).get("actions", [])
        if not row["rule"].startswith("asked-")
    ]
    return _with_heading(("AGO", "ACTION", "NODES", "STATE BEFORE", "WHY"), rows)


def alerts(observation: ClusterObservation) -> Table:
    """Return the firing alerts of Prometheus; of an alert that fires for many machines, the oldest."""
    groups: dict[tuple[str, str, str], list[tuple[str, str]]] = defaultdict(list)
    for alert in observation.monitoring.part("alerts") or []:
        groups[alert["name"], alert["severity"], alert["actor"]].append((alert["since"][:19], alert["summary"]))
    rows = []
    for (name, severity, actor), instances in groups.items():
        since, what = min(instances)
        more = f", and {len(instances) - 1} more" if len(instances) > 1 else ""
        rows.append((name, severity, since, actor, f"{cut(what, 100)}{more}"))
    return _with_heading(("ALERT", "SEVERITY", "SINCE (UTC)", "WHO ACTS", "WHAT"), rows)


def daemons(observation: ClusterObservation, now: float) -> Table:
    """Return the daemons by name and state, with the time since the last start of any of them."""
    groups: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for machine in observation.machines:
        for name, unit in machine.daemons.items():
            state = "running" if unit["state"] == "active" else f"{unit['state']} ({unit['sub']})"
            groups[name, state].append((machine.name, unit["since"]))
    rows = []
    for (name, state), instances in groups.items():
        since = max(started for _, started in instances)
        machines = _machines(observation, [machine for machine, _ in instances])
        rows.append((name, state, ago(now - since) if since else "-", machines))
    return _with_heading(("DAEMON", "STATE", "FOR", "MACHINES"), rows)


def versions(observation: ClusterObservation) -> Table:
    """Return the programs by version, with the machines that have them."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for machine in observation.machines:
        image = machine.part("image") or {}
        versions = dict(machine.part("versions") or {})
        if source := ", ".join(str(image[key]) for key in ("recipe", "snapshot") if image.get(key)):
            versions["image"] = source
        for name, version in versions.items():
            groups[name, version].append(machine.name)
    rows = [(name, version, _machines(observation, names)) for (name, version), names in sorted(groups.items())]
    return _with_heading(("PROGRAM", "VERSION", "MACHINES"), rows)


def storage(observation: ClusterObservation) -> Table:
    """Return the file systems by path: the fullest one of all machines, shared ones once."""
    groups: dict[str, list[tuple[MachineObservation, Mapping[str, Any]]]] = defaultdict(list)
    for machine in observation.machines:
        devices: set[int | None] = set()
        disks = machine.disks.items()
        for path, disk in sorted(disks, key=lambda pair: len(pair[0])):
            if "size" in disk and disk.get("device") not in devices:
                groups[path].append((machine, disk))
            if "size" in disk and not disk.get("shared"):
                devices.add(disk.get("device"))
    rows = []
    for path, disks in sorted(groups.items(), key=lambda pair: _is_shared(pair[1])):
        _, disk = max(disks, key=lambda pair: max(bytes_used(pair[1]), inodes_used(pair[1])))
        names = _machines(observation, [machine.name for machine, _ in disks])
        names += "" if len(disks) == 1 or _is_shared(disks) else ", fullest shown"
        figures = (f"{bytes_used(disk):.0%}", size(disk["free"]), size(disk["used"] + disk["free"]))
        rows.append((path, *figures, f"{inodes_used(disk):.0%}", names))
    return _with_heading(("STORAGE", "USED", "FREE", "OF", "INODES", "MACHINES"), rows)


def _is_shared(disks: list[tuple[MachineObservation, Mapping[str, Any]]]) -> bool:
    return any(disk.get("shared") for _, disk in disks)


def _machines(observation: ClusterObservation, names: list[str]) -> str:
    """Return the names of machines as a host list, "all" for all machines."""
    return "all" if len(names) == len(observation.machines) else compress(names)


def _with_heading(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    """Return a table, which is empty without rows."""
    return [heading, *rows] if rows else []


def states(observation: ClusterObservation) -> str:
    """Return the number of nodes by state, as text: `62 nodes idle, 2 drained`."""
    found = observation.slurm_nodes
    if not found:
        return "the nodes' states are not known" if found is None else "no nodes"
    counts = Counter(node.word for node in found.values())
    first, *rest = counts.most_common()
    return ", ".join([f"{counted(first[1], 'node')} {first[0]}", *(f"{number} {state}" for state, number in rest)])


def jobs(observation: ClusterObservation) -> str:
    """Return the number of jobs by state, as text: `3 jobs running, 1 pending`."""
    queue = observation.slurm("jobs")
    if queue is None:
        return "the queue is not known"
    counts = sorted(queue["states"].items(), key=lambda pair: (pair[0] != "RUNNING", pair[0]))
    if not counts:
        return "0 jobs"
    first, *rest = counts
    return ", ".join([f"{counted(first[1], 'job')} {first[0].lower()}", *(f"{n} {state.lower()}" for state, n in rest)])


WIDTH = 100
"""Greatest width of paragraphs; tables may be wider."""


def show(observation: ClusterObservation, findings: list[ClusterFinding]) -> None:
    now = time.time()
    show_findings(observation, findings, now)
    for table in filter(None, tables(observation, now).values()):
        console.line()
        console.table(table)


def tables(observation: ClusterObservation, now: float) -> dict[str, Table]:
    """Return every table by its name, in the order of the output. A table without rows is empty."""
    return {
        "nodes": nodes(observation),
        "partitions": partitions(observation),
        "queue": queue(observation),
        "actions": actions(observation, now),
        "alerts": alerts(observation),
        "daemons": daemons(observation, now),
        "storage": storage(observation),
        "versions": versions(observation),
    }


def show_findings(observation: ClusterObservation, findings: list[ClusterFinding], now: float) -> None:
    """Print the first line and the findings."""
    console.line(sentence(observation, findings), style="bold red" if findings else "bold green")
    for finding in findings:
        console.line()
        show_finding(finding, now)


def sentence(observation: ClusterObservation, findings: list[ClusterFinding]) -> str:
    """Return the first line of the output."""
    result = "all is well" if not findings else f"{counted(len(findings), 'thing')} to look at"
    return f"{observation.stack}: {result}: {states(observation)}, {jobs(observation)}."


def show_finding(finding: ClusterFinding, now: float) -> None:
    since = f", for {ago(now - finding.since)}" if finding.since else ""
    console.line(f"{compress(finding.where)}: {finding.id}{since}", style="bold")
    for text in paragraph(f"{finding.what}."):
        console.line(text)
    # A line break in a command would keep people from copying it.
    console.line(f"    > {finding.todo}", style="cyan")
    for text in paragraph(finding.note) if finding.note else ():
        console.line(text)


def paragraph(text: str) -> list[str]:
    """Return the text as indented lines, which are wrapped to the width of a terminal."""
    if not sys.stdout.isatty():
        return [f"    {text}"]
    width = min(WIDTH, shutil.get_terminal_size().columns)
    return textwrap.wrap(
        text, width, initial_indent="    ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
