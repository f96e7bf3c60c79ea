"""Waits for jobs before a change: drains nodes that leave or are recreated, and closes partitions that leave.

Node groups and charts depend on these, so they are updated first. Nothing is waited for where nothing was before, and
where the whole cluster is destroyed."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cluster.findings import listing
from cluster.observe.nodes import NODES, Node, jobs_asked, parse_jobs, parse_nodes
from cluster.platforms.nebius.names import CONTROLLER_POD
from components.dynamic import Action, ActionProvider, report, without_traceback
from components.nebius.kubectl import LOGIN, Kubectl, KubectlError
from components.nebius.poll import Poll
from components.nebius.waits import LEAVES, REMADE

_SHOWN = 5
_SHOWN_JOBS = 10


class DrainError(RuntimeError):
    """Jobs did not end in time; the text lists them, and what can be done."""


class DrainProvider(ActionProvider):
    """Drains nodes that are about to leave or to be recreated, and waits for the jobs there.

    Nothing is done at a creation, when there are no nodes yet, and at a deletion: the whole cluster goes.
    """

    ID = "{access[context]}/drain"
    ACTED_ON = ("access", "nodesets")

    def act(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> None:
        if olds and (reasons := leaving(olds["nodesets"], news["nodesets"])):
            with without_traceback(DrainError), Kubectl(olds["access"]) as kubectl:
                drain(kubectl, reasons, seconds=news["seconds"], pace=news["pace"])


class Drain(Action, module="nebius", name="Drain"):
    """The drain that a change of nodes waits for.

    Inputs: `access`, `nodesets` (of each its `count`, `shape`, which differs when its nodes are recreated, and
    `static`, if it is elastic), `seconds` that jobs may take to end, `pace`.
    """

    PROVIDER = DrainProvider


class PartitionsProvider(ActionProvider):
    """Closes partitions that are about to be removed, and waits until no job is in them, as DrainProvider does."""

    ID = "{access[context]}/partitions"
    ACTED_ON = ("access", "partitions")

    def act(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> None:
        gone = [name for name in olds["partitions"] if name not in news["partitions"]] if olds else []
        if olds and gone:
            with without_traceback(DrainError), Kubectl(olds["access"]) as kubectl:
                empty(kubectl, gone, seconds=news["seconds"], pace=news["pace"])


class Partitions(Action, module="nebius", name="Partitions"):
    """The partitions of a cluster.

    Inputs: `access`, `partitions` (names), `seconds` that jobs may take to end, `pace`.
    """

    PROVIDER = PartitionsProvider


def leaving(olds: Mapping[str, Any], news: Mapping[str, Any]) -> dict[str, str]:
    """Nodes that have to be empty before the change, each with the reason. A pure function."""
    found: dict[str, str] = {}
    for name, old in olds.items():
        new = news.get(name)
        kept = min(int(new["count"]), int(old["count"])) if new else 0
        if new and "static" in new and "static" not in old:
            # Soperator keeps pods of the static nodes alone where a nodeset becomes elastic.
            kept = min(int(new["static"]), kept)
        if new and new["shape"] != old["shape"]:
            found |= {f"{name}-{index}": REMADE for index in range(kept)}
        found |= {f"{name}-{index}": LEAVES for index in range(kept, int(old["count"]))}
    return found


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
    """Let nothing new start on the nodes, and wait until no job is left there.

    Raises DrainError after `seconds`: the nodes stay drained then, and the next `up` continues to wait.
    """

    def jobs() -> str:
        # Without a pod that runs there is no job, and perhaps no Slurm to ask.
        if not _running(kubectl) & reasons.keys():
            return ""
        nodes = [node for node in _nodes(kubectl) if node.name in reasons]
        for node in nodes:
            # One that somebody has drained already keeps their reason.
            if not node.drained:
                words = (f"NodeName={node.name}", "State=DRAIN", f"Reason={reasons[node.name]}")
                LOGIN.run(kubectl, "scontrol", "update", *words)
                report(f"drained {node.name} ({reasons[node.name]})")
        return "; ".join(f"{job} on {node.name}" for node in nodes for job in node.busy)

    names = sorted(reasons)
    _wait_for(jobs, "on", listing(names, _SHOWN), Poll(seconds, pace), f"{_NODES_STAY}{','.join(names)}")


def empty(kubectl: Kubectl, names: Sequence[str], *, seconds: float, pace: float) -> None:
    """Let nothing new into partitions, and wait until no job runs or waits there.

    Raises DrainError after `seconds`: the partitions take no jobs then, and the next `up` continues to wait.
    """
    closed: list[str] = []

    def jobs() -> str:
        if CONTROLLER_POD not in _running(kubectl):
            return ""
        if not closed:
            _close(kubectl, names)
            closed.extend(names)
        rows = LOGIN.run(kubectl, "squeue", "--noheader", "--all", "--format=%i %P").splitlines()
        found = (row.split(None, 1) for row in rows if " " in row.strip())
        # A job that waits may name several partitions.
        mine = [job for job, partitions in found if set(partitions.strip().split(",")) & set(names)]
        return listing(mine, _SHOWN_JOBS) if mine else ""

    _wait_for(jobs, "in", ", ".join(names), Poll(seconds, pace), _PARTITIONS_STAY)


def _wait_for(jobs: Callable[[], str], where: str, names: str, poll: Poll, ways_on: str) -> None:
    """Wait until there are no jobs. Raises DrainError with those that are left, and the ways on."""
    while True:
        try:
            text = jobs()
        except KubectlError as error:
            # Where Slurm can't be asked, its jobs may run: nothing is removed.
            text = f"Slurm does not answer: {error}"
        if not text:
            return
        if poll.left < 0:
            raise DrainError(
                f"{names}: jobs are still there after {poll.seconds:.0f} s (slurm.drain_seconds), and would end:\n"
                f"  {text}\n{ways_on}"
            )
        poll.pause(text, f"waiting for jobs {where} {names}, {poll.left:.0f} s at most: {text[:400]}")


def _running(kubectl: Kubectl) -> set[str]:
    return {pod["metadata"]["name"] for pod in kubectl.items("pods") if pod["status"].get("phase") == "Running"}


def _nodes(kubectl: Kubectl) -> list[Node]:
    mark = f"|{secrets.token_hex(8)}|"
    jobs = parse_jobs(LOGIN.run(kubectl, "sh", "-c", jobs_asked(mark)), mark)
    return [*parse_nodes(LOGIN.run(kubectl, *NODES.split()), jobs).values()]


def _close(kubectl: Kubectl, names: Sequence[str]) -> None:
    """Set partitions to DRAIN: jobs that are there go on and start, and no new one is accepted (scontrol(1))."""
    rows = LOGIN.run(kubectl, "scontrol", "--oneliner", "show", "partition").splitlines()
    there = {row.partition(" ")[0].removeprefix("PartitionName=") for row in rows}
    for name in names:
        if name in there:
            LOGIN.run(kubectl, "scontrol", "update", f"PartitionName={name}", "State=DRAIN")
            report(f"closed partition {name}")
