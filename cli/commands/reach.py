"""run and ssh."""

from collections.abc import Sequence
from typing import Annotated

from typer import Argument, Exit, Option

from cli import options
from cli.access import remote
from cli.cluster import cluster
from cli.commands import outputs

_Command = Annotated[
    list[str] | None,
    Argument(metavar="[-- COMMAND...]", help="The command, after `--`. Left out: a login shell.", show_default=False),
]
_As = Annotated[
    str | None,
    Option("--as", metavar="USER", help="Who to be. Default: the first configured user.", show_default=False),
]


def run(
    stack: options.Stack,
    command: _Command = None,
    *,
    user: _As = None,
    login: Annotated[
        str | None, Option(metavar="MACHINE", help="Where. Default: the first login machine.", show_default=False)
    ] = None,
) -> None:
    """Run a command as a user of the cluster, on its login machine.

    Input, output, terminal and exit code are the command's own. Its words arrive as given; one quoted word with
    blanks or pipes in it, as in `-- "sinfo | head"`, is a line for the user's shell there. 255 is ssh's own exit
    code: the machine was not reached.
    """
    entered = _cluster(stack)
    _enter(entered, login, entered.user(user), command or ())


def ssh(
    stack: options.Stack,
    machine: Annotated[
        str | None,
        Argument(
            metavar="[MACHINE]",
            help="Its name, with or without the cluster's: dev-cpu-0, cpu-0, controller. Default: the login machine.",
            show_default=False,
        ),
    ] = None,
    command: _Command = None,
    *,
    user: Annotated[str, Option("--as", metavar="USER", help="Who to be.")] = "root",
) -> None:
    """Enter a machine, or run a command there, as root.

    Host keys are pinned: they come from the stack's state. One quoted word is a line for the shell there, several
    words arrive as given.
    """
    words = [word for word in (machine, *(command or ())) if word is not None]
    if options.COMMAND_FOLLOWS in words:
        named, words = words[: words.index(options.COMMAND_FOLLOWS)], words[words.index(options.COMMAND_FOLLOWS) + 1 :]
    else:
        named, words = words[:1], words[1:]
    entered = _cluster(stack)
    _enter(entered, named[0] if named else None, entered.user(user), [*named[1:], *words])


def _cluster(stack: str) -> cluster.Cluster:
    return cluster.from_outputs(stack, outputs.read(stack, show_secrets=True))


def _enter(entered: cluster.Cluster, name: str | None, user: str, command: Sequence[str]) -> None:
    raise Exit(remote.run(entered.machine(name), entered.admin_key, user, command))
