"""topology.conf: the switches above each node, from the places that nodes report, and the service that updates it.

A place is the cloud's name of a machine's host, /CLUSTER/BLOCK/HOST. The blocks are leaf switches below their cluster.
Nodes without a place are below a switch of their nodeset.

slurmctld numbers nodes by their switch (SwitchAsNodeRank), and records what a job has on its nodes in that order
(job_resources.c: reset_node_bitmap sets the nodes, and leaves CPUs and cores as they are). So the order of switches
does not depend on which switches exist, and nodes of a job on several nodes keep their switch until the job has ended.

A reconfigure replaces slurmctld's process (_try_to_reconfig, src/slurmctld/controller.c, from 23.11 on). Machines that
boot can't register meanwhile, and the PrologSlurmctld that waits for them is run again (_sync_nodes_to_jobs,
read_config.c). So all nodes keep their switches while one boots. `scontrol update node topology=` of 25.05 needs no
reconfigure, but leaves the nodes' numbers as they are, and older releases do not have it.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from interface import TopologyInput
from slurm import conf_changes, hostlist, jobs, scheduler, slurmctld
from system import cluster_state
from system.host import (
    SetupError,
    forget,
    log,
    printable,
    read_json,
    remove,
    service,
    stop_services,
    succeeds,
    unread_units,
    write,
    write_unit,
)
from system.locks import LOCKS, open_lock, take_lock

NAME, ROOT = conf_changes.TOPOLOGY, "root"
SERVICE = "hpc-topology"
SETTINGS = Path("/etc/hpc/topology.json")
REFUSED = Path("/etc/hpc/topology-refused")  # the last text that slurmctld refused, and why; it is not tried again
SETUP_LOCK = LOCKS / "setup.lock"  # the lock of the phases
UNIT = Path(f"/etc/systemd/system/{SERVICE}.service")
MAX_LEAVES = 1000  # slurmctld's time grows with the third power (switch_record_validate), while it holds its locks
POLL_SECONDS = 2
QUIET_SECONDS, MAX_DELAY_SECONDS = 5, 30  # from the last report, and from the first one, until a refresh
MIN_INTERVAL_SECONDS = 30  # between two reconfigures: a node may report another place at any time
MAX_WAIT_SECONDS = 1800  # for the end of all boots: longer than one lasts (ResumeTimeout, 1500 s at most)
HEAD = """\
# Written by the cluster's set-up from the places that nodes report; what is written here is lost then.
# A job is placed below as few switches as possible. Nodes of ns-NODESET have reported no place.
"""
UNIT_TEXT = f"""\
# Written by the cluster's set-up.
[Unit]
Description=Keep Slurm's topology.conf as the places of nodes are
After=slurmctld.service
RequiresMountsFor={cluster_state.REPORTS}

[Service]
Environment=PYTHONPATH={Path(__file__).parents[1]}
ExecStart=/usr/bin/python3 -S -m slurm.topology
Restart=always
RestartSec=5
Nice=10

[Install]
WantedBy=multi-user.target
"""
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def switches(place: str) -> tuple[str, ...]:
    """Return the names of the switches above a host, the widest first; empty if `place` is not one.

    The names are hashes of the cloud's names: Slurm allows 64 characters, and parses digits at the end as a number.
    """
    parts = place.split("/")
    if len(parts) < 4 or parts[0] or not all(map(_PART.fullmatch, parts[1:])):
        return ()
    cluster, block = (hashlib.sha256("/".join(parts[1:end]).encode()).hexdigest()[:8] for end in (2, 3))
    return f"c-{cluster}", f"b-{block}"


def paths(
    nodesets: Mapping[str, Sequence[str]],
    places: Mapping[str, str],
    *,
    present: Mapping[str, tuple[str, ...]],
    held: Collection[str],
) -> dict[str, tuple[str, ...]]:
    """Return the switches above each node. Nodes in `held` keep those that they have at present. A pure function."""
    above: dict[str, tuple[str, ...]] = {}
    for nodeset, names in nodesets.items():
        for name in names:
            kept = present.get(name, ()) if name in held else ()
            above[name] = kept or switches(places.get(name, "")) or (f"ns-{nodeset}",)
    return above


def render(above: Mapping[str, tuple[str, ...]], places: Iterable[str] = ()) -> str:
    """Return the topology.conf of nodes with the switches above them. Comments have the `places` of the switches. A
    pure function."""
    leaves: dict[tuple[str, ...], list[str]] = {}
    for depth in (2, 1, 0):
        leaves = {}
        for node, path in above.items():
            leaves.setdefault(path[:depth] or ("all",), []).append(node)
        if len(leaves) <= MAX_LEAVES:
            break  # otherwise leave out a level: no cloud has so many blocks, so places are not real
    below: dict[str, list[str]] = {}
    for path in sorted(leaves):
        for upper, lower in zip((ROOT, *path), path, strict=False):
            if lower not in below.setdefault(upper, []):
                below[upper].append(lower)
    lines = [f"SwitchName={path[-1]} Nodes={hostlist.compress(leaves[path])}" for path in sorted(leaves)]
    lines += [f"SwitchName={name} Switches={','.join(below[name])}" for name in sorted(below)]
    titles = {
        switch: "/".join(place.split("/")[: depth + 2])
        for place in places
        for depth, switch in enumerate(switches(place))
    }
    used = {name for path in leaves for name in path}
    named = [f"# {name} is {title}" for name, title in sorted(titles.items()) if name in used]
    return HEAD + "\n".join([*named, *lines]) + "\n"


def present(text: str) -> dict[str, tuple[str, ...]]:
    """Return the switches above each node, without the root, from a topology.conf that `render` made. A pure
    function."""
    rows = conf_changes.parse_lines(text, "switchname")
    parents = {child: row["switchname"] for row in rows for child in row.get("switches", "").split(",")}
    above: dict[str, tuple[str, ...]] = {}
    for row in rows:
        path = [row["switchname"]]
        while len(path) < len(rows) and parents.get(path[0], ROOT) != ROOT:
            path.insert(0, parents[path[0]])
        above.update(dict.fromkeys(hostlist.expand(row.get("nodes", "")), tuple(path)))
    return above


def _held_nodes(all_nodes: Iterable[str], *, during_boots: bool) -> set[str]:
    """Return the nodes of jobs on several nodes; all nodes if slurmctld does not answer, and while a node boots unless
    `during_boots`."""
    if not succeeds("scontrol", "ping"):
        return set(all_nodes)
    if not during_boots and any(node.booting for node in scheduler.read_nodes().values()):
        return set(all_nodes)
    hosts = [job.hosts for job in scheduler.read_jobs(f"--states={jobs.HOLDING}")]
    return {name for nodes in hosts if len(nodes) > 1 for name in nodes}


def files(settings: TopologyInput | None) -> dict[str, str]:
    """Return topology.conf by its name, with the places that nodes have reported; nothing without settings."""
    return {NAME: _topology(settings)[0]} if settings else {}


def _topology(settings: TopologyInput, *, during_boots: bool = False) -> tuple[str, bool]:
    """Return the text of topology.conf, and whether nodes keep a switch until the end of jobs or boots."""
    reports = cluster_state.reports() if settings["places"] else {}
    places = {name: str(report.get("place", "")) for name, report in reports.items()}
    nodesets = {name: hostlist.expand(nodes) for name, nodes in settings["nodesets"].items()}
    applied = slurmctld.applied().get(NAME, "")
    before = present(applied)
    held = _held_nodes(before, during_boots=during_boots) if before and settings["places"] else set()
    above = paths(nodesets, places, present=before, held=held)
    text = render(above, [places[name] for name in above if name in places])
    if read_json(REFUSED, {}).get("text") == text:
        return applied or text, False
    remove(REFUSED)
    if conf_changes.settings(text) == conf_changes.settings(applied):
        text = applied  # another comment needs no reconfigure
    return text, above != paths(nodesets, places, present=before, held=())


def refresh(*, during_boots: bool = False) -> bool:
    """Update slurmctld's topology.conf if places have changed. Return whether some changes wait for the end of jobs, or
    of boots unless `during_boots`.

    Raises SetupError if slurmctld refuses the file. Then it runs with the one of before.
    """
    settings: TopologyInput | None = read_json(SETTINGS, None)
    if not settings or not settings["places"]:
        return False
    text, waits = _topology(settings, during_boots=during_boots)
    path = slurmctld.ETC / NAME
    if text != slurmctld.applied().get(NAME) or not path.exists() or path.read_text() != text:
        try:
            slurmctld.replace_file(NAME, text)
        except SetupError as error:
            write(REFUSED, json.dumps({"text": text, "why": str(error)}) + "\n")
            raise
    return waits


def refused() -> str:
    """Return why slurmctld refused the latest places; empty if it runs with them."""
    return str(read_json(REFUSED, {}).get("why", ""))


def converge(settings: TopologyInput | None) -> None:
    """Run the service if nodes report places; else remove it."""
    if settings and settings["places"]:
        text = json.dumps(settings, indent=1, sort_keys=True) + "\n"
        write(SETTINGS, text)
        write_unit(UNIT, UNIT_TEXT)
        service(SERVICE, settings=text + UNIT_TEXT + Path(__file__).read_text(), block=False)
    elif SETTINGS.exists() or UNIT.exists():
        stop_services(SERVICE)
        forget(SERVICE)
        unread_units()
        for path in (UNIT, SETTINGS, REFUSED):
            remove(path)


def main() -> None:
    """Run the service: refresh when nodes have reported, and when jobs or boots that a change waits for may have
    ended."""
    changed, first, last, refreshed = 0.0, time.monotonic(), time.monotonic(), -float(MIN_INTERVAL_SECONDS)
    waiting: float | None = None  # since when a change waits
    waits, logged = False, ""
    while True:
        time.sleep(POLL_SECONDS)
        now, change_time = time.monotonic(), 0.0
        with suppress(OSError):
            # A report is renamed into its place, which changes the folder.
            change_time = os.stat(cluster_state.REPORTS).st_mtime  # noqa: PTH116 - with no object each time
        if change_time != changed:
            changed, last, first = change_time, now, first or now
        due = first and (now - last > QUIET_SECONDS or now - first > MAX_DELAY_SECONDS)
        if not (due or waits) or now - refreshed < MIN_INTERVAL_SECONDS:
            continue
        with open_lock(SETUP_LOCK) as lock:
            if not take_lock(lock):
                continue  # an `up` is running, which refreshes at its end
            first, refreshed, overdue = 0.0, now, waiting is not None and now - waiting > MAX_WAIT_SECONDS
            try:
                waits, text = refresh(during_boots=overdue), ""
            except (SetupError, OSError) as error:
                waits, text = False, printable(f"{NAME}: {error}")
            waiting = (waiting or now) if waits and not overdue else None
            if text != logged:
                logged = text
                log(text or f"{NAME}: slurmctld runs with it")


if __name__ == "__main__":
    main()
