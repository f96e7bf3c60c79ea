"""The host of rehearsals: installs packages, removes clusters whose state is lost, shows consoles of machines."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress

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
    """Prepare this host for machines, and install missing packages. Raises HostError: it can't run machines."""
    usual_umask()
    install_packages(missing_packages(), lambda text: console.note(f"{text} ..."))
    require_host()


def refuse_leftovers(name: str, stack: str) -> None:
    """Raise HostError if the stack has no state, but its cluster is already on this host."""
    paths = StackPaths(host_root(), name)
    if not _has_state(stack) and owner.recorded(paths).get("states"):
        raise HostError(owner.refusal(paths))


def leftovers_of(file: StackFile) -> list[str]:
    """Return the names of the clusters on this host that the stack created, by the host's records.

    Raises HostError: clusters are on this host, and only root can read their records.
    """
    project_name = project.workspace(file.stack).project.name if state_dir.on_files(file.stack) else project.ROOT.name
    stack_id = f"{project_name}/{file.stack}"
    root = host_root()
    owners = {name: owner.recorded(StackPaths(root, name)).get("owner") for name in network.stacks(root)}
    # A cluster whose record is damaged belongs to the stack whose file has its name.
    return [name for name, own in owners.items() if own == stack_id or (own is None and name == file.cluster)]


def leftovers_hint(file: StackFile) -> str:
    """Return the hint about clusters on this host of a stack without state; empty if there are none."""
    try:
        names = leftovers_of(file) if on_this_host(file) or file.settings is None else []
    except HostError as error:
        return str(error)
    if not names:
        return ""
    return (
        f"But cluster {', '.join(names)} of it is on this host, made with another state, or with one that was lost. "
        f"To remove it with its jobs and shared folders: ./hpc destroy {file.stack} --leftovers"
    )


def remove_leftovers(file: StackFile, *, yes: bool, json: bool) -> None:
    """Remove the clusters on this host of a stack whose state is lost. Raises CliError: the stack has state, or the
    user does not agree."""
    if _has_state(file.stack):
        raise CliError(
            f"stack {file.stack} has state in {state_dir.backend(file.stack)}: ./hpc destroy {file.stack} "
            "removes what that has. --leftovers is for a state that is lost."
        )
    names = leftovers_of(file)
    if names and not yes:
        what = f"cluster {', '.join(names)} from this host with its jobs and shared folders"
        console.confirm(f"Remove {what}?", doing=f"removing {what}", no="nothing was destroyed.")
    if names:
        prepare()
    for name in names:
        network.sweep(host_root(), name)
    drain_recovery.end(file.stack)
    if json:
        console.json({"stack": file.stack, "kind": "destroy", "ok": True, "leftovers": names})
    else:
        console.note(f"Removed from this host: {', '.join(names)}." if names else "Nothing of it is on this host.")


def _has_state(stack: str) -> bool:
    """Return whether the state in use has the stack; True if the state is not in files, where this is not known."""
    return not state_dir.on_files(stack) or stack in project.workspace(stack).stacks()


_UNREACHED = re.compile(r"^(\S+): (?:no SSH connection|interrupted while waiting for an SSH connection)")
"""Beginning of the message of engine.providers.ssh about an address that it could not reach."""


def show_consoles(failures: Sequence[StepFailed], stack: str) -> None:
    """Print on standard error the end of the console of every machine that could not be reached."""
    matches = (_UNREACHED.match(failure.message) for failure in failures)
    for address in sorted({match[1] for match in matches if match}):
        for record in host_root().glob("stacks/*/machines/*/machine.json"):
            machine = {}
            with suppress(OSError, ValueError):
                machine = json.loads(record.read_text(encoding="utf-8"))
            if machine.get("address") == address:
                console.note("\n".join(describe_machine(MachinePaths(record.parent), stack)))


def describe_machine(paths: MachinePaths, stack: str) -> list[str]:
    """Return whether the machine runs, the last lines of its console, and how to restart it."""
    process = running(paths)
    lines = [f"  {line}" for line in console_tail(paths.console)]
    what = "runs, but does not answer SSH" if process else "does not run"
    console_state = "the last lines of its console:" if lines else f"its console is empty ({paths.console})"
    todo = f"Restart it, with its disk as it is: ./hpc up {stack}"
    if process:
        # All other processes of the machine end with its first one.
        todo = f"End it and restart it, with its disk as it is: kill -KILL {process.children()[0]}; ./hpc up {stack}"
    return [f"Machine {paths.folder.name} {what}; {console_state}", *lines, todo]
