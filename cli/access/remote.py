"""Runs commands on the targets of a cluster, by the driver of each target's method."""

import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from cli import console
from cli.access.ssh import CONNECT_SECONDS, IAP, Ssh
from cli.access.target import UNREACHED, Argv, Driver, Target
from cli.errors import CliError
from cli.interrupts import child, left_to_child, unwound

LOOK_UP_SECONDS = 20
"""Time limit of each question to a cluster that a target's address is asked of."""

_SSH = Ssh()


@cache
def _kubectl() -> Driver:
    from cli.access.kubectl import Kubectl  # only clusters in Kubernetes need it

    return Kubectl()


DRIVERS: Mapping[str, Callable[[], Driver]] = {"ssh": lambda: _SSH, IAP: lambda: _SSH, "kubectl": _kubectl}
"""Drivers by method, the same each time. A platform with another way to reach its targets adds its method here."""


def driver_of(target: Target) -> Driver:
    """The driver of a target's method. Raises CliError: this version has none, as when a newer one brought the stack
    up."""
    if target.method not in DRIVERS:
        raise CliError(
            f"{target.name} is reached by {target.method!r}, and this version can use {', '.join(DRIVERS)} only. "
            "Use the version that brought the stack up."
        )
    return DRIVERS[target.method]()


_CHUNK = 65536


def _relayed(command: Sequence[str], driver: Driver, own: re.Pattern[str], last: re.Pattern[str]) -> int:
    """Run the command; the exit code that the driver makes of its own and of its last lines on standard error.

    Lines that begin as `own` says are held back until others come or the command ends, since they may be the program's
    own, and so is what `last` finds at the end of a line: the driver returns what is to be printed of them. Nothing is
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
        status, left = driver.outcome(code, "".join(held))
        if status != UNREACHED or code == UNREACHED:
            _print(left.encode(errors="surrogateescape"))
    return status


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


_AT_ONCE = 128
"""Targets that are asked side by side: each costs a process."""
_HERE_AT_ONCE = 4 * (os.cpu_count() or 1)
"""Machines of this host that are: they share its processors, and with all of them at work none is done in time."""
_HELD_SECONDS = 2.0
"""Seconds for which one that does not answer keeps another from being asked."""
_TIMED_OUT = "Connection timed out"
"""ssh's message if its ConnectTimeout is over before a connection, or the server's banner; it has none after that."""


def on_terminal() -> bool:
    """Return whether both ends are a terminal: with one of them a pipe, a remote terminal would garble what goes
    through."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def run(target: Target, admin_key: str, user: str, command: Sequence[str]) -> int:
    """Run the command on this process's own streams; its exit code, or UNREACHED. Raises CliError: the program that
    reaches the target is not here."""
    driver = driver_of(target)
    with unwound(), _sessions([target], admin_key, CONNECT_SECONDS) as argv:
        there = argv(target, user, command, terminal=on_terminal())
        if driver.own and driver.last:
            code = _relayed(there, driver, driver.own, driver.last)
        else:
            with left_to_child(), child(there) as process:
                code = process.wait()
    if code == UNREACHED and (reason := _why_unreached(target, admin_key)):
        console.note(reason)
    return code


def log_in(target: Target, admin_key: str, user: str, key: Path, command: Sequence[str]) -> int:
    """Run a command like `run`, over ssh as the user with a private key of the user's own. Raises CliError: also if the
    target has no SSH server."""
    driver = driver_of(target)
    if not isinstance(driver, Ssh):
        raise CliError(f"{target.name} is reached by {target.method}, not by ssh, so no key lets anybody in there.")
    with unwound(), driver.logged_in(target, admin_key, user, key) as argv:
        there = argv(target, user, command, terminal=on_terminal())
        with left_to_child(), child(there) as process:
            return process.wait()


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """A command that ended on a target, or did not get there."""

    code: int
    """The command's exit code; UNREACHED also where the target did not answer."""
    out: str
    err: str
    late: bool = False
    """True if something answers there, but the command did not end in time: nothing is known of the target."""
    asked: float = 0.0
    answered: float = 0.0
    """The time by this machine's clock, in seconds since the epoch."""

    @property
    def reached(self) -> bool:
        """True if the target let us in."""
        return self.code != UNREACHED


def capture(target: Target, admin_key: str, line: str, *, stdin: str = "", seconds: float = 30) -> CommandResult:
    """Run one line as root, and return what it prints; bounded, also where the target stops answering half-way. Raises
    CliError: the program that reaches the target is not here."""
    return gather([target], admin_key, line, stdin=stdin, seconds=seconds)[target.name]


def output(target: Target, admin_key: str, line: str, *, stdin: str = "", seconds: float = 30) -> str:
    """Run one line as root, and return its standard output. Raises CliError: it failed, or the target does not
    answer."""
    done = capture(target, admin_key, line, stdin=stdin, seconds=seconds)
    if done.code:
        error = (done.err or done.out).strip() or f"exit code {done.code}"
        raise CliError(f"{target.name}: {error if done.reached else f'does not answer: {error}'}")
    return done.out


def gather(
    targets: Iterable[Target],
    admin_key: str,
    line: str,
    *,
    stdin: str = "",
    seconds: float = 30,
    connect_seconds: float = CONNECT_SECONDS,
) -> dict[str, CommandResult]:
    """Run one line as root on all of these targets in parallel. Returns the results by the target's name.

    `connect_seconds` is the part of `seconds` in which a target must accept the connection. Raises CliError: a program
    that reaches them is not here.
    """
    every = list(targets)
    room = threading.Semaphore(_HERE_AT_ONCE if all(target.here for target in every) else _AT_ONCE)
    with connect(every, admin_key, seconds=min(connect_seconds, seconds)) as argv:

        def ask(target: Target) -> CommandResult:
            driver = driver_of(target)
            allowed = seconds + driver.extra_seconds(target)
            with ExitStack() as held:
                held.enter_context(room)
                asked = time.time()
                try:
                    done = _capture(argv(target, line), stdin, allowed, after_a_while=held.close)
                except subprocess.TimeoutExpired as expired:
                    # Whatever it printed came from there.
                    return _late(target, allowed, let_in=bool(expired.stdout))
            if done.returncode == UNREACHED and target.direct and _TIMED_OUT in done.stderr and not done.stdout:
                return _late(target, allowed, let_in=False)
            code, err = driver.outcome(done.returncode, done.stderr)
            if code == UNREACHED and not target.direct:
                err = driver.explain(target, err)
            return CommandResult(code=code, out=done.stdout, err=err, asked=asked, answered=time.time())

        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            return dict(zip((target.name for target in every), pool.map(ask, every), strict=True))


def _capture(
    command: Sequence[str], stdin: str, seconds: float, *, after_a_while: Callable[[], None]
) -> subprocess.CompletedProcess[str]:
    """Run a command like subprocess.run; call `after_a_while` if it takes longer than _HELD_SECONDS."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace") as process:
        try:
            try:
                out, err = process.communicate(stdin, timeout=min(_HELD_SECONDS, seconds))
            except subprocess.TimeoutExpired:
                after_a_while()
                out, err = process.communicate(timeout=max(0.0, seconds - _HELD_SECONDS))
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@contextmanager
def connect(
    targets: Iterable[Target], admin_key: str, *, seconds: float = CONNECT_SECONDS
) -> Generator[Callable[[Target, str], list[str]]]:
    """The command that runs a line as root on one of these targets, while their connections are there.

    A target that does not answer within `seconds`, and what its method needs, is given up. Raises CliError: a program
    that reaches them is not here."""
    with unwound(), _sessions(targets, admin_key, seconds) as argv:
        yield lambda target, line: argv(target, "root", [line])


@contextmanager
def _sessions(targets: Iterable[Target], admin_key: str, seconds: float) -> Generator[Argv]:
    """Yield a function that returns the argv for targets of any method, with one session of each driver."""
    by_driver: dict[Driver, list[Target]] = {}
    for target in targets:
        by_driver.setdefault(driver_of(target), []).append(target)
    with ExitStack() as stack:
        sessions = {
            driver: stack.enter_context(driver.connect(theirs, admin_key, seconds=seconds))
            for driver, theirs in by_driver.items()
        }

        def argv(target: Target, user: str, command: Sequence[str], *, terminal: bool = False) -> list[str]:
            return sessions[driver_of(target)](target, user, command, terminal=terminal)

        yield argv


def prometheus(target: Target, admin_key: str, port: int) -> AbstractContextManager[tuple[Path, str]]:
    """Return what the driver has for its queries."""
    return driver_of(target).prometheus(target, admin_key, port)


def _late(target: Target, seconds: float, *, let_in: bool) -> CommandResult:
    """A command that did not end in time, with how far it came."""
    # The kernel accepts connections for sshd, however busy the machine is. Behind a jump host only ssh can connect.
    late = let_in or (target.direct and _answers(target.address, target.port))
    why = f"no answer within {seconds:.0f} s"
    if late:
        why += ", although SSH let us in" if let_in else f" from SSH, although port {target.port} accepts connections"
    return CommandResult(code=UNREACHED, out="", err=why, late=late)


def _why_unreached(target: Target, admin_key: str) -> str:
    """Return why a target does not answer, and what to do; empty if it does: the exit code is the command's own."""
    if target.direct:
        if _answers(target.address, target.port):
            return ""
        return f"{target.name} ({target.address}) does not answer. If it is not running, `./hpc up` starts it."
    done = capture(target, admin_key, "true", seconds=CONNECT_SECONDS)
    return f"{target.name} does not answer: {done.err}" if not done.reached else ""


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=3).close()
    except OSError:
        return False
    return True


_ROUND_SECONDS = 0.25
"""Lines that come within one round are put in the order of their times."""
_END_SECONDS = 3.0
"""Time for a command on a machine to end by itself, once its input has ended."""

Show = Callable[[Mapping[str, list[str]]], None]


def follow(
    targets: Iterable[Target], admin_key: str, line: Callable[[Target], str], *, show: Show, note: Show
) -> dict[str, int]:
    """Run each target's line as root, until all have ended; they have to end when their standard input does.

    Returns their exit codes, by the target's name.

    `show` gets what came on standard output since the last time, by the target's name, `note` the same of standard
    error. Whatever ends this, Ctrl-C among it, ends every line first.
    """
    every = list(targets)
    with connect(every, admin_key) as argv:
        commands = {target.name: argv(target, line(target)) for target in every}
        return follow_commands(commands, show=show, note=note)


def follow_commands(
    commands: Mapping[str, list[str]], *, show: Show, note: Show, ends_with_input: bool = True
) -> dict[str, int]:
    """Follow programs of this machine, by their names. Those that do not end with their input get SIGTERM."""
    lines: queue.SimpleQueue[tuple[str, bool, str]] = queue.SimpleQueue()

    def read(name: str, stream: IO[str] | None, *, error: bool) -> None:
        for text in stream or ():
            lines.put((name, error, text.rstrip("\r\n")))

    running: dict[str, subprocess.Popen[str]] = {}
    readers: list[threading.Thread] = []
    try:
        for name, command in commands.items():
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                # A terminal's Ctrl-C is for this process, which then ends them in order.
                start_new_session=True,
            )
            running[name] = process
            for stream, error in ((process.stdout, False), (process.stderr, True)):
                reader = threading.Thread(target=read, args=(name, stream), kwargs={"error": error}, daemon=True)
                reader.start()
                readers.append(reader)
        while any(reader.is_alive() for reader in readers):
            time.sleep(_ROUND_SECONDS)
            _report(lines, show, note)
        _report(lines, show, note)
    finally:
        _end(running.values(), ends_with_input=ends_with_input)
    return {name: process.returncode for name, process in running.items()}


def _report(lines: "queue.SimpleQueue[tuple[str, bool, str]]", show: Show, note: Show) -> None:
    texts: dict[bool, dict[str, list[str]]] = {False: {}, True: {}}
    while not lines.empty():
        name, error, text = lines.get()
        texts[error].setdefault(name, []).append(text)
    for error, report in ((False, show), (True, note)):
        if texts[error]:
            report(texts[error])


def _end(processes: Iterable["subprocess.Popen[str]"], *, ends_with_input: bool) -> None:
    """End the lines on the targets by ending their input; kill what does not end by itself."""
    every = list(processes)
    for process in every:
        if process.stdin:
            process.stdin.close()
        if not ends_with_input:
            process.terminate()
    end = time.monotonic() + _END_SECONDS
    for process in every:
        try:
            process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
