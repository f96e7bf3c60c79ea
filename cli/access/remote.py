"""Runs commands on the targets of a cluster, by the driver of each target's method."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli import console
from cli.access.drivers import Argv, Driver, Indirect, driver_of
from cli.access.relay import relayed
from cli.access.ssh import CONNECT_SECONDS, UNREACHED, Ssh
from cli.cluster.target import Target
from cli.errors import CliError
from cli.interrupts import child, left_to_child, unwound

__all__ = ["UNREACHED", "Done", "capture", "connected", "gather", "log_in", "on_terminal", "run"]
_AT_ONCE = 128
"""Targets that are asked side by side: each costs a process."""
_TIMED_OUT = "Connection timed out"
"""What ssh prints if its ConnectTimeout is over before a connection, or the server's banner; it has none after that."""


def on_terminal() -> bool:
    """Whether both ends are a terminal: with one of them a pipe, a remote terminal would garble what goes through."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def run(target: Target, admin_key: str, user: str, command: Sequence[str]) -> int:
    """Run the command on this process's own streams; its exit code, or UNREACHED. Raises CliError: the program that
    reaches the target is not here."""
    driver = driver_of(target)
    with unwound(), _sessions([target], admin_key, CONNECT_SECONDS) as argv:
        there = argv(target, user, command, terminal=on_terminal())
        if isinstance(driver, Indirect):
            code = relayed(there, driver.outcome, own=driver.own, last=driver.last)
        else:
            with left_to_child(), child(there) as process:
                code = process.wait()
    if code == UNREACHED and (reason := _why_unreached(target, admin_key)):
        console.note(reason)
    return code


def log_in(target: Target, admin_key: str, user: str, key: Path, command: Sequence[str]) -> int:
    """As `run`, over ssh as the user with a private key of the user's own. Raises CliError: also if the target has no
    SSH server."""
    driver = driver_of(target)
    if not isinstance(driver, Ssh):
        raise CliError(f"{target.name} is reached by {target.method}, not by ssh, so no key lets anybody in there.")
    with unwound(), driver.logged_in(target, admin_key, user, key) as argv:
        there = argv(target, user, command, terminal=on_terminal())
        with left_to_child(), child(there) as process:
            return process.wait()


@dataclass(frozen=True, kw_only=True)
class Done:
    """A command that ended on a target, or did not get there."""

    code: int
    """Its exit code; UNREACHED also where the target did not answer."""
    out: str
    err: str
    late: bool = False
    """Whether something answers there, but the command did not end in time: nothing is known of the target."""
    asked: float = 0.0
    answered: float = 0.0
    """By this machine's clock, in seconds since the epoch."""

    @property
    def reached(self) -> bool:
        """Whether the target let us in."""
        return self.code != UNREACHED


def capture(target: Target, admin_key: str, line: str, *, stdin: str = "", seconds: float = 30) -> Done:
    """Run one line as root, and return what it prints; bounded, also where the target stops answering half-way. Raises
    CliError: the program that reaches the target is not here."""
    return gather([target], admin_key, line, stdin=stdin, seconds=seconds)[target.name]


def gather(
    targets: Iterable[Target],
    admin_key: str,
    line: str,
    *,
    stdin: str = "",
    seconds: float = 30,
    connect: float = CONNECT_SECONDS,
) -> dict[str, Done]:
    """Run one line as root on all of these targets, side by side; what each printed, by its name.

    A target has `connect` of the `seconds` to let us in. Raises CliError: a program that reaches them is not here.
    """
    every = list(targets)
    with connected(every, admin_key, seconds=min(connect, seconds)) as argv:

        def one(target: Target) -> Done:
            driver = driver_of(target)
            asked, allowed = time.time(), seconds + driver.extra_seconds(target)
            try:
                done = subprocess.run(
                    argv(target, line), input=stdin, capture_output=True, text=True, errors="replace",
                    timeout=allowed, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired as expired:
                # Whatever it printed came from there.
                return _late(target, allowed, let_in=bool(expired.stdout))
            code, err = done.returncode, done.stderr
            if code == UNREACHED and target.direct and _TIMED_OUT in err and not done.stdout:
                return _late(target, allowed, let_in=False)
            if isinstance(driver, Indirect):
                code, err = driver.outcome(code, err)
            if code == UNREACHED and not target.direct:
                err = driver.explain(target, err)
            return Done(code=code, out=done.stdout, err=err, asked=asked, answered=time.time())

        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            return dict(zip((target.name for target in every), pool.map(one, every), strict=True))


@contextmanager
def connected(
    targets: Iterable[Target], admin_key: str, *, seconds: float = CONNECT_SECONDS
) -> Generator[Callable[[Target, str], list[str]]]:
    """The command that runs a line as root on one of these targets, while their connections are there.

    A target that does not answer within `seconds`, and what its method needs, is given up. Raises CliError: a program
    that reaches them is not here."""
    with unwound(), _sessions(targets, admin_key, seconds) as argv:
        yield lambda target, line: argv(target, "root", [line])


@contextmanager
def _sessions(targets: Iterable[Target], admin_key: str, seconds: float) -> Generator[Argv]:
    """What gives the argv for targets of any method: one session of each driver."""
    by_driver: dict[Driver, list[Target]] = {}
    for target in targets:
        by_driver.setdefault(driver_of(target), []).append(target)
    with ExitStack() as stack:
        sessions = {
            driver: stack.enter_context(driver.connected(theirs, admin_key, seconds=seconds))
            for driver, theirs in by_driver.items()
        }

        def argv(target: Target, user: str, command: Sequence[str], *, terminal: bool = False) -> list[str]:
            return sessions[driver_of(target)](target, user, command, terminal=terminal)

        yield argv


def _late(target: Target, seconds: float, *, let_in: bool) -> Done:
    """A command that did not end in time, with how far it came."""
    # The kernel accepts connections for sshd, however busy the machine is. Behind a jump host only ssh can connect.
    late = let_in or (target.direct and _answers(target.address, target.port))
    why = f"no answer within {seconds:.0f} s"
    if late:
        why += ", although SSH let us in" if let_in else f" from SSH, although port {target.port} accepts connections"
    return Done(code=UNREACHED, out="", err=why, late=late)


def _why_unreached(target: Target, admin_key: str) -> str:
    """Why a target does not answer, and what to do; empty if it does, so that the exit code was the command's own."""
    if target.direct:
        if _answers(target.address, target.port):
            return ""
        return f"{target.name} ({target.address}) does not answer. If it is not running, `./hpc up` starts it."
    done = capture(target, admin_key, "true", seconds=CONNECT_SECONDS)
    return f"{target.name} does not answer: {done.err}" if not done.reached else ""


def _answers(address: str, port: int) -> bool:
    """Whether something listens where sshd should."""
    try:
        socket.create_connection((address, port), timeout=3).close()
    except OSError:
        return False
    return True
