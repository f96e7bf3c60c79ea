"""Drain recovery after a failed `up`, which may leave half of an edit on the machines and nodes drained for it.

The next `up` continues the edit. But if the edit was reverted, the engine has no step for it, and nothing reverts it on
the machines. So an `up` creates a marker file when it starts. An `up` that succeeds after a failed one has the machines
that are set up over SSH apply their configuration again (`settle`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli import console
from cli.stack import state_dir

SECONDS = 600
"""Time limit of one machine: its set-up waits for a daemon for a minute, for several of them in turn."""


def is_unfinished(stack: str) -> bool:
    """Return whether the last `up` has failed."""
    return _marker(stack).exists()


def begin(stack: str) -> bool:
    """Record that an `up` starts. Returns whether the one before has failed."""
    if is_unfinished(stack):
        return True
    marker = _marker(stack)
    state_dir.make_directory()
    marker.parent.mkdir(exist_ok=True)
    marker.touch()
    return False


def end(stack: str) -> None:
    """Record that the `up` succeeded, or that the cluster is destroyed."""
    _marker(stack).unlink(missing_ok=True)


def recover(stack: str, outputs: Mapping[str, Any], *, quiet: bool) -> None:
    """Resume the nodes that a failed `up` drained, and print the machines' output.

    A machine that does not answer is reported, and tried again after the next `up`.
    """
    # Slow to import, and most runs do not follow a failed one.
    from cli import observers
    from cli.access import remote
    from cli.cluster.cluster import from_outputs
    from cluster.platforms.observers import observer_of
    from components.slurm.payload import phase_command

    cluster = from_outputs(stack, outputs)
    if observer_of(outputs):
        if observers.recover(cluster, quiet=quiet):
            end(stack)
        return
    complete = True
    # The controller comes first: the others wait for its config version.
    others = (target for role in ("login", "monitoring") for target in cluster.with_role(role))
    for machine in {target.name: target for target in (cluster.controller, *others)}.values():
        done = remote.capture(machine, cluster.admin_key, phase_command("settle"), stdin="{}", seconds=SECONDS)
        for text in done.out.splitlines():
            if not quiet:
                console.line(f"  {machine.name}: {text}", style="dim")
        if done.code:
            complete = False
            console.note(f"{machine.name}: the edit of an earlier `up` may still be half done: {done.err.strip()}")
    if complete:
        end(stack)


def _marker(stack: str) -> Path:
    return state_dir.directory() / "unfinished" / stack
