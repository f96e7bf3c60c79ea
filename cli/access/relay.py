"""Runs a program on this process's own streams, and reads its standard error as it passes."""

import os
import re
import subprocess
import threading
from collections.abc import Callable, Sequence

from cli.access.ssh import UNREACHED
from cli.interrupts import child, left_to_child

_CHUNK = 65536


def relayed(
    command: Sequence[str],
    outcome: Callable[[int, str], tuple[int, str]],
    *,
    own: re.Pattern[str],
    last: re.Pattern[str],
) -> int:
    """Run the command; the exit code that `outcome` makes of its own and of its last lines on standard error.

    Lines that begin as `own` says are held back until others come or the command ends, since they may be the program's
    own, and so is what `last` finds at the end of a line: `outcome` returns what is to be printed of them. Nothing is
    where the command was not reached: the caller explains.
    """
    with left_to_child(), child(command, stderr=subprocess.PIPE) as process:
        held: list[str] = []
        assert process.stderr  # noqa: S101 - a pipe
        reader = threading.Thread(target=_pass_on, args=(process.stderr.fileno(), held, own, last), daemon=True)
        reader.start()
        code = process.wait()
        # A process that outlives it may have its standard error; it is not waited for.
        reader.join(1.0)
        told, left = outcome(code, "".join(held))
        if told != UNREACHED or code == UNREACHED:
            _print(left.encode(errors="surrogateescape"))
    return told


def _pass_on(descriptor: int, held: list[str], own: re.Pattern[str], last: re.Pattern[str]) -> None:
    """Print what comes, but for lines that may be the program's own and that nothing follows."""
    begun = True
    while data := os.read(descriptor, _CHUNK):
        for line in data.decode(errors="surrogateescape").splitlines(keepends=True):
            ended = last.search(line)
            if ended and (ended.start() or not begun):
                # The command's last line had no break.
                _print("".join([*held, line[: ended.start()]]).encode(errors="surrogateescape"))
                held[:] = [line[ended.start() :]]
            # A message may have more lines, which are indented or empty.
            elif (begun and own.match(line)) or (held and (not begun or line[0].isspace())):
                held.append(line)
            else:
                _print("".join([*held, line]).encode(errors="surrogateescape"))
                held.clear()
            begun = line.endswith("\n")


def _print(text: bytes) -> None:
    # To the descriptor itself, where the program would have written.
    while text:
        text = text[os.write(2, text) :]
