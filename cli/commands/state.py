"""`./hpc stacks`, `outputs`, and `state export`, `import`, `unlock`, `unprotect`, `delete` and `rename`."""

import json as jsonlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from cli import console, options
from cli.errors import CliError
from cli.stack import outputs as stack_outputs
from cli.stack import project, stackfile, state_dir, state_edit
from cluster.regular_file import refuse_special
from engine import EngineError

_FileOut = Annotated[Path | None, Argument(metavar="[FILE]", help="Where to write; standard output if left out.")]
_FileIn = Annotated[Path | None, Argument(metavar="[FILE]", help="What to read; standard input if left out.")]


def export(stack: options.Stack, file: _FileOut = None) -> None:
    """Write the stack's state as `pulumi stack export` does. Secrets stay encrypted; the file is 0600."""
    if state_dir.on_files(stack):
        text = jsonlib.dumps(project.require_state(stack).export_state(), indent=4, ensure_ascii=False) + "\n"
    else:
        text = state_edit.run_pulumi(stack, "stack", "export")
    if file is None or str(file) == "-":
        sys.stdout.write(text)
        return
    try:
        state_dir.write_private(file, text)
    except OSError as error:
        raise CliError(f"{file}: can't be written: {error.strerror}.") from None
    console.note(f"Wrote {file}")


def import_(stack: options.Stack, file: _FileIn = None) -> None:
    """Replace the stack's state by an exported one, from this engine or from the Pulumi CLI.

    Takes the copies that both keep beside the state as well: STACK.json.bak, and those in the folder backups/.
    """
    source = "standard input" if file is None or str(file) == "-" else str(file)
    try:
        if file is None or str(file) == "-":
            text = sys.stdin.read()
        else:
            refuse_special(file)
            text = file.read_text(encoding="utf-8")
        document: Any = jsonlib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{source}: can't be read: {error}.") from None
    except ValueError as error:
        raise CliError(f"{source}: not JSON ({error}). Give what `./hpc state export` wrote.") from None
    if not isinstance(document, dict) or not {"deployment", "checkpoint"} & document.keys():
        raise CliError(f"{source}: no state: `version` and `deployment` are expected, as `./hpc state export` writes.")
    if state_dir.on_files(stack):
        project.workspace(stack).stack(stack).import_state(document)
    else:
        state_edit.run_pulumi(stack, "stack", "import", stdin=text)
    console.note(f"Imported {source} into stack {stack}")


def unlock(stack: options.Stack) -> None:
    """Remove the lock that a run left behind on a stack.

    After a run that was killed on this machine this is not needed: the next run takes over its lock.
    """
    if state_dir.on_files(stack):
        project.require_state(stack).unlock()
    else:
        state_edit.run_pulumi(stack, "cancel", "--yes")
    console.note(f"Stack {stack} is not locked now")


_Urns = Annotated[
    list[str] | None, Argument(metavar="[URN]...", help="The resources; `./hpc state export` shows their URNs.")
]


def unprotect(
    stack: options.Stack,
    urns: _Urns = None,
    *,
    all_: Annotated[bool, Option("--all", help="All resources that are protected.")] = False,
) -> None:
    """Remove the protection of resources, so that they can be destroyed or recreated.

    The next `up` protects again what the stack file still protects.
    """
    if all_ == bool(urns):
        raise CliError("name the resources by their URN, or all that are protected with --all.")
    state_edit.unprotect(stack, urns)
    console.note(f"Unprotected in stack {stack}: {'all' if all_ else ', '.join(urns or ())}")


def delete(
    stack: options.Stack,
    urns: Annotated[list[str], Argument(metavar="URN...", help="The resources to forget.")],
    *,
    force: Annotated[bool, Option("--force", help="Forget what is protected as well.")] = False,
    target_dependents: Annotated[
        bool, Option("--target-dependents", help="Forget what depends on them as well.")
    ] = False,
) -> None:
    """Remove resources from the state; what exists of them stays.

    For resources that are deleted already, or are managed elsewhere from now on. The next `up` creates them again if
    the stack file has them.
    """
    state_edit.delete(stack, urns, force=force, dependents=target_dependents)
    console.note(f"Forgotten in stack {stack}: {', '.join(urns)}")


def rename(
    stack: options.Stack,
    urn: Annotated[str, Argument(metavar="URN", help="The resource.")],
    name: Annotated[str, Argument(metavar="NAME", help="Its new name, the last part of the URN.")],
) -> None:
    """Rename a resource in the state; what exists of it stays as it is."""
    state_edit.rename(stack, urn, name)
    console.note(f"Renamed in stack {stack}: {urn} to {name}")


def stacks(*, json: options.Json = False) -> None:
    """List the stacks: those with a file here, rehearsals, and those with state."""
    rows = [_stack_row(name) for name in project.known()]
    if json:
        console.json(rows)
        return
    if not rows:
        console.note("There are no stacks yet: write a Pulumi.<stack>.yaml.")
        return
    table = [("STACK", "PLATFORM", "RESOURCES", "LAST CHANGE")]
    for row in rows:
        where = f"{row['platform']}, rehearses {row['rehearses']}" if row["rehearses"] else row["platform"]
        count = str(row["resources"]) if row["updated"] else "-"
        table.append((row["stack"], where, count, row["updated"] or "-"))
    console.table(table)


def _stack_row(name: str) -> dict[str, Any]:
    """Return a stack as its file and its state show it. `updated` is the time of the last change (RFC 3339), empty if
    it was never up."""
    row: dict[str, Any] = {"stack": name, "platform": "(unreadable)", "resources": 0, "updated": "", "rehearses": ""}
    try:
        file = stackfile.read(project.ROOT, name)
        row["rehearses"] = file.rehearses or ""
        row["platform"] = "(no file)" if file.settings is None else file.platform or "(not said)"
    except CliError:
        pass
    space = project.workspace(name) if state_dir.on_files(name) else None
    if space is None or name not in space.stacks():
        return row
    try:
        deployment = space.stack(name).export_state().get("deployment") or {}
    except EngineError:
        # Other commands report the error. Here, the list goes on with the next stack.
        return {**row, "updated": "(state can't be read)"}
    time = str((deployment.get("manifest") or {}).get("time") or "")
    # Without fractions of a second.
    updated = time[:19] + ("Z" if time.endswith("Z") else "")
    return {**row, "resources": len(deployment.get("resources") or ()), "updated": updated}


def outputs(
    stack: options.Stack,
    key: Annotated[str | None, Argument(metavar="[KEY]", help="Print this output only, bare.")] = None,
    *,
    json: options.Json = False,
    show_secrets: Annotated[bool, Option("--show-secrets", help="Print secrets instead of [secret].")] = False,
) -> None:
    """Show what the stack exports for people: machines with their addresses, users with their keys, links.

    --json prints every output. A single KEY is printed bare when it is a text, and as JSON otherwise.
    """
    values = stack_outputs.read(stack, show_secrets=show_secrets)
    if key is not None:
        if key not in values:
            raise CliError(f"stack {stack} has no output {key!r}. There are: {', '.join(sorted(values)) or 'none'}.")
        value = values[key]
        if isinstance(value, str) and not json:
            console.lines([value])
        else:
            console.json(value)
    elif json:
        console.json(values)
    elif values:
        _print_outputs(stack, values)
    else:
        console.note(f"Stack {stack} has no outputs: it is not up. Bring it up with: ./hpc up {stack}")


def _print_outputs(stack: str, values: Mapping[str, Any]) -> None:
    # Other commands of this file do not need these.
    import yaml

    from cli.users import fingerprint
    from cluster import people
    from cluster.load import parse_output

    rest = stack_outputs.for_people(values)
    if "cluster" in values:
        console.line(f"Cluster {rest.pop('cluster')}; ./hpc ssh-config {stack} writes what ssh needs to know of it.")
    if targets := rest.pop("targets", None):
        rows = [
            (name, ", ".join(row.get("roles") or ()), str(row.get("address") or "-"), str(row.get("method") or "-"))
            for name, row in sorted(targets.items())
        ]
        console.line()
        console.table([("MACHINE", "ROLES", "ADDRESS", "BY"), *rows])
    if "config" in values and rest.get("users"):
        rest.pop("users")
        config = parse_output(values["config"])
        rows = [
            (
                user.name,
                str(user.uid),
                people.default_account(config, user),
                ", ".join(map(fingerprint, user.keys)) or "-",
            )
            for user in config.users
        ]
        console.line()
        console.table([("USER", "UID", "ACCOUNT", "KEYS"), *rows])
    if rest:
        if "cluster" in values:
            console.line()
        text = yaml.safe_dump(rest, sort_keys=False, allow_unicode=True, width=10_000)
        console.lines(text.rstrip("\n").split("\n"))
