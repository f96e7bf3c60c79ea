"""Running a process, its output kept and shown line by line."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from engine.errors import EngineError
from engine.values import Props

# Each in a session of its own: a Ctrl-C in the terminal must not reach what is to be finished.
_running: set[subprocess.Popen[bytes]] = set()
_LOOK = 0.2
"""Seconds between two looks whether the user asked to stop."""


@dataclass(frozen=True)
class Outcome:
    """The end of a process: its exit status and what it wrote."""

    status: int
    stdout: str
    stderr: str


def run(
    argv: list[str],
    *,
    stdin: str | bytes = "",
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    on_line: Callable[[str, str], None] = lambda _stream, _line: None,
    stopped: Callable[[], bool] | None = None,
) -> Outcome:
    """Run a process to its end, calling `on_line("stdout" or "stderr", line)` as it speaks.
    It gets a SIGTERM, once, when `stopped()` turns true. Raises EngineError after `timeout` seconds, or if it can't be
    started."""
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise EngineError(f"{argv[0]}: {error.strerror}: {error.filename}") from None
    _running.add(process)
    texts: dict[str, list[str]] = {"stdout": [], "stderr": []}

    def pump(name: str, stream: IO[bytes]) -> None:
        for raw in stream:
            line = raw.decode(errors="replace")
            texts[name].append(line)
            on_line(name, line.rstrip("\n"))

    def feed() -> None:
        # A command need not read its input.
        with contextlib.suppress(BrokenPipeError), cast("IO[bytes]", process.stdin) as pipe:
            pipe.write(stdin.encode() if isinstance(stdin, str) else stdin)

    jobs = [(pump, ("stdout", process.stdout)), (pump, ("stderr", process.stderr)), (feed, ())]
    threads = [threading.Thread(target=job, args=args, daemon=True) for job, args in jobs]
    for thread in threads:
        thread.start()
    try:
        status = process.wait(timeout) if stopped is None else _wait(process, timeout, stopped)
    except subprocess.TimeoutExpired:
        _kill(process)
        raise EngineError(f"not done after {timeout:g} s, the limit that its customTimeouts set: killed") from None
    finally:
        _running.discard(process)
    for thread in threads:
        # What a background child of the command keeps open must not keep us.
        thread.join(2)
    return Outcome(status, "".join(texts["stdout"]), "".join(texts["stderr"]))


def _wait(process: subprocess.Popen[bytes], timeout: float | None, stopped: Callable[[], bool]) -> int:
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
        try:
            return process.wait(max(left, 0))
        except subprocess.TimeoutExpired:
            if deadline is not None and time.monotonic() >= deadline:
                raise
        if stopped():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            return process.wait(None if deadline is None else max(deadline - time.monotonic(), 0))


def kill_all() -> None:
    """End all that still runs, at a second Ctrl-C."""
    for process in list(_running):
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wanted_streams(props: Props) -> tuple[str, ...]:
    """The streams whose lines are shown, by a command's `logging`."""
    logging = props.get("logging") or "stdoutAndStderr"
    return {"stdout": ("stdout",), "stderr": ("stderr",), "none": ()}.get(logging, ("stdout", "stderr"))


def previous_output(props: Props, outputs: Props) -> dict[str, str]:
    """Return what the command before printed, for the environment of the next (addPreviousOutputInEnv)."""
    if props.get("addPreviousOutputInEnv") is False:
        return {}
    names = {"PULUMI_COMMAND_STDOUT": "stdout", "PULUMI_COMMAND_STDERR": "stderr"}
    return {name: outputs[key] for name, key in names.items() if outputs.get(key)}


def results(outcome: Outcome, command: str) -> Props:
    """The outputs of a command that went well. Raises EngineError with all it printed if it did not."""
    if outcome.status:
        shown = command if len(command) <= 200 else command[:200] + "..."
        said = (outcome.stderr + outcome.stdout).strip() or "it printed nothing"
        raise EngineError(f"exit status {outcome.status}: running {shown!r}:\n{said}")
    # One newline is taken off, as pulumi-command does.
    return {name: getattr(outcome, name).removesuffix("\n") for name in ("stdout", "stderr")}
