"""The switches of slurmctld's topology, and the distance between the nodes of a job: from `scontrol show topology`,
scontrol's nodes and a job's records. Pure functions."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from scripts.node.slurm.hostlist import compress, expand
from scripts.node.slurm.nodes import COMMAND, Node, parse
from scripts.node.slurm.output import parse_sacct, sacct_command

_RECORD = re.compile(r"^(SwitchName|BlockName|AggregatedBlock)=(\S+)")
_PARTS = 5
_FIELDS = ("JobID", "NodeList")
DISTANCES = {
    "block": "all below one leaf switch",
    "cluster": "in one cluster, in different blocks of it",
    "different": "in different clusters, or in places that are not known",
}
"""Distances between the nodes of a job: key and description."""


class TopologyError(Exception):
    """There is no topology, or no such job; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Switch:
    """A switch, or a block of topology/block."""

    name: str
    level: int
    """0 for a leaf, which nodes are connected to."""
    nodes: tuple[str, ...]
    parent: str = ""
    """Empty for a switch at the top."""
    cloud: str = ""
    """The cloud's own name; empty if it is not known."""


@dataclass(frozen=True, kw_only=True)
class Topology:
    """The topology of a cluster, and optionally the place of a job in it."""

    switches: Mapping[str, Switch]
    """In slurmctld's order, which is that of ranks."""
    states: Mapping[str, Node]
    job: Mapping[str, Any] = field(default_factory=dict)
    """Id and nodes of a job, with `distance` of these."""
    refused: bool
    """True if slurmctld refused the topology.conf with the latest places, and runs with an earlier one."""

    @property
    def leaves(self) -> Iterator[Switch]:
        return (switch for switch in self.switches.values() if switch.level == 0)

    def below(self, parent: str) -> Iterator[Switch]:
        return (switch for switch in self.switches.values() if switch.parent == parent)

    def document(self) -> dict[str, Any]:
        """Return the topology for JSON."""
        return {
            "switches": [
                {
                    "name": switch.name,
                    "level": switch.level,
                    "parent": switch.parent or None,
                    "cloud": switch.cloud or None,
                    "nodes": list(switch.nodes),
                }
                for switch in self.switches.values()
            ],
            "nodes": {
                name: {"switch": leaf.name, "state": self._state(name)} for leaf in self.leaves for name in leaf.nodes
            },
            "refused": self.refused,
            **({"job": dict(self.job)} if self.job else {}),
        }

    def table(self) -> list[tuple[str, ...]]:
        """Return the tree as rows of a table, with the states of nodes of leaves and the number of nodes of the job."""
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
    """Return the shell command for `parse_topology`. It looks for the job in slurmctld, then in the database."""
    number = shlex.quote(job)
    find_job = (
        f"squeue --noheader --all --states=all --jobs={number} --format='%i|%N|' 2>/dev/null | grep '|[^|]' || "
        f"""{sacct_command(_FIELDS, "'|'", f"--allocations --jobs={number}")} 2>&1"""
    )
    parts = [
        "scontrol show topology 2>&1",
        "grep '^# [bc]-' /etc/slurm/topology.conf 2>/dev/null",
        shlex.join(COMMAND),
        find_job if job else ":",
        "cat /etc/hpc/topology-refused 2>/dev/null",
    ]
    return f"; echo {mark}; ".join(parts) + "; true"


def parse_topology(text: str, mark: str, job: str = "") -> Topology:
    """Parse the output of `topology_command`. Raises TopologyError."""
    tree, titles, nodes, records, refused = (text.split(f"{mark}\n") + [""] * _PARTS)[:_PARTS]
    switches = _switches(tree, dict(re.findall(r"^# (\S+) is (\S+)$", titles, re.MULTILINE)))
    if not switches:
        reason = next((line for line in tree.splitlines() if "rror" in line), "scontrol lists no switch")
        raise TopologyError(
            f"slurmctld has no topology ({reason}): the stack has `slurm: {{topology: none}}`, or one nodeset, whose "
            "nodes are not placed close to each other. `slurm: {topology: nodesets}` has a switch for each nodeset"
        )
    topology = Topology(switches=switches, states=parse(nodes), refused=bool(refused.strip()))
    return replace(topology, job=_job(job, records, topology)) if job else topology


def _switches(text: str, cloud_names: Mapping[str, str]) -> dict[str, Switch]:
    found: list[Switch] = []
    for line in text.splitlines():
        if not (match := _RECORD.match(line)):
            continue
        row = {key: value for key, _, value in (word.partition("=") for word in line.split())}
        # An aggregated block is larger than the blocks in it, so its size serves as level.
        level = int(row.get("Level") or (int(row.get("BlockSize") or 1) if match[1] == "AggregatedBlock" else 0))
        name, nodes = str(match[2]), tuple(expand(row.get("Nodes", "")))
        found.append(Switch(name=name, level=level, nodes=nodes, cloud=cloud_names.get(name, "")))
    upper = [(set(switch.nodes), switch) for switch in sorted(found, key=lambda switch: switch.level) if switch.level]
    switches: dict[str, Switch] = {}
    for switch in found:
        above = (up.name for nodes, up in upper if up.level > switch.level and nodes.intersection(switch.nodes[:1]))
        switches[switch.name] = replace(switch, parent=next(above, ""))
    return switches


def _job(number: str, records: str, topology: Topology) -> dict[str, Any]:
    try:
        rows = {row["JobID"]: row["NodeList"] for row in parse_sacct(records, _FIELDS, "|")}
    except ValueError:
        rows = {}  # an error of sacct
    placed = {name: hosts for name, hosts in rows.items() if hosts and hosts != "None assigned"}
    if not rows:
        reason = f": {records.strip()}" if records.strip() else ""
        raise TopologyError(f"neither slurmctld nor the database has a job {number}{reason}")
    if not placed:
        raise TopologyError(f"job {number} has no nodes: it has not begun")
    if len(placed) > 1:
        raise TopologyError(f"job {number} is {len(placed)} jobs: give one of them, such as {next(iter(placed))}")
    nodes = expand(next(iter(placed.values())))
    return {"id": number, "nodes": nodes, **distance(nodes, topology)}


def distance(nodes: Sequence[str], topology: Topology) -> dict[str, Any]:
    """Return the distance between nodes: leaves with the number of nodes below each, the nearest common switch, and a
    key of DISTANCES."""
    names = set(nodes)
    leaves = {leaf.name: count for leaf in topology.leaves if (count := len(names & set(leaf.nodes)))}
    common = min(
        (switch for switch in topology.switches.values() if names <= set(switch.nodes)),
        key=lambda switch: (len(switch.nodes), switch.level),
        default=None,
    )
    near = "block" if common and common.level == 0 else "cluster" if common and common.parent else "different"
    return {"leaves": leaves, "common": common.name if common else None, "distance": near}
