"""The two streams: results on standard output, everything else on standard error.

Colour and motion only on a terminal (NO_COLOR and TERM=dumb are respected); in a pipe, lines are never wrapped.
All that the commands print goes through here, since much of it was written by others: what a terminal would act on is
escaped (cluster.printable), in a pipe as well, since its end may be one.
"""

import sys
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import zip_longest
from textwrap import wrap

from rich.console import Console

from cli.errors import CliError
from cluster.printable import document, one_line, printable

_GAP = "  "
_NARROWEST = 4
"""Characters that a column keeps in a table that is too wide for the terminal."""


@cache
def stdout() -> Console:
    return _console(stderr=False)


@cache
def stderr() -> Console:
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def line(text: str = "", *, style: str = "") -> None:
    stdout().print(printable(text), style=style or None, soft_wrap=True)


def lines(texts: Iterable[str]) -> None:
    """Print lines unwrapped and without colours, as those of a log; each stays one line."""
    sys.stdout.write("".join(f"{printable(text)}\n" for text in texts))
    sys.stdout.flush()


def json(value: object) -> None:
    print(document(value))


def table(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> None:
    """Print rows in columns, the first as a heading; columns whose number is in `right` are aligned there.

    On a terminal that is too narrow the cells of the widest columns are folded.
    """
    shown = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*shown, strict=True)]
    room = stdout().width - len(_GAP) * (len(widths) - 1) if stdout().is_terminal else sum(widths)
    while sum(widths) > room and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    for number, row in enumerate(shown):
        folded = [wrap(cell, width) if len(cell) > width else [cell] for cell, width in zip(row, widths, strict=True)]
        for cells in zip_longest(*folded, fillvalue=""):
            parts = [
                cell.rjust(width) if column in right else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
            ]
            line(_GAP.join(parts).rstrip(), style="bold" if number == 0 else "")


def note(text: str) -> None:
    """Print a message on standard error."""
    print(printable(text), file=sys.stderr, flush=True)


def error(text: str) -> None:
    """Print an error on standard error, its first line in red."""
    text = printable(text)
    if not sys.stderr.isatty():
        print(f"error: {text}", file=sys.stderr, flush=True)
        return
    first, newline, rest = text.partition("\n")
    stderr().print(f"error: {first}", style="bold red", soft_wrap=True)
    if newline:
        stderr().print(rest, soft_wrap=True)


def interactive() -> bool:
    """Return whether a person can be asked: both ends are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> bool:
    """Ask for yes or no on standard error; anything but yes, and the end of input, is no."""
    return answer(f"{question} [y/N] ").lower() in ("y", "yes")


def confirm(question: str, *, doing: str, no: str = "nothing was changed.", hint: str = "--yes.") -> None:
    """Ask for a yes. Raises CliError: the answer is no, which `no` explains; or there is no terminal, where `doing` is
    what needs the option in `hint`."""
    if not interactive():
        raise CliError(f"{doing} without a terminal needs {hint}")
    if not ask(question):
        raise CliError(no)


def answer(question: str) -> str:
    """Ask on standard error for a line; the end of input is an empty one."""
    sys.stderr.write(printable(question))
    sys.stderr.flush()
    text = ""
    try:
        text = sys.stdin.readline()
    finally:
        # At the end of input and after Ctrl-C, what comes next would stand beside the question.
        if not text.endswith("\n"):
            note("")
    return text.strip()
