"""Machines on this host that the state in use does not know of: another state's, or those of one that was lost."""

from cli import console
from cli.errors import CliError
from cli.stack import drain_recovery, localhost, project, state_dir
from cli.stack.stack_config import on_this_host
from cli.stack.stackfile import StackFile
from components.local.host import owner, stacks
from components.local.host.errors import HostError
from components.local.host.paths import StackPaths, host_root


def refuse(name: str, stack: str) -> None:
    """Before the first step of an `up` without any state of the stack: its cluster must not be here already. Raises
    HostError: it is; the text says whose it is, and the ways on."""
    paths = StackPaths(host_root(), name)
    if not _has_state(stack) and owner.recorded(paths).get("states"):
        raise HostError(owner.refusal(paths))


def of(file: StackFile) -> list[str]:
    """Names of the clusters on this host that a stack has made, by what is on record here."""
    name = project.workspace(file.stack).project.name if state_dir.on_files(file.stack) else project.ROOT.name
    mine = f"{name}/{file.stack}"
    root = host_root()
    known = {name: owner.recorded(StackPaths(root, name)).get("owner") for name in stacks.stacks(root)}
    # A damaged record tells nothing: then the name that the stack file gives.
    return [name for name, whose in known.items() if whose == mine or (whose is None and name == file.cluster)]


def hint(file: StackFile) -> str:
    """What to say where there is no state; empty where nothing is here either."""
    there = of(file) if on_this_host(file) or file.settings is None else []
    if not there:
        return ""
    return (
        f"But cluster {', '.join(there)} of it is on this host, made with another state, or with one that was lost. "
        f"To remove it with its jobs and shared folders: ./hpc destroy {file.stack} --leftovers"
    )


def remove(file: StackFile, *, yes: bool, json: bool) -> None:
    """Remove all that is on this host of a stack whose state is lost. Raises CliError: its state is here, which knows
    better; or nobody said yes."""
    if _has_state(file.stack):
        raise CliError(
            f"stack {file.stack} has state in {state_dir.backend(file.stack)}: ./hpc destroy {file.stack} "
            "removes what that knows of. --leftovers is for a state that is lost."
        )
    there = of(file)
    if there and not yes:
        text = f"Cluster {', '.join(there)} is removed from this host with its jobs and shared folders"
        if not console.interactive():
            raise CliError(f"{text}: without a terminal that needs --yes.")
        if not console.ask(f"{text}. Go on?"):
            raise CliError("nothing was destroyed.")
    if there:
        localhost.prepare()
    for name in there:
        stacks.sweep(host_root(), name)
    drain_recovery.end(file.stack)
    if json:
        console.json({"stack": file.stack, "kind": "destroy", "ok": True, "leftovers": there})
    else:
        console.note(f"Removed from this host: {', '.join(there)}." if there else "Nothing of it is on this host.")


def _has_state(stack: str) -> bool:
    """Whether the state in use knows the stack; of one that is not in files it is taken to."""
    return not state_dir.on_files(stack) or stack in project.workspace(stack).stacks()
