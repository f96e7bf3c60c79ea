"""`./hpc drift`."""

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from typing import Annotated

from typer import Exit, Option

from cli import console, observers, options
from cli.cluster.cluster import from_outputs, require_capabilities
from cli.cluster.drift import mend as mend_differences
from cli.cluster.drift import stack as described
from cli.cluster.drift import wanted
from cli.cluster.observation import ask
from cli.commands.status import Timeout
from cli.display import status_screen
from cli.stack import outputs, project
from cluster.observe.drift import differences, unseen
from cluster.observe.observation import Difference
from cluster.platforms.capability import Capability
from cluster.platforms.observer import observer_of
from scripts.node.slurm.hostlist import compress


def drift(
    stack: options.Stack,
    *,
    mend: Annotated[bool, Option("--mend", help="Make the cluster as the stack says again.")] = False,
    timeout: Timeout = None,
    json: options.Json = False,
) -> None:
    """Compare the cluster with its stack, as the last `up` was given it.

    Slurm's files line by line, the values that slurmctld runs with, partitions, nodes, daemons, Unix users, groups and
    keys, prologs, accounts, users and limits in the database. Exit code 0 when nothing differs, 1 when something does,
    or could not be compared.

    `up` does not see such differences: it compares the stack with what it did last. --mend has every machine that
    differs do its part again, beside running jobs; what is then left is shown.

    Of a cluster of pods: charts with their values, the operator's objects, node sets, Kubernetes nodes, Slurm's nodes
    and partitions, accounts, users and QOS. There is no --mend for them.

    JSON: {stack, ok, differences [{id, where, what, stack, there, mends}], unseen [text]}.
    """
    with project.held(stack) if mend else nullcontext():
        values = outputs.read(stack, show_secrets=True)
        require_capabilities(stack, values, Capability.DRIFT, *([Capability.MEND] if mend else []))
        if observer := observer_of(values):
            found, blind = observers.drift(observer, stack, values, timeout)
            _show_drift(stack, found, blind, json=json, advice=observer.advice)
            raise Exit(1 if found or blind else 0)
        seen = ask(stack, values, seconds=timeout)
        of = described(stack, values)
        found = differences(wanted(of, seen), seen)
        if mend:
            # A machine whose set-up was gone is observed once the set-up was copied again.
            for _ in ("what is seen", "what was not seen"):
                blind = any(machine.reached and not machine.has_facts for machine in seen.machines)
                if found:
                    mend_differences(of, from_outputs(stack, values), seen, found)
                    seen = ask(stack, values, seconds=timeout)
                    found = differences(wanted(of, seen), seen)
                if not blind:
                    break
    _show_drift(stack, found, unseen(seen), json=json)
    raise Exit(1 if found or unseen(seen) else 0)


def _show_drift(
    stack: str, found: list[Difference], unseen: list[str], *, json: bool, advice: Mapping[str, str] | None = None
) -> None:
    """Print what differs, and what mends it; `advice` is the platform's own, by what mends a difference."""
    if json:
        differences = [asdict(difference) for difference in found]
        console.json({"stack": stack, "ok": not found and not unseen, "differences": differences, "unseen": unseen})
        return
    if not found:
        console.line(f"{stack}: nothing differs from the stack.", style="bold green" if not unseen else "bold")
    else:
        console.line(f"{stack}: {status_screen.counted(len(found), 'thing')} not as the stack says.", style="bold red")
    for difference in found:
        console.line()
        console.line(f"{compress(difference.where)}: {difference.what}", style="bold")
        console.line(f"    stack: {difference.stack}")
        console.line(f"    there: {difference.there}")
    if unseen:
        console.line()
        console.line("Not compared:", style="bold")
        for text in unseen:
            console.line(f"    {text}")
    mends = {difference.mends for difference in found}
    if advice is None:
        _advise(stack, mends)
        return
    for text in (text for way, text in advice.items() if way in mends):
        console.line()
        console.line(text.replace("STACK", stack), style="cyan")


def _advise(stack: str, ways: Collection[str]) -> None:
    if ways:
        console.line()
    if "up" in ways:
        console.line(f"A machine that is gone, or a set-up of another version: ./hpc up {stack}", style="cyan")
    if "mend" in ways:
        what = "all else" if len(ways) > 1 else "it"
        console.line(f"Make {what} as the stack says, beside running jobs: ./hpc drift {stack} --mend", style="cyan")
    if "hand" in ways:
        console.line("A number that files belong to is not changed: put it right manually, or write it into the stack.")
