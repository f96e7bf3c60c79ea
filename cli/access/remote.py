"""Runs a command on a machine over the system's ssh, with a pinned host key and without a trace on disk."""

import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from cli import console
from cli.access.ssh import CONNECT_SECONDS, UNREACHED, slack, ways, words
from cli.cluster.cluster import Machine
from cli.interrupts import child, left_to_child, unwound

__all__ = ["UNREACHED", "Done", "capture", "connected", "gather", "on_terminal", "remote_line", "run"]
_AT_ONCE = 128
"""Machines that are asked side by side: each costs a process of ssh."""
_LINE = re.compile(r"[\s|&;<>()$`*?]")
"""What makes one word a line for a shell."""
_RECORDED = (
    'last=$(squeue --noheader --states=all --user="$(id -un)" --format=%A --sort=-i | head -n 1); '
    "for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do "
    '[ -z "$last" ] || sacct --noheader --allocations --format=jobid | grep -qw "$last" && break; sleep 0.3; done; '
)
"""Waits, 6 s at most, until the user's newest job is in the database.

slurmctld hands new jobs to slurmdbd in rounds of five seconds: a `sacct` right after a job would not show it.
"""


def remote_line(user: str, command: Sequence[str], *, terminal: bool) -> str:
    """What root's shell on the machine is given, so that `user` gets exactly these words.

    One single word that could not be a program's name, such as "squeue | wc -l", is a line for the user's shell, as
    ssh(1) takes it. Otherwise two shells read it, root's and the user's login shell, so the words are quoted twice.
    Without a command it is the login shell itself; for root, the command alone, since ssh has logged root in already.
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


def on_terminal() -> bool:
    """Whether both ends are a terminal: with one of them a pipe, a remote terminal would garble what goes through."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def run(machine: Machine, admin_key: str, user: str, command: Sequence[str]) -> int:
    """Run the command on this process's own streams; its exit code, or ssh's own 255.

    Raises:
        CliError: there is no ssh here.
    """
    terminal = on_terminal()
    with unwound(), ways([machine], admin_key) as argv:
        line = remote_line(user, command, terminal=terminal)
        there = ["-t" if terminal else "-T", f"root@{machine.address}", *([line] if line else [])]
        with left_to_child(), child(argv(machine, there)) as process:
            code = process.wait()
    if code == UNREACHED and (why := _deaf(machine, admin_key)):
        console.note(why)
    return code


@dataclass(frozen=True, kw_only=True)
class Done:
    """A command that ended on a machine, or did not get there."""

    code: int
    """Its exit code; UNREACHED also where the machine did not answer."""
    out: str
    err: str
    asked: float = 0.0
    answered: float = 0.0
    """By this machine's clock, in seconds since the epoch."""

    @property
    def reached(self) -> bool:
        """Whether the machine let us in."""
        return self.code != UNREACHED


def capture(machine: Machine, admin_key: str, line: str, *, stdin: str = "", seconds: float = 30) -> Done:
    """Run one line as root, and return what it prints; bounded, also where the machine stops answering half-way.

    Raises:
        CliError: there is no ssh here.
    """
    return gather([machine], admin_key, line, stdin=stdin, seconds=seconds)[machine.name]


def gather(
    machines: Iterable[Machine], admin_key: str, line: str, *, stdin: str = "", seconds: float = 30
) -> dict[str, Done]:
    """Run one line as root on all of these machines, side by side; what each printed, by its name.

    Raises:
        CliError: there is no ssh here.
    """
    every = list(machines)
    with connected(every, admin_key, seconds=seconds) as argv:

        def one(machine: Machine) -> Done:
            asked, allowed = time.time(), seconds + slack(machine)
            try:
                done = subprocess.run(
                    argv(machine, line), input=stdin, capture_output=True, text=True, errors="replace",
                    timeout=allowed, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return Done(code=UNREACHED, out="", err=f"no answer within {allowed:.0f} s")
            unreached = done.returncode == UNREACHED and (machine.iap or machine.jump)
            err = words(machine, done.stderr) if unreached else done.stderr
            return Done(code=done.returncode, out=done.stdout, err=err, asked=asked, answered=time.time())

        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            return dict(zip((machine.name for machine in every), pool.map(one, every), strict=True))


@contextmanager
def connected(
    machines: Iterable[Machine], admin_key: str, *, seconds: float = CONNECT_SECONDS
) -> Generator[Callable[[Machine, str], list[str]]]:
    """The command that runs a line as root on one of these machines, while its keys are there.

    It gives a machine up that does not answer within `seconds`, 15 at most, and what the way there takes.

    Raises:
        CliError: there is no ssh here.
    """
    with unwound(), ways(machines, admin_key, seconds=seconds) as argv:
        yield lambda machine, line: argv(machine, ["-T", f"root@{machine.address}", line])


def _deaf(machine: Machine, admin_key: str) -> str:
    """Why a machine does not answer, and what to do; empty if it does, so that the exit code was the command's own."""
    if not machine.jump and not machine.iap:
        if _answers(machine.address):
            return ""
        return f"{machine.name} ({machine.address}) does not answer. If it is not running, `./hpc up` starts it."
    done = capture(machine, admin_key, "true", seconds=CONNECT_SECONDS)
    return f"{machine.name} does not answer: {done.err}" if done.code == UNREACHED else ""


def _answers(address: str) -> bool:
    """Whether something listens where sshd should."""
    try:
        socket.create_connection((address, 22), timeout=3).close()
    except OSError:
        return False
    return True
