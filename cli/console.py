"""The two streams: results on standard output, everything else on standard error.

Colours and movement are for terminals only (NO_COLOR and TERM=dumb are respected); in a pipe, lines are never wrapped.
Everything that commands print goes through this module. Much of it is text of others, so control sequences are escaped
(cluster.printable), in a pipe as well, since a terminal may be at its end.
"""

import sys
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from itertools import zip_longest
from textwrap import wrap

from rich.console import Console

from cli.errors import CliError
from cluster.printable import document, one_line, printable

documents: list[int] = []
"""Lengths of the JSON documents that this process has printed."""
_GAP = "  "
_NARROWEST = 4
"""Fewest characters of a column in a table that is too wide for the terminal."""


@cache
def stdout() -> Console:
    return Console(highlight=False, markup=False, emoji=False)


@cache
def stderr() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def line(text: str = "", *, style: str = "") -> None:
    stdout().print(printable(text), style=style or None, soft_wrap=True)


def lines(texts: Iterable[str]) -> None:
    """Print lines of a log or a file, unwrapped and without colours; each stays one line."""
    sys.stdout.write("".join(f"{printable(text)}\n" for text in texts))
    sys.stdout.flush()


def json(value: object) -> None:
    """Print a JSON document."""
    text = document(value)
    documents.append(len(text))
    print(text)


def table(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> None:
    """Print rows in columns, the first row as a heading. Columns whose number is in `right` are right-aligned.

    On a terminal that is too narrow the cells of the widest columns are wrapped.
    """
    texts = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*texts, strict=True)]
    room = stdout().width - len(_GAP) * (len(widths) - 1) if stdout().is_terminal else sum(widths)
    longest_words = [
        max(len(word) for cell in cells for word in cell.split() or [""]) for cells in zip(*texts, strict=True)
    ]
    for narrowest in (longest_words, [_NARROWEST] * len(widths)):  # words are broken only if there is no other way
        while sum(widths) > room and (wider := [at for at, least in enumerate(narrowest) if widths[at] > least]):
            widths[max(wider, key=widths.__getitem__)] -= 1
    for number, row in enumerate(texts):
        wrapped = [
            wrap(cell, width, break_on_hyphens=False) if len(cell) > width else [cell]
            for cell, width in zip(row, widths, strict=True)
        ]
        for cells in zip_longest(*wrapped, fillvalue=""):
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
    """Return whether questions can be asked: standard input and standard error are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str) -> bool:
    """Ask for yes or no on standard error. Any other answer, and the end of input, is no."""
    return answer(f"{question} [y/N] ").lower() in ("y", "yes")


def confirm(question: str, *, doing: str, no: str = "nothing was changed.", hint: str = "--yes.") -> None:
    """Ask for confirmation. Raises CliError: the answer is no, and the message is `no`; or there is no terminal, and
    the message is that `doing` needs the option in `hint`."""
    if not interactive():
        raise CliError(f"{doing} without a terminal needs {hint}")
    if not ask(question):
        raise CliError(no)


def answer(question: str) -> str:
    """Ask on standard error for a line; at the end of input it is empty."""
    sys.stderr.write(printable(question))
    sys.stderr.flush()
    text = ""
    try:
        text = sys.stdin.readline()
    finally:
        # At the end of input and after Ctrl-C the cursor is still after the question.
        if not text.endswith("\n"):
            note("")
    return text.strip()
