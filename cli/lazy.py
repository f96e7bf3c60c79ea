"""Commands whose modules are imported when they run: `./hpc --help` and `./hpc run` do not wait for those of `up`."""

import ast
import functools
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from cli import error_handler

_FOLDER = Path(__file__).parent / "commands"


class LazyCommand(TyperCommand):
    """A function of a module in cli/commands, whose docstring is the command's help."""

    def __init__(self, name: str, target: str, panel: str | None, *examples: str, hidden: bool = False) -> None:
        """`target` is MODULE:FUNCTION, `panel` the section of the help that lists it."""
        super().__init__(name, rich_help_panel=panel, hidden=hidden)
        self._module, _, self._function = target.partition(":")
        self.examples = examples

    def read_help(self) -> None:
        """Read the help from the module's source: importing all modules takes a second."""
        self.help = _docstrings(self._module).get(self._function)

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:  # noqa: ANN401
        """Import the module, and parse the command line with the parameters of its function."""
        return self.load().make_context(info_name, args, *more, **extra)

    def load(self) -> TyperCommand:
        """Import the module, and make a command of its function."""
        with error_handler.shown():
            function = getattr(import_module(f"cli.commands.{self._module}"), self._function)
        epilog = "\n\n".join(["Examples:", *self.examples]) if self.examples else None
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.command(self.name, epilog=epilog)(_with_error_handler(function))
        return cast(TyperCommand, typer.main.get_command(app))


class LazyGroup(TyperGroup):
    """A group of lazy commands, and of such groups."""

    def __init__(self, name: str, summary: str, *commands: LazyCommand | TyperGroup, **more: Any) -> None:  # noqa: ANN401
        super().__init__(name=name, help=summary, commands=commands, no_args_is_help=True, **more)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - typer's own click
        """Names of the commands, for the help, which is read now."""
        for command in self.commands.values():
            if isinstance(command, LazyCommand):
                command.read_help()
        return super().list_commands(ctx)


@functools.cache
def _docstrings(module: str) -> dict[str, str | None]:
    """The docstring of each function of a module in cli/commands."""
    tree = ast.parse((_FOLDER / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    return {node.name: ast.get_docstring(node) for node in tree.body if isinstance(node, ast.FunctionDef)}


def _with_error_handler(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - whatever the command takes
        with error_handler.shown():
            function(*args, **kwargs)

    return command
