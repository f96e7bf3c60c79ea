"""The impact of other versions: of Kubernetes, Soperator, NVIDIA's driver."""

from cluster.catalog.upgrades import takes_over
from cluster.config.impact import Effect, Impact, NoEffect, Refuse, Replace
from cluster.impact.edits import Edit
from cluster.impact.machines import show_jobs
from cluster.impact.rule import rule
from cluster.platforms.nebius import versions
from cluster.platforms.nebius.impact import nodes
from cluster.roster import node_names


@rule(Effect.REPLACE, Effect.REFUSED)
def kubernetes(edit: Edit) -> Impact:
    """Kubernetes' minor version."""
    old, new = (int(version.partition(".")[2]) for version in (edit.old, edit.new))
    if new < old:
        return Refuse("Kubernetes can't go back to an earlier version: put it back", command="put it back")
    if new > old + 1:
        return Refuse(
            f"Kubernetes is upgraded one minor version at a time: write 1.{old + 1} first",
            command=f'write version: "1.{old + 1}", then ./hpc up {{stack}}',
        )
    every = [name for one in edit.before.nodesets for name in node_names(edit.before, one)]
    return Replace(
        "the control plane is upgraded, then every node is recreated: Slurm nodes take no new jobs, and `up` waits "
        "until theirs have ended; slurmctld starts again with its state, and sessions on login pods end",
        show_jobs(every),
    )


@rule(Effect.REPLACE, Effect.REFUSED)
def operator(edit: Edit) -> Impact:
    """Soperator's version: all pods get other images."""
    old, new = (versions.series(one).release for one in (edit.old, edit.new))
    if not takes_over(new, old) or versions.parse(edit.new) < versions.parse(edit.old):
        return Refuse(
            f"Slurm {new} of Soperator {edit.new} does not start on what Slurm {old} of {edit.old} left: put it back",
            command="put it back",
        )
    every = [name for one in edit.before.nodesets for name in node_names(edit.before, one)]
    return Replace(
        "all pods are recreated with other images: Slurm nodes take no new jobs, and `up` waits until theirs have "
        "ended; slurmctld starts again with its state, and sessions on login pods end",
        show_jobs(every),
    )


@rule(Effect.NOTHING, Effect.REPLACE)
def driver(edit: Edit) -> Impact:
    """NVIDIA's driver on nodes with GPUs."""
    changed = nodes.reshaped(edit)
    if not changed:
        return NoEffect("no node has it")
    return nodes.recreated(edit) or nodes.SAME
