"""What an `up` that did not end well may have left behind: nodes that it drained for an edit.

The next `up` goes on with the edit. But where the edit is taken back, no step is left to do, and nothing that the
engine knows of would bring the nodes back. So an `up` notes that it has begun, and one that ends well after another
that did not has the controller resume what was drained.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli import console, home


def begin(stack: str) -> bool:
    """Note that an `up` begins; whether an earlier one has not ended well."""
    mark = _mark(stack)
    if mark.exists():
        return True
    home.make_directory()
    mark.parent.mkdir(exist_ok=True)
    mark.touch()
    return False


def end(stack: str) -> None:
    """All is well, or the cluster is gone."""
    _mark(stack).unlink(missing_ok=True)


def settle(stack: str, outputs: Mapping[str, Any], *, quiet: bool) -> None:
    """Have the controller resume what was drained for an edit that did not come about, and say what it did.

    A controller that does not answer is told of, and asked again after the next `up`.
    """
    from cli import cluster, remote
    from components.slurm import setup

    entered = cluster.from_outputs(stack, outputs)
    controller = entered.controller
    done = remote.capture(controller, entered.admin_key, setup.command("settle"), stdin="{}", seconds=120)
    for text in done.out.splitlines():
        if not quiet:
            console.line(f"  {controller.name}: {text}", style="dim")
    if done.code == 0:
        end(stack)
    else:
        console.note(f"{controller.name}: nodes that an earlier `up` drained may still be so: {done.err.strip()}")


def _mark(stack: str) -> Path:
    return home.directory() / "unfinished" / stack
