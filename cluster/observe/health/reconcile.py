"""The reconcile loop on the controller: what keeps it from acting, ways without capacity, and what needs a person."""

from collections.abc import Iterator

from cluster.findings import ClusterFinding
from cluster.observe.observation import ClusterObservation

_YOUNG = "slurmctld has run for"
"""Begins the reason of a pass that only waits for nodes to register."""


def reconcile(seen: ClusterObservation) -> Iterator[ClusterFinding]:
    """Brakes that hold, each with the command that lifts it; then what the loop can't do."""
    found = seen.controller.part("reconcile")
    if not found:
        return
    where, command = (seen.controller.name,), f"./hpc ssh {seen.stack} controller --"
    if found["why"] and not found["why"].startswith(_YOUNG):
        what = f"the reconcile loop deletes nothing and sets no node down: {found['why']}"
        yield ClusterFinding(id="reconcile-blind", where=where, what=what, todo=f"./hpc logs {seen.stack} reconcile")
    for brake in found["brakes"]:
        mode = brake["brake"].startswith("mode: ")
        yield ClusterFinding(
            id="reconcile-brake",
            where=where,
            what=f"the reconcile loop is held by {brake['brake']}: {brake['text']}",
            todo=f"./hpc up {seen.stack}" if mode else f"{command} {brake['todo']}",
            note="With slurm.reconcile.mode: act in the stack file." if mode else "",
        )
    for reason in found["cooling"].values():
        yield ClusterFinding(
            id="no-capacity",
            where=where,
            what=reason.removeprefix("hpc: "),
            todo=f"{command} hpc-reconcile lift",
            note="That tries it at once; by itself it is tried at the time given.",
        )
    for name, since in found.get("waits", {}).items():
        hours = (seen.controller.time - since) / 3600
        yield ClusterFinding(
            id="repair-waits",
            where=(name,),
            what=f"{name} is repaired, and waits for an idle node to run the NCCL test with, for {hours:.1f} h",
            todo=f"./hpc nodes {seen.stack} resume {name}",
            note="That returns it to jobs without the test; by itself it is measured as soon as a node is idle.",
        )
    for text in found["alerts"]:
        todo = f"./hpc logs {seen.stack} reconcile"
        yield ClusterFinding(id="reconcile-alert", where=where, what=f"needs a person: {text}", todo=todo)
