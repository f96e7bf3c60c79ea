"""The line that root's shell on a target is given, so that a user runs exactly these words there."""

import re
import shlex
from collections.abc import Sequence

_LINE = re.compile(r"[\s|&;<>()$`*?]")
"""What makes one word a line for a shell."""
_RECORDED = (
    'last=$(squeue --noheader --states=all --user="$(id -un)" --format=%A --sort=-i | head -n 1); '
    "for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "
    '[ -z "$last" ] || sacct --noheader --allocations --format=jobid | grep -qw "$last" && break; sleep 0.3; done; '
)
"""Waits, 6 s at most, until the user's newest job is in the database.

slurmctld sends new jobs to slurmdbd in rounds of five seconds: a `sacct` right after a job would not show it.
"""


def shell_line(user: str, command: Sequence[str], *, terminal: bool) -> str:
    """The line for root's shell.

    One single word that could not be a program's name, such as "squeue | wc -l", is a line for the user's shell, as
    ssh(1) takes it. Otherwise two shells read it, root's and the user's login shell, so the words are quoted twice.
    Without a command it is the login shell itself; for root it is then empty, since ssh has logged root in already.
    """
    words = command[0] if len(command) == 1 and _LINE.search(command[0]) else shlex.join(command)
    if command and command[0].split(maxsplit=1)[:1] == ["sacct"]:
        words = _RECORDED + words
    if user == "root":
        return words
    if not command:
        return f"exec runuser -l {shlex.quote(user)}"
    # `-c` starts a session of its own, which a terminal's Ctrl-C and job control do not reach.
    option = "--session-command" if terminal else "-c"
    return f"exec runuser -l {shlex.quote(user)} {option} {shlex.quote(words)}"
