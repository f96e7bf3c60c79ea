"""Before a stack is destroyed: who is asked what, and how data that is protected may go with it."""

from collections.abc import Mapping, Sequence
from typing import Any

from cli import console
from cli.errors import CliError
from cli.stack import stack_config, state_edit
from cli.stack.run_options import RunOptions
from cli.stack.stackfile import StackFile

_MOST = 20
"""Lines of what will be lost; more are counted."""


def confirmed(file: StackFile, chosen: RunOptions, pulumi: str | None) -> bool:
    """Have the user agree, as far as that is needed; whether nobody needs to be asked again.

    What is protected is refused before the first step, and not after half of the stack has gone; with --unprotect it is
    protected no more, once the user has typed the cluster's name. Raises CliError: the user does not agree, can't be
    asked, or must say more."""
    rows = state_edit.rows(file.stack, pulumi)
    protected = [row for row in rows if row.get("protect") and not row.get("delete")]
    if chosen.unprotect:
        if chosen.targets or chosen.excludes:
            raise CliError("--unprotect destroys the whole stack: leave out --target and --exclude.")
        if pulumi is None and stack_config.needs_cli(file):
            raise CliError(
                f"the embedded engine can't destroy what is on {file.platform}: leave out --engine embedded."
            )
        _typed(file, chosen, protected, rows)
        if protected:
            state_edit.unprotect(file.stack, None, pulumi)
        return True
    if protected and not (chosen.targets or chosen.excludes):
        raise CliError(
            "\n".join([
                f"stack {file.stack} holds data that is protected, and nothing was destroyed:",
                *_lines(protected),
                f"To destroy it with its data: ./hpc destroy {file.stack} --unprotect",
            ])
        )  # fmt: skip
    _agreed(file, yes=chosen.yes, pulumi_asks=pulumi is not None)
    return False


def _agreed(file: StackFile, *, yes: bool, pulumi_asks: bool) -> None:
    if yes or not stack_config.protected(file) or (pulumi_asks and console.interactive()):
        return
    why = "has deletion_protection" if stack_config.on_this_host(file) else "is not a rehearsal on this machine"
    if file.settings is None:
        why = f"has lost its file {file.path.name}, which says what protects it"
    if not console.interactive():
        raise CliError(f"stack {file.stack} {why}: destroying it without a terminal needs --yes.")
    if not console.ask(f"Stack {file.stack} {why}. Destroy everything it made?"):
        raise CliError("nothing was destroyed.")


def _typed(
    file: StackFile, chosen: RunOptions, protected: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Say what will be lost, and have the cluster's name typed."""
    name = _name(file, rows)
    others = sum(1 for row in rows if row.get("custom") and not row["type"].startswith("pulumi:")) - len(protected)
    if not chosen.json:
        console.line(
            f"This destroys cluster {name} (stack {file.stack}). Lost for good, with all data in it:", style="bold red"
        )
        for text in _lines(protected) or ["  nothing that is protected"]:
            console.line(text)
        console.line(f"  and {others} other resources: machines, networks, keys")
    given = chosen.confirm
    if not given:
        if not console.interactive():
            raise CliError("destroying what is protected without a terminal needs --confirm NAME, the cluster's name.")
        given = console.answer(f"Type the cluster's name ({name}) to destroy it: ")
    if given != name:
        raise CliError(f"{given!r} is not the cluster's name, which is {name}: nothing was destroyed.")


def _lines(protected: Sequence[Mapping[str, Any]]) -> list[str]:
    found = [f"  {row['urn'].rpartition('::')[2]}  {row['type']}" for row in protected]
    return found[:_MOST] + ([f"  and {len(found) - _MOST} more"] if len(found) > _MOST else [])


def _name(file: StackFile, rows: Sequence[Mapping[str, Any]]) -> str:
    """The cluster's name as the stack exports it; of a stack that never came so far, as its file says, or its own."""
    outputs = next((row.get("outputs") or {} for row in rows if row["type"] == "pulumi:pulumi:Stack"), {})
    return str(outputs.get("cluster") or file.cluster or file.stack)
