"""Elastic nodes that an `up` makes static: their machines are deleted before it creates those that stay, which have the
same names."""

import json
from collections.abc import Sequence

from cli import console
from cli.errors import CliError
from cli.stack import outputs
from cluster.config import ClusterConfig
from cluster.findings import listing

OFF_SECONDS = 900
"""Until machines are deleted, beyond the time for their jobs: longer than the set-up waits (jobs/drain.py)."""


def vacate(stack: str, names: Sequence[str], config: ClusterConfig | None, *, quiet: bool, ask: bool) -> None:
    """Drain these nodes, and have their machines deleted. `ask`: agree first, as the Pulumi CLI asks only after this.

    Raises:
        CliError: jobs still run there, the controller does not answer, or the user does not agree.
    """
    if not names or config is None:
        return
    # Slow to import, and most runs have no such nodes.
    from cli.access import remote
    from cli.cluster.cluster import from_outputs
    from components.slurm.payload import phase_command

    what = f"{listing(names)} become{'s' if len(names) == 1 else ''} static"
    if ask and console.interactive():
        console.confirm(f"{what}. Drain now, and delete the elastic machines?", doing=what)
    if not quiet:
        console.line(f"{what}: waiting until no job runs there, and the elastic machines are deleted.")
    reached = from_outputs(stack, outputs.read(stack, show_secrets=True))
    done = remote.capture(
        reached.controller,
        reached.admin_key,
        phase_command("vacate"),
        stdin=json.dumps({"nodes": list(names)}),
        seconds=config.slurm.drain_seconds + OFF_SECONDS,
    )
    for line in () if quiet else done.out.splitlines():
        console.line(f"  {reached.controller.name}: {line}", style="dim")
    if done.code:
        raise CliError(f"{what}, and may still have elastic machines: {(done.err or done.out).strip()}")
