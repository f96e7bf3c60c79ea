"""Differences as people read them."""

from collections.abc import Mapping, Sequence

from cli import console
from cli.display import status_screen
from cluster.observe.drift import Difference
from cluster.slurm.hostlist import compress

_WIDEST = 60


def show(
    stack: str, found: Sequence[Difference], unseen: Sequence[str], *, advice: Mapping[str, str] | None = None
) -> None:
    """Print what differs, and what mends it; `advice` is for clusters of which this file does not know, by who puts a
    difference right."""
    if not found:
        console.line(f"{stack}: nothing differs from the stack.", style="bold green" if not unseen else "bold")
    else:
        console.line(f"{stack}: {status_screen.counted(len(found), 'thing')} not as the stack says.", style="bold red")
    for one in found:
        console.line()
        console.line(f"{compress(one.where)}: {one.what}", style="bold")
        console.line(f"    stack: {one.stack}")
        console.line(f"    there: {one.there}")
    if unseen:
        console.line()
        console.line("Not compared:", style="bold")
        for text in unseen:
            console.line(f"    {text}")
    if advice is None:
        _advise(stack, found)
        return
    for text in (text for way, text in advice.items() if any(one.mends == way for one in found)):
        console.line()
        console.line(text.replace("STACK", stack), style="cyan")


def _advise(stack: str, found: Sequence[Difference]) -> None:
    ways = {one.mends for one in found}
    if ways:
        console.line()
    if "up" in ways:
        console.line(f"A machine that is gone, or a set-up of another version: ./hpc up {stack}", style="cyan")
    if "mend" in ways:
        rest = " all else" if len(ways) > 1 else ""
        console.line(
            f"Make{rest or ' it'} as the stack says, beside running jobs: ./hpc drift {stack} --mend", style="cyan"
        )
    if "hand" in ways:
        console.line("A number that files belong to is not changed: put it right by hand, or write it into the stack.")
