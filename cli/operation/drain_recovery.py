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
"""Time limit of one machine: its set-up waits for a daemon for a minute, for several of them in turn."""


def begin(stack: str) -> bool:
    """Record that an `up` starts; whether an earlier one has failed."""
    mark = _mark(stack)
    if mark.exists():
        return True
    state_dir.make_directory()
    mark.parent.mkdir(exist_ok=True)
    mark.touch()
    return False


def end(stack: str) -> None:
    """Record that the `up` succeeded, or that the cluster is destroyed."""
    _mark(stack).unlink(missing_ok=True)


def recover(stack: str, outputs: Mapping[str, Any], *, quiet: bool) -> None:
    """Resume the nodes that a failed `up` drained, and print what the machines did.

    A machine that does not answer is reported, and asked again after the next `up`.
    """
    # Slow to import, and most runs follow none that failed.
    from cli import observers
    from cli.access import remote
    from cli.cluster.cluster import from_outputs
    from cluster.platforms.observer import observer_of
    from components.slurm.payload import phase_command

    if observer_of(outputs):
        if observers.recover(stack, outputs, quiet=quiet):
            end(stack)
        return
    reached = from_outputs(stack, outputs)
    complete = True
    # The controller first: the others wait for what it says.
    others = (target for role in ("login", "monitoring") for target in reached.with_role(role))
    for machine in {target.name: target for target in (reached.controller, *others)}.values():
        done = remote.capture(machine, reached.admin_key, phase_command("settle"), stdin="{}", seconds=SECONDS)
        for text in done.out.splitlines():
            if not quiet:
                console.line(f"  {machine.name}: {text}", style="dim")
        if done.code:
            complete = False
            console.note(f"{machine.name}: the edit of an earlier `up` may still be half done: {done.err.strip()}")
    if complete:
        end(stack)


def _mark(stack: str) -> Path:
    return state_dir.directory() / "unfinished" / stack
