"""Drains Slurm nodes before their Kubernetes nodes are removed or recreated, and waits for their jobs.

The node groups depend on it, so it is updated first. Nothing is drained where nothing was before, and where the whole
cluster is destroyed.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, UpdateResult

from cluster.observe.nodes import NODES, Node, jobs_asked, parse_jobs, parse_nodes
from components.dynamic import ActionProvider, DynamicResource, changed, given, report, without_traceback
from components.nebius.kubernetes.kubectl import Kubectl, KubectlError
from components.nebius.kubernetes.pods import LOGIN
from components.nebius.waits.poll import Poll

LEAVES, REMADE = "hpc: leaves the cluster", "hpc: its machine is made anew"
"""Reasons of drained nodes, as on machines (scripts/node/slurm/scheduler.py)."""
OURS = (LEAVES, REMADE)
_SHOWN = 5


class DrainError(RuntimeError):
    """Jobs did not end in time; the text lists them, and what can be done."""


class DrainProvider(ActionProvider):
    """Drains nodes that are about to leave or to be recreated."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Nothing is to be done: there are no nodes yet."""
        return CreateResult(f"{props['access']['context']}/drain", given(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Nodes and what they are made of."""
        return DiffResult(changes=bool(changed(_olds, _news, ("access", "nodesets"))))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Drain what leaves or is recreated, and wait for the jobs there."""
        reasons = leaving(_olds["nodesets"], _news["nodesets"])
        if reasons:
            with without_traceback(DrainError), Kubectl(_olds["access"]) as kubectl:
                drain(kubectl, reasons, seconds=_news["seconds"], pace=_news["pace"])
        return UpdateResult(given(_news))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Nothing is to be done: the whole cluster goes, with its jobs."""


class Drain(DynamicResource, module="nebius", name="Drain"):
    """What a change of nodes waits for."""

    def __init__(
        self, name: str, *, access: pulumi.Input[Mapping[str, Any]], nodesets: Mapping[str, Mapping[str, Any]],
        seconds: int, pace: float, opts: pulumi.ResourceOptions | None = None,
    ) -> None:  # fmt: skip
        """`nodesets`: of each, `count` and `shape`, which differs when its nodes are recreated."""
        props: dict[str, Any] = {"access": access, "nodesets": dict(nodesets), "seconds": seconds, "pace": pace}
        super().__init__(DrainProvider(), name, props, opts)


def leaving(olds: Mapping[str, Any], news: Mapping[str, Any]) -> dict[str, str]:
    """Nodes that have to be empty before the change, each with the reason. A pure function."""
    found: dict[str, str] = {}
    for name, old in olds.items():
        new = news.get(name)
        kept = min(int(new["count"]), int(old["count"])) if new else 0
        if new and new["shape"] != old["shape"]:
            found |= {f"{name}-{index}": REMADE for index in range(kept)}
        found |= {f"{name}-{index}": LEAVES for index in range(kept, int(old["count"]))}
    return found


def drain(kubectl: Kubectl, reasons: Mapping[str, str], *, seconds: float, pace: float) -> None:
    """Let nothing new start on the nodes, and wait until no job is left there.

    Raises DrainError after `seconds`: the nodes stay drained then, and the next `up` continues to wait.
    """
    poll = Poll(seconds, pace)
    while True:
        try:
            if not _run(kubectl, reasons):
                return
            nodes = {name: node for name, node in _nodes(kubectl).items() if name in reasons}
            _hold(kubectl, nodes.values(), reasons)
            busy = {name: node for name, node in nodes.items() if node.busy}
            text = "; ".join(f"{job} on {name}" for name, node in busy.items() for job in node.busy)
        except KubectlError as error:
            # Where Slurm can't be asked, its jobs may run: nothing is removed.
            busy, text = dict.fromkeys(reasons), f"Slurm does not answer: {error}"
        if not busy:
            return
        if poll.left < 0:
            raise DrainError(_timeout(reasons, text, seconds))
        poll.pause(text, f"waiting for jobs on {_some(sorted(busy))}, {poll.left:.0f} s at most: {text[:400]}")


def resume(kubectl: Kubectl, nodes: Iterable[Node]) -> None:
    """Resume those of the nodes that were drained here."""
    for node in nodes:
        if node.drained and node.reason in OURS:
            LOGIN.run(kubectl, "scontrol", "update", f"NodeName={node.name}", "State=RESUME")
            report(f"resumed {node.name}")


def _run(kubectl: Kubectl, names: Iterable[str]) -> bool:
    """Whether any of the nodes' pods runs: without, there is no job, and perhaps no Slurm to ask."""
    running = {pod["metadata"]["name"] for pod in kubectl.items("pods") if pod["status"].get("phase") == "Running"}
    return bool(running & set(names))


def _nodes(kubectl: Kubectl) -> dict[str, Node]:
    mark = f"|{secrets.token_hex(8)}|"
    jobs = parse_jobs(LOGIN.run(kubectl, "sh", "-c", jobs_asked(mark)), mark)
    return parse_nodes(LOGIN.run(kubectl, *NODES.split()), jobs)


def _hold(kubectl: Kubectl, nodes: Iterable[Node], reasons: Mapping[str, str]) -> None:
    """Drain nodes; one that somebody has drained already keeps their reason."""
    for node in nodes:
        if not node.drained:
            reason = reasons[node.name]
            LOGIN.run(kubectl, "scontrol", "update", f"NodeName={node.name}", "State=DRAIN", f"Reason={reason}")
            report(f"drained {node.name} ({reason})")


def _timeout(reasons: Mapping[str, str], text: str, seconds: float) -> str:
    names = sorted(reasons)
    return "\n".join(
        [
            f"{_some(names)}: jobs are still there after {seconds:.0f} s (slurm.drain_seconds), and would end:",
            f"  {text}",
            "Nothing was changed, and no new job starts there.",
            "  to continue to wait: run `up` again",
            "  to end them:         scancel JOB, then `up`",
            (
                "  to keep the nodes:   put the old value back, and resume them: "
                f"./hpc nodes STACK resume {','.join(names)}"
            ),
        ]
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
