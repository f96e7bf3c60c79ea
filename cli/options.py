"""Arguments and options that several commands share, so that they read the same everywhere."""

from enum import Enum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option


class EngineName(str, Enum):
    """Who runs the program."""

    PULUMI = "pulumi"
    EMBEDDED = "embedded"


Stack = Annotated[
    str, Argument(metavar="STACK", help="The stack: `dev` stands for Pulumi.dev.yaml.", show_default=False)
]
Engine = Annotated[
    EngineName | None,
    Option(
        help="Who runs the program: the Pulumi CLI, or the engine built in. Default: the CLI if it is on PATH.",
        envvar="HPC_ENGINE",
        show_default=False,
    ),
]
Json = Annotated[bool, Option("--json", help="Print one JSON document instead of text.")]
Parallel = Annotated[
    int | None,
    Option(
        min=1,
        max=1000,
        metavar="N",
        help="Most resources to work on at once. Default: the engine's.",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    Option(metavar="FILE", help="Settings to use instead of Pulumi.STACK.yaml.", show_default=False),
]
Yes = Annotated[bool, Option("--yes", "-y", help="Go ahead without asking.")]
