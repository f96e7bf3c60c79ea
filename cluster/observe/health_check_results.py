"""Results of nodes' health checks: the last ones of a cluster, and for each kind of fault who must act and how."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.findings import Actor, ClusterFinding
from scripts.node.health.check_kinds import KINDS, RESUMES, may_resume, parse_reason
from scripts.node.slurm.nodes import Node
from scripts.node.slurm.output import valid_time

PHASE = "health-results"
"""Phase of the node set-up on the controller, which prints the last results of all nodes."""
NOW = "/usr/local/sbin/hpc-health now"
"""Command for root on a node, which runs all checks and prints their results."""
LATE = 3
"""Number of intervals after which a result is old."""
_REBOOT = "./hpc nodes STACK reboot NODE"
_RECREATE = "./hpc up STACK --replace '**::NODE'"
_HOST = "If it fails again after that, report the machine's host to the cloud, and recreate the machine: " + _RECREATE
_RESUME = "./hpc nodes STACK resume NODE"
_AGAIN = f"Then measure again: ./hpc health STACK NODE --run. {_HOST}"
MEASURE = "/usr/local/sbin/hpc-health-measure"
"""Command for root on the controller, which measures given nodes if they are idle."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Advice for a kind of fault. STACK and NODE are placeholders."""

    actor: Actor
    todo: str
    note: str = ""


# NVIDIA's advice: docs.nvidia.com/deploy/xid-errors and deploy/a100-gpu-mem-error-mgmt (reset for uncorrectable errors,
# exchange for rows that can't be remapped).
ADVICE: Mapping[str, Advice] = {
    "gpu-count": Advice(actor=Actor.SUPPORT, todo=_REBOOT, note=_HOST),
    "gpu-driver": Advice(actor=Actor.ADMIN, todo=_REBOOT, note=_HOST),
    "gpu-lost": Advice(actor=Actor.SUPPORT, todo=_REBOOT, note=_HOST),
    "gpu-xid": Advice(
        actor=Actor.ADMIN, todo=_REBOOT, note=f"docs.nvidia.com/deploy/xid-errors says what it is. {_HOST}"
    ),
    "gpu-state": Advice(
        actor=Actor.ADMIN, todo="./hpc ssh STACK NODE -- nvidia-smi -q -d PERFORMANCE,TEMPERATURE", note=_HOST
    ),
    "gpu-ecc": Advice(actor=Actor.ADMIN, todo=_REBOOT, note=f"A boot resets the GPU. {_HOST}"),
    "gpu-memory": Advice(
        actor=Actor.SUPPORT, todo=_RECREATE, note="The GPU has to be exchanged: report the machine's host first."
    ),
    "gpu-nvlink": Advice(actor=Actor.SUPPORT, todo=_REBOOT, note=_HOST),
    "gpu-diag": Advice(actor=Actor.SUPPORT, todo=_REBOOT, note=_HOST),
    "gpu-processes": Advice(
        actor=Actor.ADMIN, todo="./hpc ssh STACK NODE -- nvidia-smi", note="End the processes that the reason names."
    ),
    "aperture": Advice(actor=Actor.SUPPORT, todo=_REBOOT, note=_HOST),
    "nic": Advice(actor=Actor.ADMIN, todo="./hpc ssh STACK NODE -- ip -br link"),
    "mount": Advice(actor=Actor.ADMIN, todo="./hpc ssh STACK NODE -- mount --all"),
    "disk": Advice(actor=Actor.ADMIN, todo="./hpc ssh STACK NODE -- df -h", note="Make room there."),
    "local-ssd": Advice(actor=Actor.ADMIN, todo=_REBOOT, note=_HOST),
    "clock": Advice(actor=Actor.ADMIN, todo="./hpc ssh STACK NODE -- timedatectl"),
    "network": Advice(actor=Actor.SUPPORT, todo=_RESUME, note=_AGAIN),
    "diag": Advice(actor=Actor.SUPPORT, todo=_RESUME, note=_AGAIN),
    "nccl": Advice(actor=Actor.SUPPORT, todo=_RESUME, note=_AGAIN),
    "fabric": Advice(actor=Actor.SUPPORT, todo=_RESUME, note=_AGAIN),
}


def advice(reason: str) -> Advice | None:
    """Return the advice for the worst fault in a node's reason; None if no health check drained the node."""
    named = [kind for kind in KINDS if kind in parse_reason(reason)]
    return ADVICE[next((kind for kind in named if kind not in RESUMES), named[0])] if named else None


def drained(stack: str, node: str, reason: str) -> ClusterFinding | None:
    """Return the finding about a node that a health check drained; None for another reason."""
    found = advice(reason)
    if found is None:
        return None
    figures = "; ".join(f"{kind}: {text}" for kind, text in parse_reason(reason).items())
    after = (
        "The health check resumes the node when it passes again"
        if may_resume(reason)
        else f"When it is mended: ./hpc nodes {stack} resume {node}"
    )
    return ClusterFinding(
        id="node-drained",
        where=(node,),
        what=f"is drained by a health check, and takes no new jobs: {figures}. Who must act: {found.actor.value}",
        todo=_fill_in(found.todo, stack, node),
        note=" ".join(filter(None, (f"{after}.", _fill_in(found.note, stack, node)))),
    )


def _fill_in(text: str, stack: str, node: str) -> str:
    return text.replace("STACK", stack).replace("NODE", node)


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
                old=age is None or age > LATE * interval + 60,
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
    if by_check := drained(stack, node.name, node.reason):
        return by_check
    if node.failing:
        todo = ADVICE[next(iter(node.failing))]
        figures = "; ".join(f"{name}: {figure}" for name, figure in node.failing.items())
        other = f"; it is drained for another reason: {node.reason}" if node.reason else ""
        not_drained = f"; slurmctld could not be asked to drain it: {node.why}" if node.why else ""
        return ClusterFinding(
            id="health-failed",
            where=(node.name,),
            what=f"fails {figures}{other}{not_drained}. Who must act: {todo.actor.value}",
            todo=_fill_in(todo.todo, stack, node.name),
            note=_fill_in(todo.note, stack, node.name),
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
