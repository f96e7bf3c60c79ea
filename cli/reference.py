"""docs/reference/commands.md: every command with its arguments, its summary and an example, from the help texts."""

import re
from collections.abc import Iterator

from typer import Context
from typer.core import TyperGroup

from cli.app import LazyCommand, app

_BRACKETS = re.compile(r"^(?:\{(.*)\}|\[\[(.*)\]\])(?:\.\.\.)?$")
_HEAD = """\
# Commands

<!-- Written by `./hpc schema --write` from the commands' help: change the docstrings, not this page. -->

`--help` of a command has all its options and more examples. Most commands have `--json`.
"""


def commands_page() -> str:
    """The page, as Markdown: a table for each section of `./hpc --help`."""
    tables: dict[str, list[str]] = {}
    for panel, words, command in _commands(app, ()):
        summary = " ".join((command.help or "").partition("\n\n")[0].split())
        example = f"`{command.examples[0]}`" if command.examples else ""
        cells = [f"`./hpc {' '.join([*words, *_usage(command)])}`", summary, example]
        tables.setdefault(panel, []).append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    head = "| command | what it does | example |\n|---|---|---|\n"
    return _HEAD + "".join(f"\n## {panel}\n\n{head}" + "\n".join(rows) + "\n" for panel, rows in tables.items())


def _commands(
    group: TyperGroup, words: tuple[str, ...], panel: str = ""
) -> Iterator[tuple[str, list[str], LazyCommand]]:
    context = Context(group, info_name="./hpc")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        section = str(getattr(command, "rich_help_panel", None) or panel)
        if isinstance(command, TyperGroup):
            yield from _commands(command, (*words, name), section)
        elif isinstance(command, LazyCommand) and not command.hidden:
            yield section, [*words, name], command


def _usage(command: LazyCommand) -> list[str]:
    """Arguments as the usage line of the command's help has them, without its double brackets."""
    loaded = command.load()
    pieces = loaded.collect_usage_pieces(Context(loaded))
    return [_BRACKETS.sub(lambda found: found[1] or f"[{found[2]}]", piece) for piece in pieces if piece != "[OPTIONS]"]
