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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from cli import console
from cli.access.ssh import CONNECT_SECONDS, IAP, Ssh
from cli.access.target import UNREACHED, Argv, Driver, Target
from cli.errors import CliError
from cli.interrupts import exit_on_termination, leave_ctrl_c_to_child, run_child

LOOK_UP_SECONDS = 20
"""Time limit of each request to a cluster for a target's address."""

_SSH = Ssh()


@cache
def _kubectl() -> Driver:
    from cli.access.kubectl import KubectlDriver  # only clusters in Kubernetes need it

    return KubectlDriver()


DRIVERS: Mapping[str, Callable[[], Driver]] = {"ssh": lambda: _SSH, IAP: lambda: _SSH, "kubectl": _kubectl}
"""Drivers by method, the same each time. A platform with another way to reach its targets adds its method here."""


def driver_of(target: Target) -> Driver:
    """Return the driver of a target's method. Raises CliError: this version has none, as when a newer one brought the
    stack up."""
    if target.method not in DRIVERS:
        raise CliError(
            f"{target.name} is reached by {target.method!r}, and this version can use {', '.join(DRIVERS)} only. "
            "Use the version that brought the stack up."
        )
    return DRIVERS[target.method]()


_CHUNK = 65536


def _relay(command: Sequence[str], driver: Driver, own_line: re.Pattern[str], last_line: re.Pattern[str]) -> int:
    """Run the command and relay its standard error. Returns the exit code that the driver makes of the program's own
    exit code and last lines.

    Lines that match `own_line`, and what matches `last_line` at the end of a line, may be the program's own messages.
    They are held back until other lines follow or the command ends; then the driver returns the part of them to print.
    Nothing is printed if the target was not reached: the caller prints the reason.
    """
    with leave_ctrl_c_to_child(), run_child(command, stderr=subprocess.PIPE) as process:
        held: list[str] = []
        assert process.stderr  # noqa: S101 - a pipe
        arguments = (process.stderr.fileno(), held, own_line, last_line)
        reader = threading.Thread(target=_relay_lines, args=arguments, daemon=True)
        reader.start()
        code = process.wait()
        # A process that the command left behind may keep its standard error open; it is not waited for.
        reader.join(1.0)
        status, remaining = driver.outcome(code, "".join(held))
        if status != UNREACHED or code == UNREACHED:
            _print(remaining)
    return status


def _relay_lines(descriptor: int, held: list[str], own_line: re.Pattern[str], last_line: re.Pattern[str]) -> None:
    """Print lines as they arrive. Lines that may be the program's own stay in `held` until another line follows."""
    at_line_start = True
    while data := os.read(descriptor, _CHUNK):
        for line in data.decode(errors="surrogateescape").splitlines(keepends=True):
            last = last_line.search(line)
            if last and (last.start() or not at_line_start):
                # The command's last line had no line break.
                _print("".join([*held, line[: last.start()]]))
                held[:] = [line[last.start() :]]
            # A message may have more lines, which are indented or empty.
            elif (at_line_start and own_line.match(line)) or (held and (not at_line_start or line[0].isspace())):
                held.append(line)
            else:
                _print("".join([*held, line]))
                held.clear()
            at_line_start = line.endswith("\n")


def _print(text: str) -> None:
    # The program would have written to this descriptor, too.
    data = text.encode(errors="surrogateescape")
    while data:
        data = data[os.write(2, data) :]


_PARALLEL = 128
"""Number of targets on which a line runs in parallel: each takes a process."""
_PARALLEL_ON_THIS_HOST = 4 * (os.cpu_count() or 1)
"""The same for machines of this host: they share its processors, and too many at work all miss their deadline."""
_SLOT_SECONDS = 2.0
"""Seconds for which a target that does not answer keeps another one waiting."""
_TIMED_OUT = "Connection timed out"
"""ssh's message if its ConnectTimeout is over before a connection, or the server's banner; it has none after that
(OpenSSH 9.2p1)."""


def on_terminal() -> bool:
    """Return whether standard input and output are both terminals: a remote terminal would garble a pipe's data."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def run(target: Target, admin_key: str, user: str, command: Sequence[str]) -> int:
    """Run the command on this process's own streams. Returns its exit code, or UNREACHED. Raises CliError: the program
    that reaches the target is not here."""
    driver = driver_of(target)
    with exit_on_termination(), _sessions([target], admin_key, CONNECT_SECONDS) as argv:
        remote_command = argv(target, user, command, terminal=on_terminal())
        if driver.own_line and driver.last_line:
            code = _relay(remote_command, driver, driver.own_line, driver.last_line)
        else:
            with leave_ctrl_c_to_child(), run_child(remote_command) as process:
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
    with exit_on_termination(), driver.log_in(target, admin_key, user, key) as argv:
        remote_command = argv(target, user, command, terminal=on_terminal())
        with leave_ctrl_c_to_child(), run_child(remote_command) as process:
            return process.wait()


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """The result of a command on a target, or of the attempt to reach the target."""

    code: int
    """The command's exit code; UNREACHED also where the target did not answer."""
    out: str
    err: str
    late: bool = False
    """True if the target accepts connections, but the command did not end in time."""
    asked: float = 0.0
    answered: float = 0.0
    """The time by this machine's clock, in seconds since the epoch."""

    @property
    def reached(self) -> bool:
        """True if the target accepted the connection."""
        return self.code != UNREACHED


def capture(target: Target, admin_key: str, line: str, *, stdin: str = "", seconds: float = 30) -> CommandResult:
    """Run one line as root within so many seconds, even if the target stops answering, and return its result. Raises
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
    targets = list(targets)
    slots = threading.Semaphore(_PARALLEL_ON_THIS_HOST if all(target.here for target in targets) else _PARALLEL)
    with connect(targets, admin_key, seconds=min(connect_seconds, seconds)) as argv:

        def run_on(target: Target) -> CommandResult:
            driver = driver_of(target)
            allowed = seconds + driver.extra_seconds(target)
            with ExitStack() as slot:
                slot.enter_context(slots)
                asked = time.time()
                try:
                    done = _capture(argv(target, line), stdin, allowed, release_slot=slot.close)
                except subprocess.TimeoutExpired as expired:
                    # Output can only come from the target, so it accepted the connection.
                    return _timed_out(target, allowed, connected=bool(expired.stdout))
            if done.returncode == UNREACHED and target.direct and _TIMED_OUT in done.stderr and not done.stdout:
                return _timed_out(target, allowed, connected=False)
            code, err = driver.outcome(done.returncode, done.stderr)
            if code == UNREACHED and not target.direct:
                err = driver.explain(target, err)
            return CommandResult(code=code, out=done.stdout, err=err, asked=asked, answered=time.time())

        with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
            return dict(zip((target.name for target in targets), pool.map(run_on, targets), strict=True))


def _capture(
    command: Sequence[str], stdin: str, seconds: float, *, release_slot: Callable[[], None]
) -> subprocess.CompletedProcess[str]:
    """Run a command like subprocess.run; call `release_slot` if it takes longer than _SLOT_SECONDS."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace") as process:
        try:
            try:
                out, err = process.communicate(stdin, timeout=min(_SLOT_SECONDS, seconds))
            except subprocess.TimeoutExpired:
                release_slot()
                out, err = process.communicate(timeout=max(0.0, seconds - _SLOT_SECONDS))
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@contextmanager
def connect(
    targets: Iterable[Target], admin_key: str, *, seconds: float = CONNECT_SECONDS
) -> Generator[Callable[[Target, str], list[str]]]:
    """Open connections to these targets. Yields a function that returns the command which runs a line as root on one.

    A target that does not answer within `seconds`, and what its method needs beyond that, is given up. Raises CliError:
    a program that reaches them is not here."""
    with exit_on_termination(), _sessions(targets, admin_key, seconds) as argv:
        yield lambda target, line: argv(target, "root", [line])


@contextmanager
def _sessions(targets: Iterable[Target], admin_key: str, seconds: float) -> Generator[Argv]:
    """Yield a function that returns the argv for targets of any method, with one session of each driver."""
    by_driver: dict[Driver, list[Target]] = {}
    for target in targets:
        by_driver.setdefault(driver_of(target), []).append(target)
    with ExitStack() as stack:
        sessions = {
            driver: stack.enter_context(driver.connect(its_targets, admin_key, seconds=seconds))
            for driver, its_targets in by_driver.items()
        }

        def argv(target: Target, user: str, command: Sequence[str], *, terminal: bool = False) -> list[str]:
            return sessions[driver_of(target)](target, user, command, terminal=terminal)

        yield argv


def _timed_out(target: Target, seconds: float, *, connected: bool) -> CommandResult:
    """Return the result of a command that did not end in time, with whether the target accepts connections."""
    # The kernel accepts connections for sshd, however busy the machine is. Behind a jump host only ssh can connect.
    late = connected or (target.direct and _answers(target.address, target.port))
    why = f"no answer within {seconds:.0f} s"
    if connected:
        why += ", although SSH let us in"
    elif late:
        why += f" from SSH, although port {target.port} accepts connections"
    return CommandResult(code=UNREACHED, out="", err=why, late=late)


def _why_unreached(target: Target, admin_key: str) -> str:
    """Return why a target does not answer, and what to do. Empty if it answers: the exit code is the command's own."""
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
"""Lines that arrive within one round are passed on together, for the caller to order by time."""
_END_SECONDS = 3.0
"""Time for a command on a machine to end by itself once its input has ended."""

Show = Callable[[Mapping[str, list[str]]], None]


def follow(
    targets: Iterable[Target], admin_key: str, line: Callable[[Target], str], *, show: Show, note: Show
) -> dict[str, int]:
    """Run each target's line as root until all have ended. A line must end when its standard input does.

    Returns the exit codes by the target's name. `show` gets new lines of standard output by the target's name, `note`
    those of standard error. If this is interrupted, by Ctrl-C for example, it ends every line first.
    """
    targets = list(targets)
    with connect(targets, admin_key) as argv:
        commands = {target.name: argv(target, line(target)) for target in targets}
        return follow_commands(commands, show=show, note=note)


def follow_commands(
    commands: Mapping[str, list[str]], *, show: Show, note: Show, ends_with_input: bool = True
) -> dict[str, int]:
    """Run programs on this machine, by name, as `follow` does. Without `ends_with_input` SIGTERM ends them."""
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
                # A terminal's Ctrl-C goes to this process only, which then ends them.
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
    """End the processes by closing their input; kill those that do not end by themselves."""
    processes = list(processes)
    for process in processes:
        if process.stdin:
            process.stdin.close()
        if not ends_with_input:
            process.terminate()
    deadline = time.monotonic() + _END_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
