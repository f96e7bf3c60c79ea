"""What the commands of `./hpc user` share."""

from typing import Annotated

from typer import Argument, Option

Name = Annotated[str, Argument(metavar="NAME", help="The user's login name.", show_default=False)]
Apply = Annotated[bool, Option("--apply/--no-apply", help="Whether `up` is run after the edit.", show_default=False)]
