"""The switches that slurmctld places jobs by, and how far apart the nodes of a job are: from `scontrol show topology`,
scontrol's nodes and a job's records. Pure functions."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cluster.observe.nodes import NODES_COMMAND, Node, parse_nodes
from scripts.node.slurm.hostlist import compress, expand

_RECORD = re.compile(r"^(SwitchName|BlockName|AggregatedBlock)=(\S+)")
_PARTS = 5
DISTANCES = {
    "block": "all below one leaf switch",
    "cluster": "in one cluster, in different blocks of it",
    "different": "in different clusters, or in places that are not known",
}
"""How far apart the nodes of a job are: by key, the words for it."""


class TopologyError(Exception):
    """There is no topology, or no such job; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Switch:
    """A switch, or a block of topology/block."""

    name: str
    level: int
    """0 for one that nodes are connected to."""
    nodes: tuple[str, ...]
    parent: str = ""
    """Empty for one at the top."""
    cloud: str = ""
    """The cloud's own name; empty where that is not known."""


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Switches, the leaves in slurmctld's order, by which it numbers ranks."""

    switches: Mapping[str, Switch]
    states: Mapping[str, Node]
    job: Mapping[str, Any] = field(default_factory=dict)
    """Number, nodes, leaves with the number of nodes below each, common switch and distance of a job, if one is asked
    for."""

    refused: bool = False
    """True if slurmctld runs with another topology.conf than that of the latest places, as it refused that one."""

    @property
    def leaves(self) -> Iterator[Switch]:
        return (switch for switch in self.switches.values() if switch.level == 0)

    def below(self, parent: str) -> Iterator[Switch]:
        return (switch for switch in self.switches.values() if switch.parent == parent)

    def document(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "switches": [
                {
                    "name": one.name,
                    "level": one.level,
                    "parent": one.parent or None,
                    "cloud": one.cloud or None,
                    "nodes": list(one.nodes),
                }
                for one in self.switches.values()
            ],
            "nodes": {
                name: {"switch": leaf.name, "state": self._state(name)} for leaf in self.leaves for name in leaf.nodes
            },
            "refused": self.refused,
            **({"job": dict(self.job)} if self.job else {}),
        }

    def table(self) -> list[tuple[str, ...]]:
        """Return rows of a table: the tree, with the states of the nodes of each leaf, and the job's nodes there."""
        head = ("SWITCH", "NODES", *(("OF THE JOB",) if self.job else ()), "STATES", "NAMES", "IN THE CLOUD")
        return [head, *self._rows("", 0)]

    def _rows(self, parent: str, depth: int) -> Iterator[tuple[str, ...]]:
        for switch in self.below(parent):
            states = Counter(self._state(name) for name in switch.nodes) if switch.level == 0 else {}
            of_job = len(set(self.job["nodes"]) & set(switch.nodes)) if self.job else 0
            yield (
                "  " * depth + switch.name,
                str(len(switch.nodes)),
                *((str(of_job or "-"),) if self.job else ()),
                ", ".join(f"{count} {state}" for state, count in sorted(states.items())),
                compress(switch.nodes) if switch.level == 0 else "",
                switch.cloud,
            )
            yield from self._rows(switch.name, depth + 1)

    def _state(self, name: str) -> str:
        return self.states[name].word if name in self.states else "unknown"


def topology_command(mark: str, job: str = "") -> str:
    """Return the line of sh whose output `read` takes; a job's nodes are asked of slurmctld, then of the database."""
    number = shlex.quote(job)
    asked = (
        f"squeue --noheader --all --states=all --jobs={number} --format='%i|%N' 2>/dev/null | grep '|.' || "
        f"sacct --noheader --allocations --parsable2 --jobs={number} --format=JobID,NodeList 2>&1"
    )
    parts = [
        "scontrol show topology 2>&1",
        "grep '^# [bc]-' /etc/slurm/topology.conf 2>/dev/null",
        NODES_COMMAND,
        asked if job else ":",
        "cat /etc/hpc/topology-refused 2>/dev/null",
    ]
    return f"; echo {mark}; ".join(parts) + "; true"


def parse_topology(text: str, mark: str, job: str = "") -> Topology:
    """Read the output of `script`. Raises TopologyError."""
    shown, titles, nodes, records, refused = (text.split(f"{mark}\n") + [""] * _PARTS)[:_PARTS]
    named = re.findall(r"^# (\S+) is (\S+)$", titles, re.MULTILINE)
    switches = _switches(shown, dict(named))
    if not switches:
        said = next((line for line in shown.splitlines() if "rror" in line), "scontrol lists no switch")
        raise TopologyError(
            f"slurmctld has no topology ({said}): the stack has `slurm: {{topology: none}}`, or one nodeset, whose "
            "nodes are not placed close to each other. `slurm: {topology: nodesets}` has a switch for each nodeset"
        )
    found = Topology(switches=switches, states=parse_nodes(nodes, []), refused=bool(refused.strip()))
    return replace(found, job=_job(job, records, found)) if job else found


def _switches(text: str, titles: Mapping[str, str]) -> dict[str, Switch]:
    found: list[Switch] = []
    for line in text.splitlines():
        if not (match := _RECORD.match(line)):
            continue
        row = {key: value for key, _, value in (word.partition("=") for word in line.split())}
        # Blocks of blocks are larger than those below them.
        level = int(row.get("Level") or (int(row.get("BlockSize") or 1) if match[1] == "AggregatedBlock" else 0))
        name = str(match[2])
        found.append(
            Switch(name=name, level=level, nodes=tuple(expand(row.get("Nodes", ""))), cloud=titles.get(name, ""))
        )
    upper = [(set(one.nodes), one) for one in sorted(found, key=lambda one: one.level) if one.level]
    switches: dict[str, Switch] = {}
    for one in found:
        above = (up for nodes, up in upper if up.level > one.level and one.nodes and one.nodes[0] in nodes)
        parent = next(above, None)
        switches[one.name] = Switch(
            name=one.name, level=one.level, nodes=one.nodes, cloud=one.cloud, parent=parent.name if parent else ""
        )
    return switches


def _job(number: str, records: str, topology: Topology) -> dict[str, Any]:
    rows = dict(line.split("|", 1) for line in records.splitlines() if "|" in line)
    placed = {name: hosts for name, hosts in rows.items() if hosts and hosts != "None assigned"}
    if not rows:
        said = f": {records.strip()}" if records.strip() else ""
        raise TopologyError(f"neither slurmctld nor the database has a job {number}{said}")
    if not placed:
        raise TopologyError(f"job {number} has no nodes: it has not begun")
    if len(placed) > 1:
        raise TopologyError(f"job {number} is {len(placed)} jobs: give one of them, such as {next(iter(placed))}")
    nodes = expand(next(iter(placed.values())))
    return {"id": number, "nodes": nodes, **distance(nodes, topology)}


def distance(nodes: Sequence[str], topology: Topology) -> dict[str, Any]:
    """Return how far apart nodes are: the leaves with the number of nodes below each, the nearest switch above all of
    them, and a key of DISTANCES."""
    wanted = set(nodes)
    leaves = {leaf.name: count for leaf in topology.leaves if (count := len(wanted & set(leaf.nodes)))}
    common = min(
        (one for one in topology.switches.values() if wanted <= set(one.nodes)),
        key=lambda one: (len(one.nodes), one.level),
        default=None,
    )
    near = "block" if common and common.level == 0 else "cluster" if common and common.parent else "different"
    return {"leaves": leaves, "common": common.name if common else None, "distance": near}
