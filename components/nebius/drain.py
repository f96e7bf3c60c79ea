"""Waits for jobs before a change: drains nodes that leave or are recreated, and closes partitions that leave.

Node groups and charts depend on these, so they are updated first. Nothing is waited for where nothing was before, and
where the whole cluster is destroyed."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, UpdateResult

from cluster.observe.nodes import NODES, Node, jobs_asked, parse_jobs, parse_nodes
from cluster.platforms.nebius.names import CONTROLLER_POD
from components.dynamic import ActionProvider, DynamicResource, given, report, without_traceback
from components.nebius.kubectl import LOGIN, Kubectl, KubectlError
from components.nebius.waits import LEAVES, REMADE, Poll

_SHOWN = 5


class DrainError(RuntimeError):
    """Jobs did not end in time; the text lists them, and what can be done."""


class DrainProvider(ActionProvider):
    """Drains nodes that are about to leave or to be recreated.

    Nothing is done at a deletion: the whole cluster goes, with its jobs.
    """

    ACTED_ON = ("access", "nodesets")

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Nothing is to be done: there are no nodes yet."""
        return CreateResult(f"{props['access']['context']}/drain", given(props))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Drain what leaves or is recreated, and wait for the jobs there."""
        reasons = leaving(_olds["nodesets"], _news["nodesets"])
        if reasons:
            with without_traceback(DrainError), Kubectl(_olds["access"]) as kubectl:
                drain(kubectl, reasons, seconds=_news["seconds"], pace=_news["pace"])
        return UpdateResult(given(_news))


class Drain(DynamicResource, module="nebius", name="Drain"):
    """What a change of nodes waits for."""

    def __init__(
        self,
        name: str,
        *,
        access: pulumi.Input[Mapping[str, Any]],
        nodesets: Mapping[str, Mapping[str, Any]],
        seconds: int,
        pace: float,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
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


_SHOWN_JOBS = 10


class PartitionsProvider(ActionProvider):
    """Closes partitions that are about to be removed, and waits until no job is in them.

    Nothing is done at a deletion: the whole cluster goes, with its jobs.
    """

    ACTED_ON = ("access", "partitions")

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Nothing is to be done: there are no jobs yet."""
        return CreateResult(f"{props['access']['context']}/partitions", given(props))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Close what leaves, and wait."""
        gone = [name for name in _olds["partitions"] if name not in _news["partitions"]]
        if gone:
            with without_traceback(DrainError), Kubectl(_olds["access"]) as kubectl:
                empty(kubectl, gone, seconds=_news["seconds"], pace=_news["pace"])
        return UpdateResult(given(_news))


class Partitions(DynamicResource, module="nebius", name="Partitions"):
    """The partitions of a cluster."""

    def __init__(
        self,
        name: str,
        *,
        access: pulumi.Input[Mapping[str, Any]],
        partitions: Sequence[str],
        seconds: int,
        pace: float,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`partitions`: names. `seconds`: how long jobs may take to end. `pace`: seconds between two questions."""
        props: dict[str, Any] = {"access": access, "partitions": list(partitions), "seconds": seconds, "pace": pace}
        super().__init__(PartitionsProvider(), name, props, opts)


def empty(kubectl: Kubectl, names: Sequence[str], *, seconds: float, pace: float) -> None:
    """Let nothing new into partitions, and wait until no job runs or waits there.

    Raises DrainError after `seconds`: the partitions take no jobs then, and the next `up` continues to wait.
    """
    poll, closed = Poll(seconds, pace), False
    while True:
        try:
            if not _runs(kubectl):
                return
            if not closed:
                _close(kubectl, names)
                closed = True
            jobs = _jobs(kubectl, names)
            text = ", ".join(jobs[:_SHOWN_JOBS]) + (
                f" and {len(jobs) - _SHOWN_JOBS} more" if len(jobs) > _SHOWN_JOBS else ""
            )
        except KubectlError as error:
            # Where Slurm can't be asked, its jobs may run: nothing is removed.
            jobs, text = ["unknown"], f"Slurm does not answer: {error}"
        if not jobs:
            return
        if poll.left < 0:
            raise DrainError(_partition_timeout(names, text, seconds))
        poll.pause(text, f"waiting for jobs in {', '.join(names)}, {poll.left:.0f} s at most: {text[:400]}")


def _runs(kubectl: Kubectl) -> bool:
    """Whether slurmctld's pod runs: without, there is no job, and perhaps no Slurm to ask."""
    return any(
        pod["metadata"]["name"] == CONTROLLER_POD and pod["status"].get("phase") == "Running"
        for pod in kubectl.items("pods")
    )


def _close(kubectl: Kubectl, names: Sequence[str]) -> None:
    """Set partitions to DRAIN: jobs that are there go on and start, and no new one is accepted (scontrol(1))."""
    there = {line.partition(" ")[0].removeprefix("PartitionName=") for line in _shown(kubectl)}
    for name in names:
        if name in there:
            LOGIN.run(kubectl, "scontrol", "update", f"PartitionName={name}", "State=DRAIN")
            report(f"closed partition {name}")


def _shown(kubectl: Kubectl) -> list[str]:
    return LOGIN.run(kubectl, "scontrol", "--oneliner", "show", "partition").splitlines()


def _jobs(kubectl: Kubectl, names: Sequence[str]) -> list[str]:
    """Ids of jobs that run or wait in partitions."""
    rows = LOGIN.run(kubectl, "squeue", "--noheader", "--all", "--format=%i %P").splitlines()
    found = (row.split(None, 1) for row in rows if " " in row.strip())
    # A job that waits may name several partitions.
    return [job for job, partitions in found if set(partitions.strip().split(",")) & set(names)]


def _partition_timeout(names: Sequence[str], text: str, seconds: float) -> str:
    return "\n".join(
        [
            f"{', '.join(names)}: jobs are still there after {seconds:.0f} s (slurm.drain_seconds), and would end:",
            f"  {text}",
            "Nothing was removed, and no new job is accepted there.",
            "  to continue to wait: run `up` again",
            "  to end them:         scancel --partition=NAME, then `up`",
            "  to keep a partition: put it back, and `scontrol update PartitionName=NAME State=UP`",
        ]
    )
