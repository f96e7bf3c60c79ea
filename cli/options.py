"""Arguments and options that several commands share, so that they read the same everywhere, and their completion.

Completion imports what it needs where it needs it, so that commands do not wait for that.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option

from cli.errors import CliError

COMPLETE = "_HPC_COMPLETE"
"""The environment variable with which a shell asks for completions."""


def _complete_stack(incomplete: str) -> list[str]:
    from cli.stack import project

    return [name for name in project.known() if name.startswith(incomplete)]


class EngineName(str, Enum):
    """The engine that runs the program."""

    PULUMI = "pulumi"
    EMBEDDED = "embedded"


Stack = Annotated[
    str, Argument(metavar="STACK", help="The stack: `dev` stands for Pulumi.dev.yaml.", autocompletion=_complete_stack)
]
Engine = Annotated[
    EngineName | None,
    Option(
        help="Who runs the program: the Pulumi CLI, or the engine built in. Default: the CLI if it is on PATH.",
        envvar="HPC_ENGINE",
    ),
]
Json = Annotated[bool, Option("--json", help="Print one JSON document instead of text.")]
Parallel = Annotated[
    int | None, Option(min=1, max=1000, metavar="N", help="Most resources to work on at once. Default: the engine's.")
]
Timeout = Annotated[float | None, Option(min=1, metavar="SECONDS", help="For each machine; none is then asked twice.")]
ConfigFile = Annotated[Path | None, Option(metavar="FILE", help="Settings to use instead of the stack file.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Go ahead without asking.")]
Target = Annotated[
    list[str] | None,
    Option(
        "--target",
        metavar="URN",
        help="Do this resource and nothing else; may be given again. `*` stands for any part, `**` for anything.",
    ),
]
Exclude = Annotated[
    list[str] | None, Option("--exclude", metavar="URN", help="Do all but this resource; may be given again.")
]
TargetDependents = Annotated[
    bool, Option("--target-dependents", help="Take in what depends on the resources named by --target.")
]
ExcludeDependents = Annotated[
    bool, Option("--exclude-dependents", help="Leave out what depends on the resources named by --exclude.")
]
Replace = Annotated[
    list[str] | None, Option("--replace", metavar="URN", help="Recreate this resource; may be given again.")
]
Refresh = Annotated[bool, Option("--refresh", help="First look what is really there.")]
Diff = Annotated[bool, Option("--diff", help="Show every property that changes, and all of what is made.")]
ExpectNoChanges = Annotated[bool, Option("--expect-no-changes", help="Fail (exit code 1) if anything changes.")]
NoCheck = Annotated[bool, Option("--no-check", help="Do not ask the cloud first whether the stack can be created.")]
Send = Annotated[
    Path | None, Option("--send", metavar="FILE", help="Write what was seen, without your names, for a bug report.")
]
Message = Annotated[str, Option("--message", "-m", metavar="TEXT", help="Why, for the stack's history.")]
Unprotect = Annotated[
    bool, Option("--unprotect", help="Destroy protected data too, once the cluster's name was typed.")
]
Confirm = Annotated[str, Option(metavar="NAME", help="With --unprotect, and without a terminal: the cluster's name.")]

COMMAND_FOLLOWS = "\0"
"""Marks the `--` of `ssh STACK -- COMMAND`, which leaves MACHINE out. No real argument can hold it."""


def read_time(option: str, text: str, read: Callable[[str], str]) -> str:
    """Return `read(text)`, where `read` is a function of cluster.observe.moment. Raises CliError, with the name of the
    option: the text is no point in time."""
    try:
        return read(text)
    except ValueError as error:
        raise CliError(f"{option}: {error}") from None


def _complete_from_outputs(read: Callable[[Mapping[str, Any]], Iterable[str]]) -> Callable[[Context, str], list[str]]:
    """Return a completion of the names that `read` finds in the outputs of the command line's stack."""

    def complete(context: Context, incomplete: str) -> list[str]:
        # While the value of an option is completed, arguments are not parsed yet.
        stack = context.params.get("stack") or next(iter(context.args), "")
        # Completion connects to no machine. Outputs that can't be read complete nothing: a shell shows no errors there.
        with suppress(Exception):
            from cli.stack import outputs

            values = outputs.read(stack, show_secrets=False)
            prefix = f"{values.get('cluster')}-"
            names = [name.removeprefix(prefix) for name in read(values)]
            return [name for name in names if name.startswith(incomplete)]
        return []

    return complete


def _partitions(values: Mapping[str, Any]) -> list[str]:
    from cluster.load import parse_output

    return list(parse_output(values["config"]).partitions)


machines = _complete_from_outputs(lambda values: list(values.get("targets") or {}))
partitions = _complete_from_outputs(_partitions)
_nodes = _complete_from_outputs(
    lambda values: [name for name, row in (values.get("targets") or {}).items() if "node" in (row.get("roles") or ())]
)


def node_names(help_text: str) -> Any:  # noqa: ANN401 - typer's own
    """Return the argument for names of nodes."""
    return Argument(metavar="[NODES...]", help=help_text, autocompletion=_nodes)
