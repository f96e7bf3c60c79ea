"""Reads what many targets print while they print it, and leaves nothing running when it stops."""

import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import IO

from cli.access import remote
from cli.cluster.target import Target

_ROUND_SECONDS = 0.25
"""Lines that come within one round are put in the order of their times."""
_END_SECONDS = 3.0
"""For a command on a machine to end by itself, once its input has ended."""

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
    with remote.connected(every, admin_key) as argv:
        commands = {target.name: argv(target, line(target)) for target in every}
        return follow_commands(commands, show=show, note=note)


def follow_commands(
    commands: Mapping[str, list[str]], *, show: Show, note: Show, ends_with_input: bool = True
) -> dict[str, int]:
    """As `follow`, for programs of this machine, by their names. Those that do not end with their input get SIGTERM."""
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
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                # A terminal's Ctrl-C is for this process, which then ends them in order.
                start_new_session=True,
            )  # fmt: skip
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
