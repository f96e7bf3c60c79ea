"""Waits for the jobs of partitions that leave the stack file: Slurm ends those whose partition is gone.

The charts, which remove the partition, are installed after it. Nothing is waited for where the whole cluster is
destroyed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, UpdateResult

from cluster.platforms.nebius.names import CONTROLLER_POD
from components.dynamic import ActionProvider, DynamicResource, changed, given, report, without_traceback
from components.nebius.drain import DrainError
from components.nebius.kubernetes.kubectl import Kubectl, KubectlError
from components.nebius.kubernetes.pods import LOGIN
from components.nebius.waits.poll import Poll

_SHOWN = 10


class PartitionsProvider(ActionProvider):
    """Closes partitions that are about to be removed, and waits until no job is in them."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Nothing is to be done: there are no jobs yet."""
        return CreateResult(f"{props['access']['context']}/partitions", given(props))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another set of partitions."""
        return DiffResult(changes=bool(changed(_olds, _news, ("access", "partitions"))))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Close what leaves, and wait."""
        gone = [name for name in _olds["partitions"] if name not in _news["partitions"]]
        if gone:
            with without_traceback(DrainError), Kubectl(_olds["access"]) as kubectl:
                empty(kubectl, gone, seconds=_news["seconds"], pace=_news["pace"])
        return UpdateResult(given(_news))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Nothing is to be done: the whole cluster goes, with its jobs."""


class Partitions(DynamicResource, module="nebius", name="Partitions"):
    """The partitions of a cluster."""

    def __init__(
        self, name: str, *, access: pulumi.Input[Mapping[str, Any]], partitions: Sequence[str], seconds: int,
        pace: float, opts: pulumi.ResourceOptions | None = None,
    ) -> None:  # fmt: skip
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
            text = ", ".join(jobs[:_SHOWN]) + (f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else "")
        except KubectlError as error:
            # Where Slurm can't be asked, its jobs may run: nothing is removed.
            jobs, text = ["unknown"], f"Slurm does not answer: {error}"
        if not jobs:
            return
        if poll.left < 0:
            raise DrainError(_timeout(names, text, seconds))
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


def _timeout(names: Sequence[str], text: str, seconds: float) -> str:
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
