"""Drain recovery: what a failed `up` may have left on the machines, half of an edit and nodes drained for it.

The next `up` continues the edit. But if the edit is reverted, the engine has no step to do, and nothing reverts it on
the machines. So an `up` leaves a mark when it starts. If it succeeds after one that failed, the machines that are set
up over SSH apply the configuration that holds (`settle`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli import console
from cli.stack import state_dir

SECONDS = 600
"""For one machine: its set-up waits for a daemon for a minute, for several of them in turn."""


def begin(stack: str) -> bool:
    """Note that an `up` begins; whether an earlier one has not ended well."""
    mark = _mark(stack)
    if mark.exists():
        return True
    state_dir.make_directory()
    mark.parent.mkdir(exist_ok=True)
    mark.touch()
    return False


def end(stack: str) -> None:
    """All is well, or the cluster is gone."""
    _mark(stack).unlink(missing_ok=True)


def recover(stack: str, outputs: Mapping[str, Any], *, quiet: bool) -> None:
    """Resume the nodes that a failed `up` drained, and print what the machines did.

    A machine that does not answer is reported, and asked again after the next `up`.
    """
    # Slow to import, and needed only after a run that failed.
    from cli.access import remote
    from cli.cluster import cluster
    from components.slurm import setup

    entered = cluster.from_outputs(stack, outputs)
    whole = True
    # The controller first: the others wait for what it says.
    for machine in {one.name: one for one in (entered.controller, *entered.having("login"))}.values():
        done = remote.capture(machine, entered.admin_key, setup.command("settle"), stdin="{}", seconds=SECONDS)
        for text in done.out.splitlines():
            if not quiet:
                console.line(f"  {machine.name}: {text}", style="dim")
        if done.code:
            whole = False
            console.note(f"{machine.name}: what an earlier `up` had begun may still be there: {done.err.strip()}")
    if whole:
        end(stack)


def _mark(stack: str) -> Path:
    return state_dir.directory() / "unfinished" / stack
