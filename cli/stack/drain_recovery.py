"""What an `up` that did not end well may have left behind: half of an edit, and nodes that it drained for one.

The next `up` goes on with the edit. But where the edit is taken back, no step is left to do, and nothing that the
engine knows of would take it back on the machines. So an `up` notes that it has begun, and one that ends well after
another that did not has the machines that are set up over SSH settle: they do again what held before.
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


def settle(stack: str, outputs: Mapping[str, Any], *, quiet: bool) -> None:
    """Have the machines take back what belongs to an edit that did not come about, and say what they did.

    One that does not answer is told of, and asked again after the next `up`.
    """
    # Slow to import, and needed only after a run that failed.
    from cli.access import remote
    from cli.cluster import cluster
    from components.slurm import setup

    entered = cluster.from_outputs(stack, outputs)
    whole = True
    # The controller first: the others wait for what it says.
    for machine in dict.fromkeys((entered.controller, *entered.having("login"))):
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
