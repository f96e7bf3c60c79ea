"""topology.conf: the switches that nodes are below, by the places that nodes report; and the service that keeps it so.

A place is the cloud's name of a machine's host, /CLUSTER/BLOCK/HOST. The blocks are leaf switches below their cluster.
Nodes without a place are below a switch of their nodeset.

slurmctld numbers nodes by their switch (SwitchAsNodeRank), and what a job has on each of its nodes goes by that order
(job_resources.c: reset_node_bitmap sets the nodes, and leaves CPUs and cores as they are). So switches stand in an
order that does not depend on which of them there are, and nodes of a job on several nodes keep their switch until it
has ended.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from interface import Topology
from slurm import conf_changes, hostlist, scheduler, slurmctld
from system import cluster_state
from system.host import (
    SetupError,
    forget,
    log,
    printable,
    read_json,
    remove,
    run,
    service,
    stop_services,
    succeeds,
    take_lock,
    unread_units,
    write,
    write_unit,
)

NAME, ROOT = conf_changes.TOPOLOGY, "root"
SERVICE = "hpc-topology"
SETTINGS = Path("/etc/hpc/topology.json")
REFUSED = Path("/etc/hpc/topology-refused")  # the text that slurmctld refused last, and why: not tried again
SETUP_LOCK = Path("/run/hpc/setup.lock")  # of the phases
UNIT = Path(f"/etc/systemd/system/{SERVICE}.service")
MOST_LEAVES = 1000  # slurmctld takes the third power of their number (switch_record_validate), with its locks held
POLL_SECONDS, QUIET_SECONDS, LATEST_SECONDS = 2, 5, 30
LEAST_SECONDS = 30  # between two reconfigures: a node may report another place as often as it likes
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
    """Return the names of the switches above a host, the widest first; empty for what is no place.

    Slurm takes 64 characters, and reads digits at the end as a number: so a name is a hash of the cloud's.
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
    """Return the switches above each node. Those that are `held` keep what they have at present. A pure function."""
    found: dict[str, tuple[str, ...]] = {}
    for nodeset, names in nodesets.items():
        for name in names:
            stays = present.get(name, ()) if name in held else ()
            found[name] = stays or switches(places.get(name, "")) or (f"ns-{nodeset}",)
    return found


def render(above: Mapping[str, tuple[str, ...]], places: Iterable[str] = ()) -> str:
    """Text of topology.conf for nodes with the switches above them; `places` are named beside the switches. A pure
    function."""
    leaves: dict[tuple[str, ...], list[str]] = {}
    for depth in (2, 1, 0):
        leaves = {}
        for node, path in above.items():
            leaves.setdefault(path[:depth] or ("all",), []).append(node)
        if len(leaves) <= MOST_LEAVES:
            break  # no cloud has more: names were made up
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
    """The switches above each node, below the root, in a topology.conf of this set-up's. A pure function."""
    rows = conf_changes.lines(text, "switchname")
    parents = {child: row["switchname"] for row in rows for child in row.get("switches", "").split(",")}
    found: dict[str, tuple[str, ...]] = {}
    for row in rows:
        path = [row["switchname"]]
        while len(path) < len(rows) and parents.get(path[0], ROOT) != ROOT:
            path.insert(0, parents[path[0]])
        found.update(dict.fromkeys(hostlist.expand(row.get("nodes", "")), tuple(path)))
    return found


def _places(settings: Topology) -> dict[str, str]:
    reports = cluster_state.reports() if settings["places"] else {}
    return {name: str(report.get("place", "")) for name, report in reports.items()}


def _held(now: Iterable[str]) -> set[str]:
    """Nodes of jobs on several nodes; all that there are now where slurmctld can't be asked."""
    if not succeeds("scontrol", "ping"):
        return set(now)
    text = run("squeue", "--noheader", "--all", f"--states={scheduler.RUNS}", "--format=%N")
    jobs = [hostlist.expand(hosts) for hosts in text.split()]
    return {name for nodes in jobs if len(nodes) > 1 for name in nodes}


def files(settings: Topology | None) -> dict[str, str]:
    """topology.conf by its name, as the nodes' places are now; nothing where there is none."""
    return {NAME: _wanted(settings)[0]} if settings else {}


def _wanted(settings: Topology) -> tuple[str, bool]:
    """The text, and whether nodes have reported another place that their jobs keep them from."""
    places = _places(settings)
    nodesets = {name: hostlist.expand(nodes) for name, nodes in settings["nodesets"].items()}
    now = present(slurmctld.applied().get(NAME, ""))
    held = _held(now) if now and settings["places"] else set()
    above = paths(nodesets, places, present=now, held=held)
    text = render(above, [places[name] for name in above if name in places])
    if read_json(REFUSED, {}).get("text") == text:
        return slurmctld.applied().get(NAME, text), False
    remove(REFUSED)
    return text, above != paths(nodesets, places, present=now, held=())


def refresh() -> bool:
    """Have slurmctld run with the places as they are now; whether some of them must wait for the end of jobs.

    Nothing is done where there is nothing new. Raises SetupError where slurmctld refuses the file, and runs with the
    one of before.
    """
    settings: Topology | None = read_json(SETTINGS, None)
    if not settings or not settings["places"]:
        return False
    text, waits = _wanted(settings)
    path = slurmctld.ETC / NAME
    if text != slurmctld.applied().get(NAME) or not path.exists() or path.read_text() != text:
        try:
            slurmctld.replace_file(NAME, text)
        except SetupError as error:
            write(REFUSED, json.dumps({"text": text, "why": str(error)}) + "\n")
            raise
    return waits


def refused() -> str:
    """Why slurmctld refused the latest places; empty where it runs with them."""
    return str(read_json(REFUSED, {}).get("why", ""))


def converge(settings: Topology | None) -> None:
    """Have the service running where nodes report places, and only there."""
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
    """The service: refreshes when nodes have reported, and when jobs that were waited for may have ended."""
    stamp, first, last, done = 0.0, time.monotonic(), time.monotonic(), -float(LEAST_SECONDS)
    waits, said = False, ""
    while True:
        time.sleep(POLL_SECONDS)
        now, seen = time.monotonic(), _stamp()
        if seen != stamp:
            # A report comes by a rename.
            stamp, last, first = seen, now, first or now
        quiet = first and (now - last > QUIET_SECONDS or now - first > LATEST_SECONDS)
        if not (quiet or waits) or now - done < LEAST_SECONDS:
            continue
        SETUP_LOCK.parent.mkdir(exist_ok=True)
        with SETUP_LOCK.open("w") as lock:
            if not take_lock(lock):
                continue  # an `up`, which refreshes at its end
            first, done = 0.0, now
            try:
                waits, text = refresh(), ""
            except (SetupError, OSError) as error:
                waits, text = False, printable(f"{NAME}: {error}")
            if text != said:
                said = text
                log(text or f"{NAME}: slurmctld runs with it")


def _stamp() -> float:
    try:
        return os.stat(cluster_state.REPORTS).st_mtime  # noqa: PTH116 - with no object each time
    except OSError:
        return 0.0


if __name__ == "__main__":
    main()
