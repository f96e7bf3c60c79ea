"""Undoes what an `up` that failed left on a cluster of pods: nodes that it drained are resumed."""

from collections.abc import Mapping
from typing import Any

from cli import console
from cli.cluster.cluster import from_outputs
from cli.cluster.scheduler import Scheduler
from cli.errors import CliError
from cluster.slurm.hostlist import compress

_OURS = "hpc: "
"""How reasons begin that this program drains nodes with (scripts/node/slurm/scheduler.py)."""


def recover(stack: str, outputs: Mapping[str, Any], *, quiet: bool) -> bool:
    """Resume the nodes that have a reason of this program's; whether all are in service.

    An `up` drains nodes before their pods go. After one that succeeded, every node that is left is to stay.
    """
    reached = from_outputs(stack, outputs)
    scheduler = Scheduler(reached, stack)
    try:
        nodes = [node for name, node in scheduler.nodes().items() if name in reached.targets]
        ours = [node.name for node in nodes if node.drained and node.reason.startswith(_OURS)]
        if ours:
            scheduler.resume(ours)
            if not quiet:
                console.line(f"  resumed {compress(ours)}, which an earlier `up` had drained", style="dim")
    except CliError as error:
        console.note(f"The edit of an earlier `up` may still be half done: {error}")
        return False
    return True
