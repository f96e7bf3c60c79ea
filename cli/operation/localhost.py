"""This host, where rehearsals run: its packages, clusters whose state is lost, consoles of machines."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from cli import console
from cli.errors import CliError
from cli.operation import drain_recovery
from cli.stack import project, state_dir
from cli.stack.stack_config import on_this_host
from cli.stack.stackfile import StackFile
from components.local.host import network, owner
from components.local.host.machine import console_tail, running
from components.local.host.paths import HostError, MachinePaths, StackPaths, host_root
from components.local.host.process import install_packages, missing_packages, require_host, usual_umask
from engine.events import StepFailed


def prepare() -> None:
    """See that machines can be made here; installs what is missing, after saying so. Raises HostError: they can't be;
    the text says why and what to do."""
    usual_umask()
    install_packages(missing_packages(), lambda text: console.note(f"{text} ..."))
    require_host()


def refuse_leftovers(name: str, stack: str) -> None:
    """Before the first step of an `up` without any state of the stack: its cluster must not be here already. Raises
    HostError: it is; the text says whose it is, and the ways on."""
    paths = StackPaths(host_root(), name)
    if not _has_state(stack) and owner.recorded(paths).get("states"):
        raise HostError(owner.refusal(paths))


def leftovers_of(file: StackFile) -> list[str]:
    """Names of the clusters on this host that a stack has made, by what is on record here."""
    name = project.workspace(file.stack).project.name if state_dir.on_files(file.stack) else project.ROOT.name
    mine = f"{name}/{file.stack}"
    root = host_root()
    known = {name: owner.recorded(StackPaths(root, name)).get("owner") for name in network.stacks(root)}
    # A damaged record says nothing: then the name that the stack file gives.
    return [name for name, whose in known.items() if whose == mine or (whose is None and name == file.cluster)]


def leftovers_hint(file: StackFile) -> str:
    """Return what to say where there is no state; empty where nothing is here either."""
    there = leftovers_of(file) if on_this_host(file) or file.settings is None else []
    if not there:
        return ""
    return (
        f"But cluster {', '.join(there)} of it is on this host, made with another state, or with one that was lost. "
        f"To remove it with its jobs and shared folders: ./hpc destroy {file.stack} --leftovers"
    )


def remove_leftovers(file: StackFile, *, yes: bool, json: bool) -> None:
    """Remove all that is on this host of a stack whose state is lost. Raises CliError: its state is here, which has
    better; or nobody said yes."""
    if _has_state(file.stack):
        raise CliError(
            f"stack {file.stack} has state in {state_dir.backend(file.stack)}: ./hpc destroy {file.stack} "
            "removes what that has. --leftovers is for a state that is lost."
        )
    there = leftovers_of(file)
    if there and not yes:
        what = f"cluster {', '.join(there)} from this host with its jobs and shared folders"
        console.confirm(f"Remove {what}?", doing=f"removing {what}", no="nothing was destroyed.")
    if there:
        prepare()
    for name in there:
        network.sweep(host_root(), name)
    drain_recovery.end(file.stack)
    if json:
        console.json({"stack": file.stack, "kind": "destroy", "ok": True, "leftovers": there})
    else:
        console.note(f"Removed from this host: {', '.join(there)}." if there else "Nothing of it is on this host.")


def _has_state(stack: str) -> bool:
    """Return whether the state in use has the stack; of one that is not in files it is taken to."""
    return not state_dir.on_files(stack) or stack in project.workspace(stack).stacks()


_UNREACHED = re.compile(r"^(\S+): (?:no SSH connection|interrupted while waiting for an SSH connection)")
"""Beginning of engine.providers.ssh's message when it gives an address up."""


def show_consoles(failures: Sequence[StepFailed], stack: str) -> None:
    """Print on standard error the end of the console of every machine that could not be reached."""
    found = (_UNREACHED.match(failure.message) for failure in failures)
    for address in sorted({match[1] for match in found if match}):
        for paths in _machines(host_root(), address):
            console.note("\n".join(describe_machine(paths, stack)))


def describe_machine(paths: MachinePaths, stack: str) -> list[str]:
    """Return whether the machine runs, the last lines of its console, and how to restart it."""
    process = running(paths)
    lines = [f"  {line}" for line in console_tail(paths.console)]
    what = "runs, but does not answer SSH" if process else "does not run"
    last = "the last lines of its console:" if lines else f"its console is empty ({paths.console})"
    again = f"Restart it, with its disk as it is: ./hpc up {stack}"
    if process:
        # The first process inside: all others of the machine end with it.
        again = f"End it and restart it, with its disk as it is: kill -KILL {process.children()[0]}; ./hpc up {stack}"
    return [f"Machine {paths.folder.name} {what}; {last}", *lines, again]


def _machines(root: Path, address: str) -> Iterator[MachinePaths]:
    for record in root.glob("stacks/*/machines/*/machine.json"):
        try:
            if json.loads(record.read_text(encoding="utf-8")).get("address") == address:
                yield MachinePaths(record.parent)
        except (OSError, ValueError):
            continue
