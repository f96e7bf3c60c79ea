"""env."""

from typing import Annotated

from typer import Option

from cli import console, options
from cli.backends import environments
from cli.backends.exports import exports
from cli.stack import project


def env(
    stack: options.Stack,
    *,
    backend: Annotated[
        str | None,
        Option(
            "--backend",
            metavar="BUCKET",
            help="Bucket of `./hpc backend list` that holds the stack's state. Default: that of the stack's project.",
            show_default=False,
        ),
    ] = None,
    unset: Annotated[bool, Option("--unset", help="Print the lines that unset these variables.")] = False,
    json: options.Json = False,
    show_secrets: Annotated[
        bool, Option("--show-secrets", help="Print secrets also on a terminal and with --json.")
    ] = False,
) -> None:
    """Print the environment variables of a stack's cloud and state, for `eval "$(./hpc env STACK)"`.

    Standard output has `export` lines only, notes are on standard error. An access key of the state bucket that has
    expired is renewed; otherwise nothing changes.
    """
    file = project.require_file(stack)
    if unset:
        console.lines(f"unset {name}" for name in environments.names(file, backend))
        return
    found = environments.of_stack(file, backend)
    for note in found.notes:
        console.note(note)
    hidden = frozenset() if show_secrets or not (json or console.stdout().is_terminal) else found.secret
    if json:
        console.json({name: "[secret]" if name in hidden else value for name, value in found.variables.items()})
        return
    console.lines(exports(found.variables, hidden))
