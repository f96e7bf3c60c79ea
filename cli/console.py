"""The two streams: results on standard output, everything else on standard error.

Colour and motion only on a terminal (NO_COLOR and TERM=dumb are respected); in a pipe, lines are never wrapped.
"""

import sys
from collections.abc import Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@cache
def stdout() -> "Console":
    """Rich's console on standard output."""
    return _console(stderr=False)


@cache
def stderr() -> "Console":
    """Rich's console on standard error."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def line(text: str = "", *, style: str = "") -> None:
    """Print one line of result."""
    stdout().print(text, style=style or None, soft_wrap=True)


def table(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> None:
    """Print rows in columns, the first as a heading; columns whose number is in `right` are aligned there."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line("  ".join(cells).rstrip(), style="bold" if number == 0 else "")


def note(text: str) -> None:
    """Say on standard error what is going on."""
    print(text, file=sys.stderr, flush=True)


def error(text: str) -> None:
    """Say on standard error what went wrong, its first line in red."""
    if not sys.stderr.isatty():
        print(f"error: {text}", file=sys.stderr, flush=True)
        return
    first, newline, rest = text.partition("\n")
    stderr().print(f"error: {first}", style="bold red", soft_wrap=True)
    if newline:
        stderr().print(rest, soft_wrap=True)


def interactive() -> bool:
    """Whether a person can be asked: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> bool:
    """Ask for yes or no on standard error; anything but yes, and the end of input, is no."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
