"""install-pulumi, completion, version."""

import platform
import re
import shlex
from enum import Enum
from typing import Annotated

from typer import Argument

from cli import console
from cli.options import COMPLETE
from cli.stack import project, pulumi_program, state_dir


def install_pulumi() -> None:
    """Install the Pulumi CLI that fits this project, for this user.

    Uses the SDK's own installer; the version is the one of the SDK in requirements.txt.
    """
    pulumi_program.install_pulumi()


class Shell(str, Enum):
    """Shells that complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, Argument(metavar="bash|zsh|fish", help="Your shell.", show_default=False)],
) -> None:
    """Print what makes the Tab key complete commands, stacks, machines, nodes and partitions in a shell.

    Add the line to ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish, with the path of this `./hpc`.
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="hpc", complete_var=COMPLETE, shell=shell.value)
    # zsh and fish call the name that they complete, which is not on PATH.
    program = shlex.quote(str(project.ROOT / "hpc"))
    console.lines([re.sub(r"(complete_zsh|commandline -cp\)) hpc\b", lambda found: f"{found[1]} {program}", script)])


def version() -> None:
    """Say which version this is, and of what it is made."""
    found = re.search(r'^version = "(.+)"', (project.ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    pulumi = pulumi_program.installed_pulumi()
    console.line(f"hpc {found[1] if found else 'unknown'}")
    console.line(f"Python {platform.python_version()}, Pulumi SDK {pulumi_program.pulumi_version()}")
    console.line(f"Pulumi CLI: {pulumi or 'none, the embedded engine is used'}")
    console.line("state: {} ({})".format(*state_dir.located()))
