"""`./hpc install-pulumi`, `completion`, `version` and `schema`."""

import os
import platform
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Context, Option
from typer.core import TyperGroup

from cli import console
from cli.app import LazyCommand, app
from cli.errors import CliError
from cli.options import COMPLETE
from cli.stack import project, pulumi_program, stackfile, state_dir


def install_pulumi() -> None:
    """Install the Pulumi CLI that fits this project, for this user.

    Uses the SDK's own installer; the version is the one of the SDK in requirements.txt. `./hpc` finds it where it is.
    Standard output has the line that puts `pulumi` on PATH, for `eval "$(./hpc install-pulumi)"` or your ~/.profile.
    """
    folder = Path(pulumi_program.install_pulumi()).parent
    console.lines([f'export PATH={shlex.quote(str(folder))}:"$PATH"'])
    if str(folder) not in os.environ.get("PATH", "").split(os.pathsep):
        console.note('Not on PATH. In this shell: eval "$(./hpc install-pulumi)"')


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Argument(metavar="bash|zsh|fish", help="Your shell.")],
) -> None:
    """Print what makes the Tab key complete commands, stacks, machines, nodes and partitions in a shell.

    Add the line to ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish, with the path of this `./hpc`.
    """
    from typer._completion_shared import get_completion_script

    script = get_completion_script(prog_name="hpc", complete_var=COMPLETE, shell=shell)
    # zsh and fish call the name that they complete, which is not on PATH.
    program = shlex.quote(str(project.ROOT / "hpc"))
    console.lines([re.sub(r"(complete_zsh|commandline -cp\)) hpc\b", lambda match: f"{match[1]} {program}", script)])


def program_version() -> str:
    text = (project.ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "(.+)"', text, re.MULTILINE)
    return version[1] if version else "unknown"


def version() -> None:
    """Print the versions of this program, Python, the Pulumi SDK and the Pulumi CLI, and where the state is."""
    pulumi = pulumi_program.installed_pulumi()
    console.line(f"hpc {program_version()}")
    console.line(f"Python {platform.python_version()}, Pulumi SDK {pulumi_program.pulumi_version()}")
    console.line(f"Pulumi CLI: {pulumi or 'none, the embedded engine is used'}")
    console.line("state: {} ({})".format(*state_dir.located()))


SHIPPED = ("classic", "a3mega-managed", "a3mega", "a3ultra", "a4", "nebius")
"""The stacks of this repository on clouds."""
_SCHEMA, _COSTS = "docs/schema/cluster.schema.json", "docs/reference/costs.md"
_BRACKETS = re.compile(r"^(?:\{(.*)\}|\[\[(.*)\]\])(?:\.\.\.)?$")
_HEAD = """\
# Commands

<!-- Written by `./hpc schema --write` from the commands' help: change the docstrings, not this page. -->

`--help` of a command has all its options and more examples. Most commands have `--json`: one document, of an error too.
"""


def schema(
    *,
    check: Annotated[
        bool, Option("--check", help=f"Fail if {_SCHEMA} and the generated pages are not current.")
    ] = False,
    write: Annotated[bool, Option("--write", help=f"Bring {_SCHEMA} and the generated pages up to date.")] = False,
) -> None:
    """Print the JSON Schema of a stack file, which editors complete and check from."""
    # The models of the stack file are slow to import.
    from cluster.stack_file_reference import reference, schema_text

    text = schema_text()
    if not (check or write):
        print(text, end="")
        return
    pages = {f"docs/reference/stack-file/{name}": page for name, page in reference().items()}
    if (costs := project.ROOT / _COSTS).exists():  # its prose is in the page alone
        pages[_COSTS] = _costs_page(costs.read_text(encoding="utf-8"))
    for name, content in {_SCHEMA: text, "docs/reference/commands.md": _commands_page(), **pages}.items():
        file = project.ROOT / name
        if file.exists() and file.read_text(encoding="utf-8") == content:
            console.note(f"{name} is current")
        elif write:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
            console.note(f"Wrote {name}")
        else:
            raise CliError(
                f"{name} is not what the models and commands say now. Bring it up to date with: ./hpc schema --write"
            )


def _costs_page(text: str) -> str:
    from cli.stack.stack_config import parse  # the models of the stack file are slow to import
    from cluster.cost.page import page

    files = [stackfile.read(project.ROOT, stack) for stack in SHIPPED]
    return page({file.stack: parse(file) for file in files if file.settings is not None}, text)


def _commands_page() -> str:
    """Return a table for each section of `./hpc --help`: every command with its arguments, its summary and an
    example."""
    tables: dict[str, list[str]] = {}
    for panel, words, command in _commands(app, ()):
        summary = " ".join((command.help or "").partition("\n\n")[0].split())
        example = f"`{command.examples[0]}`" if command.examples else ""
        loaded = command.load()
        pieces = loaded.collect_usage_pieces(Context(loaded))
        # The usage line of the command's help has double brackets.
        arguments = [_BRACKETS.sub(lambda match: match[1] or f"[{match[2]}]", piece) for piece in pieces]
        usage = " ".join([*words, *(piece for piece in arguments if piece != "[OPTIONS]")])
        cells = [f"`./hpc {usage}`", summary, example]
        tables.setdefault(panel, []).append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    head = "| command | what it does | example |\n|---|---|---|\n"
    return _HEAD + "".join(f"\n## {panel}\n\n{head}" + "\n".join(rows) + "\n" for panel, rows in tables.items())


def _commands(
    group: TyperGroup, words: tuple[str, ...], panel: str = ""
) -> Iterator[tuple[str, list[str], LazyCommand]]:
    """Yield the section, the words and the command of every command that `--help` lists."""
    context = Context(group, info_name="./hpc")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        section = str(getattr(command, "rich_help_panel", None) or panel)
        if isinstance(command, TyperGroup):
            yield from _commands(command, (*words, name), section)
        elif isinstance(command, LazyCommand) and not command.hidden:
            yield section, [*words, name], command
