"""Health checks of nodes: what each kind of fault means, who must act and how, and the last results of a cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.findings import Actor, ClusterFinding
from cluster.observe.nodes import Node
from scripts.node.health.kinds import KINDS, RESUMES, may_resume, parse_reason
from scripts.node.slurm.output import valid_time

PHASE = "health-results"
"""Phase of the node set-up, on the controller: prints the last results of all nodes."""
NOW = "/usr/local/sbin/hpc-health now"
"""On a node, as root: runs all checks, and prints their result."""
LATE = 3
"""Results are old after so many intervals, and a minute."""
_REBOOT = "./hpc nodes STACK reboot NODE"
_RECREATE = "./hpc up STACK --replace '**::NODE'"
_HOST = "If it fails again after that, report the machine's host to the cloud, and recreate the machine: " + _RECREATE

_RESUME = "./hpc nodes STACK resume NODE"
_AGAIN = f"Then measure again: ./hpc health STACK NODE --run. {_HOST}"
MEASURE = "/usr/local/sbin/hpc-health-measure"
"""On the controller, as root: measures the nodes that it is given, if they are idle."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Advice on a kind of fault: who acts, and how; STACK and NODE stand for names."""

    actor: Actor
    todo: str
    note: str = ""


# What NVIDIA advises: docs.nvidia.com/deploy/xid-errors and deploy/a100-gpu-mem-error-mgmt (reset for uncorrectable
# errors, exchange for rows that can't be remapped).
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
    """Advice about a node with this reason, by the worst of its faults; None where no health check drained it."""
    named = [kind for kind in KINDS if kind in parse_reason(reason)]
    return ADVICE[next((kind for kind in named if kind not in RESUMES), named[0])] if named else None


def drained(stack: str, node: str, reason: str) -> ClusterFinding | None:
    """The finding of a node that a health check drained; None for another reason."""
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
        todo=_named(found.todo, stack, node),
        note=" ".join(filter(None, (f"{after}.", _named(found.note, stack, node)))),
    )


def _named(text: str, stack: str, node: str) -> str:
    return text.replace("STACK", stack).replace("NODE", node)


@dataclass(frozen=True, kw_only=True)
class NodeHealth:
    """The health of one node: what slurmctld says of it, and its last result."""

    node: Node | None
    """The node in Slurm; None: slurmctld does not have it, or could not be asked."""
    name: str
    age: float | None
    """Seconds since its last result; None without one."""
    old: bool
    """True if the last result is older than it should be, or there is none."""
    checks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """`state` and `text` of each check, by kind."""
    measured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """`state`, `text` and `time` of each measurement, by kind."""
    why: str = ""
    """The reason why slurmctld could not be asked to drain it, where that is so."""

    @property
    def failing(self) -> dict[str, str]:
        """Text of each failed check and measurement, by kind."""
        every = {**self.checks, **self.measured}
        return {kind: str(every[kind]["text"]) for kind in KINDS if every.get(kind, {}).get("state") == "failed"}

    @property
    def noted(self) -> dict[str, str]:
        """Text of each check that found something to know of, by kind."""
        return {kind: one["text"] for kind, one in self.checks.items() if one["state"] == "warning"}

    @property
    def reason(self) -> str:
        """Return why the node is drained; empty if it is not."""
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
    """The health of these nodes, from what slurmctld says and what they have stored."""
    return [_health(name, nodes.get(name), stored.get(name), now, interval) for name in names]


def _health(name: str, node: Node | None, stored: object, now: float, interval: int) -> NodeHealth:
    found: dict[str, Any] = stored if isinstance(stored, dict) else {}
    time = valid_time(found.get("time"))
    age = max(now - time, 0.0) if time is not None else None
    old = age is None or age > LATE * interval + 60
    checks, measured = _outcomes(found.get("checks")), _outcomes(found.get("measured"))
    why = str(found.get("why", ""))
    return NodeHealth(node=node, name=name, age=age, old=old, checks=checks, measured=measured, why=why)


def _outcomes(found: object) -> dict[str, dict[str, Any]]:
    if not isinstance(found, dict):
        return {}
    return {
        kind: {**one, "state": str(one["state"]), "text": str(one["text"])}
        for kind in KINDS
        if isinstance(one := found.get(kind), dict) and {"state", "text"} <= one.keys()
    }


def findings(stack: str, found: Iterable[NodeHealth]) -> list[ClusterFinding]:
    """List what is wrong and what to do: nodes that a check drained, checks that fail, results that do not come."""
    wrong: list[ClusterFinding] = []
    for one in found:
        if said := drained(stack, one.name, one.reason):
            wrong.append(said)
        elif one.failing:
            kind = next(iter(one.failing))
            todo = ADVICE[kind]
            figures = "; ".join(f"{name}: {figure}" for name, figure in one.failing.items())
            held = f"; it is drained for another reason: {one.reason}" if one.reason else ""
            unsaid = f"; slurmctld could not be asked to drain it: {one.why}" if one.why else ""
            wrong.append(
                ClusterFinding(
                    id="health-failed",
                    where=(one.name,),
                    what=f"fails {figures}{held}{unsaid}. Who must act: {todo.actor.value}",
                    todo=_named(todo.todo, stack, one.name),
                    note=_named(todo.note, stack, one.name),
                )
            )
        elif one.old:
            wrong.append(
                ClusterFinding(
                    id="health-old",
                    where=(one.name,),
                    what="has no recent result of its health check: slurmd runs it while it answers slurmctld",
                    todo=f"./hpc health {stack} {one.name} --run",
                    note=f"If the node is down: ./hpc status {stack}",
                )
            )
    return wrong
