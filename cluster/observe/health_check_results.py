"""The last results of nodes' health checks, and the findings of `./hpc health`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.findings import ClusterFinding
from scripts.node.health.advice import ADVICE, drained
from scripts.node.health.check_kinds import KINDS, is_old
from scripts.node.slurm.nodes import Node
from scripts.node.slurm.output import valid_time

PHASE = "health-results"
"""Phase of the node set-up on the controller, which prints the last results of all nodes."""
NOW = "/usr/local/sbin/hpc-health now"
"""Command for root on a node, which runs all checks and prints their results."""
MEASURE = "/usr/local/sbin/hpc-health-measure"
"""Command for root on the controller, which measures given nodes if they are idle."""


@dataclass(frozen=True, kw_only=True)
class NodeHealth:
    """A node in slurmctld with its last result."""

    node: Node | None
    """None if slurmctld does not have it or does not answer."""
    name: str
    age: float | None
    """Seconds since its last result; None without a result."""
    old: bool
    """True if the last result is too old, or there is none."""
    checks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """`state` and `text` of each check, by kind."""
    measured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """`state`, `text` and `time` of each measurement, by kind."""
    why: str = ""
    """The reason why slurmctld could not drain it; empty if it could, or did not have to."""

    @property
    def failing(self) -> dict[str, str]:
        """Text of each failed check and measurement, by kind."""
        every = {**self.checks, **self.measured}
        return {kind: str(every[kind]["text"]) for kind in KINDS if every.get(kind, {}).get("state") == "failed"}

    @property
    def noted(self) -> dict[str, str]:
        """Text of each check with a warning, by kind."""
        return {kind: check["text"] for kind, check in self.checks.items() if check["state"] == "warning"}

    @property
    def reason(self) -> str:
        """The reason why the node is drained; empty if it is not."""
        return self.node.reason if self.node and self.node.drained else ""

    @property
    def word(self) -> str:
        """The result in a word or two."""
        if self.failing:
            return "failed"
        return "no result" if self.age is None else "old" if self.old else "warning" if self.noted else "ok"


def results(
    names: Iterable[str], nodes: Mapping[str, Node], stored: Mapping[str, Any], *, now: float, interval: int
) -> list[NodeHealth]:
    """Return the health of nodes, from slurmctld and from the results that they have stored."""
    found: list[NodeHealth] = []
    for name in names:
        result: dict[str, Any] = row if isinstance(row := stored.get(name), dict) else {}
        time = valid_time(result.get("time"))
        age = max(now - time, 0.0) if time is not None else None
        found.append(
            NodeHealth(
                node=nodes.get(name),
                name=name,
                age=age,
                old=is_old(age, interval),
                checks=_outcomes(result.get("checks")),
                measured=_outcomes(result.get("measured")),
                why=str(result.get("why", "")),
            )
        )
    return found


def _outcomes(rows: object) -> dict[str, dict[str, Any]]:
    """Return the valid outcomes of checks, by kind."""
    if not isinstance(rows, dict):
        return {}
    return {
        kind: {**row, "state": str(row["state"]), "text": str(row["text"])}
        for kind in KINDS
        if isinstance(row := rows.get(kind), dict) and {"state", "text"} <= row.keys()
    }


def findings(stack: str, nodes: Iterable[NodeHealth]) -> list[ClusterFinding]:
    """Return findings about nodes that a check drained, with a failing check, and without a recent result."""
    return [finding for node in nodes if (finding := _finding(stack, node))]


def _finding(stack: str, node: NodeHealth) -> ClusterFinding | None:
    if by_check := drained(node.name, node.reason):
        what, todo, note = by_check
        todo, note = (text.replace("STACK", stack) for text in (todo, note))
        return ClusterFinding(id="node-drained", where=(node.name,), what=what, todo=todo, note=note)
    if node.failing:
        advice = ADVICE[next(iter(node.failing))].of(node.name)
        figures = "; ".join(f"{name}: {figure}" for name, figure in node.failing.items())
        other = f"; it is drained for another reason: {node.reason}" if node.reason else ""
        not_drained = f"; slurmctld could not be asked to drain it: {node.why}" if node.why else ""
        return ClusterFinding(
            id="health-failed",
            where=(node.name,),
            what=f"fails {figures}{other}{not_drained}. Who must act: {advice.actor}",
            todo=advice.todo.replace("STACK", stack),
            note=advice.note.replace("STACK", stack),
        )
    if node.old:
        return ClusterFinding(
            id="health-old",
            where=(node.name,),
            what="has no recent result of its health check: slurmd runs it while it answers slurmctld",
            todo=f"./hpc health {stack} {node.name} --run",
            note=f"If the node is down: ./hpc status {stack}",
        )
    return None
