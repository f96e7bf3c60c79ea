"""Drains: nodes that leave or are recreated are drained, and partitions that leave are closed, before a change.

Node groups and charts depend on these resources, so they are updated first. Their creation and deletion do nothing:
either there are no jobs yet, or the whole cluster is destroyed.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cluster.findings import listing
from cluster.platforms.nebius.names import CONTROLLER_POD
from components.dynamic import ActionProvider, ActionResource, report, without_traceback
from components.nebius.kubectl import LOGIN, Kubectl, KubectlError
from components.nebius.poll import Poll
from components.nebius.waits import LEAVES, RECREATED
from scripts.node.slurm import jobs as slurm_jobs
from scripts.node.slurm import nodes as slurm_nodes


class DrainError(RuntimeError):
    """Jobs did not end in time; the text lists them, and what can be done."""


class DrainProvider(ActionProvider):
    """Drains nodes that are about to leave or to be recreated, and waits for their jobs."""

    ID = "{access[context]}/drain"
    ACTED_ON = ("access", "nodesets")

    def act(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> None:
        if olds and (reasons := leaving(olds["nodesets"], news["nodesets"])):
            with without_traceback(DrainError), Kubectl(olds["access"]) as kubectl:
                drain(kubectl, reasons, seconds=news["seconds"], pace=news["pace"])


class Drain(ActionResource, module="nebius", name="Drain"):
    """The drain of nodes before a change of node groups.

    Inputs: `access`, `nodesets` (of each its `count`, `shape`, which differs when its nodes are recreated, and
    `static`, if it is elastic), `seconds` that jobs may take to end, `pace`.
    """

    PROVIDER = DrainProvider


class PartitionsProvider(ActionProvider):
    """Closes partitions that are about to be removed, and waits until no job is in them."""

    ID = "{access[context]}/partitions"
    ACTED_ON = ("access", "partitions")

    def act(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> None:
        if olds and (removed := [name for name in olds["partitions"] if name not in news["partitions"]]):
            with without_traceback(DrainError), Kubectl(olds["access"]) as kubectl:
                close(kubectl, removed, seconds=news["seconds"], pace=news["pace"])


class Partitions(ActionResource, module="nebius", name="Partitions"):
    """The partitions of a cluster.

    Inputs: `access`, `partitions` (names), `seconds` that jobs may take to end, `pace`.
    """

    PROVIDER = PartitionsProvider


def leaving(olds: Mapping[str, Any], news: Mapping[str, Any]) -> dict[str, str]:
    """Return the nodes that must have no jobs before the change, each with the reason of its drain. A pure function."""
    reasons: dict[str, str] = {}
    for name, old in olds.items():
        new = news.get(name)
        kept = min(int(new["count"]), int(old["count"])) if new else 0
        if new and "static" in new and "static" not in old:
            # If a nodeset becomes elastic, Soperator keeps the pods of its static nodes alone.
            kept = min(int(new["static"]), kept)
        if new and new["shape"] != old["shape"]:
            reasons |= {f"{name}-{index}": RECREATED for index in range(kept)}
        reasons |= {f"{name}-{index}": LEAVES for index in range(kept, int(old["count"]))}
    return reasons


_NODES_STAY = """\
Nothing was changed, and no new job starts there.
  to continue to wait: run `up` again
  to end them:         scancel JOB, then `up`
  to keep the nodes:   put the old value back, and resume them: ./hpc nodes STACK resume """
_PARTITIONS_STAY = """\
Nothing was removed, and no new job is accepted there.
  to continue to wait: run `up` again
  to end them:         scancel --partition=NAME, then `up`
  to keep a partition: put it back, and `scontrol update PartitionName=NAME State=UP`"""


def drain(kubectl: Kubectl, reasons: Mapping[str, str], *, seconds: float, pace: float) -> None:
    """Drain nodes, and wait until they have no jobs.

    Raises DrainError after `seconds`: the nodes stay drained, and the next `up` continues to wait.
    """

    def jobs() -> str:
        # Without a running pod there is no job, and Slurm may not answer.
        if not _running(kubectl) & reasons.keys():
            return ""
        nodes = [node for node in _nodes(kubectl) if node.name in reasons]
        for node in nodes:
            # A node that somebody else has drained keeps its reason.
            if not node.drained:
                words = (f"NodeName={node.name}", "State=DRAIN", f"Reason={reasons[node.name]}")
                kubectl.execute(LOGIN, "scontrol", "update", *words)
                report(f"drained {node.name} ({reasons[node.name]})")
        return "; ".join(dict.fromkeys(str(job) for node in nodes for job in node.busy))

    names = sorted(reasons)
    _wait_until_none(jobs, "on", listing(names, 5), Poll(seconds, pace), f"{_NODES_STAY}{','.join(names)}")


def close(kubectl: Kubectl, names: Sequence[str], *, seconds: float, pace: float) -> None:
    """Close partitions, and wait until no job runs or waits there.

    Raises DrainError after `seconds`: the partitions take no jobs, and the next `up` continues to wait.
    """
    closed: list[str] = []

    def jobs() -> str:
        if CONTROLLER_POD not in _running(kubectl):
            return ""
        if not closed:
            _set_to_drain(kubectl, names)
            closed.extend(names)
        rows = kubectl.execute(LOGIN, "squeue", "--noheader", "--all", "--format=%i %P").splitlines()
        fields = (row.split(None, 1) for row in rows if " " in row.strip())
        # A pending job may name several partitions.
        affected = [job for job, partitions in fields if set(partitions.strip().split(",")) & set(names)]
        return listing(affected, 10) if affected else ""

    _wait_until_none(jobs, "in", ", ".join(names), Poll(seconds, pace), _PARTITIONS_STAY)


def _wait_until_none(jobs: Callable[[], str], where: str, names: str, poll: Poll, todo: str) -> None:
    """Wait until there are no jobs. Raises DrainError with the remaining jobs, and what to do."""
    while True:
        try:
            text = jobs()
        except KubectlError as error:
            # While Slurm does not answer, jobs may run, so nothing is removed.
            text = f"Slurm does not answer: {error}"
        if not text:
            return
        if poll.left < 0:
            raise DrainError(
                f"{names}: jobs are still there after {poll.seconds:.0f} s (slurm.drain_seconds), and would end:\n"
                f"  {text}\n{todo}"
            )
        poll.pause(text, f"waiting for jobs {where} {names}, {poll.left:.0f} s at most: {text[:400]}")


def _running(kubectl: Kubectl) -> set[str]:
    return {pod["metadata"]["name"] for pod in kubectl.items("pods") if pod["status"].get("phase") == "Running"}


def _nodes(kubectl: Kubectl) -> list[slurm_nodes.Node]:
    mark = f"|{secrets.token_hex(8)}|"
    command = slurm_jobs.command(mark, "--all", f"--states={slurm_jobs.HOLDING}")
    found = slurm_jobs.parse(kubectl.execute(LOGIN, *command), mark)
    return [*slurm_nodes.parse(kubectl.execute(LOGIN, *slurm_nodes.COMMAND), found).values()]


def _set_to_drain(kubectl: Kubectl, names: Sequence[str]) -> None:
    """Set partitions to DRAIN: running and pending jobs go on, and no new job is accepted (scontrol(1))."""
    rows = kubectl.execute(LOGIN, "scontrol", "--oneliner", "show", "partition").splitlines()
    existing = {row.partition(" ")[0].removeprefix("PartitionName=") for row in rows}
    for name in (name for name in names if name in existing):
        kubectl.execute(LOGIN, "scontrol", "update", f"PartitionName={name}", "State=DRAIN")
        report(f"closed partition {name}")
