"""Running a process. Its output is returned, and passed on line by line."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from engine.errors import EngineError
from engine.values import Props

# Each is in a session of its own: a Ctrl-C in the terminal must not reach a step that is to be finished.
_running: set[subprocess.Popen[bytes]] = set()


@dataclass(frozen=True)
class ProcessOutcome:
    """The exit status and the output of a process."""

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
) -> ProcessOutcome:
    """Run a process to its end, and call `on_line("stdout" or "stderr", line)` for each line that it
    writes. Raises EngineError after `timeout` seconds, or if it does not start."""
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
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        _kill(process)
        raise EngineError(f"not done after {timeout:g} s, the limit that its customTimeouts set: killed") from None
    finally:
        _running.discard(process)
    for thread in threads:
        # A background child of the command may keep its output open.
        thread.join(2)
    return ProcessOutcome(status, "".join(texts["stdout"]), "".join(texts["stderr"]))


def kill_all() -> None:
    """Kill all processes that still run, as after a second Ctrl-C."""
    for process in list(_running):
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def line_logger(props: Props, log: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """Return the `on_line` that logs the lines of the streams that a command's `logging` names."""
    logging = props.get("logging") or "stdoutAndStderr"
    streams = {"stdout": ("stdout",), "stderr": ("stderr",), "none": ()}.get(logging, ("stdout", "stderr"))
    return lambda stream, line: log("info", line) if stream in streams else None


def previous_output(props: Props, outputs: Props) -> dict[str, str]:
    """Return the output of the resource's previous command, as environment of the next (addPreviousOutputInEnv)."""
    if props.get("addPreviousOutputInEnv") is False:
        return {}
    names = {"PULUMI_COMMAND_STDOUT": "stdout", "PULUMI_COMMAND_STDERR": "stderr"}
    return {name: outputs[key] for name, key in names.items() if outputs.get(key)}


def results(outcome: ProcessOutcome, command: str) -> Props:
    """Return the outputs of a command that succeeded. Raises EngineError with all that it printed if it failed."""
    if outcome.status:
        shortened = command if len(command) <= 200 else command[:200] + "..."
        output = (outcome.stderr + outcome.stdout).strip() or "it printed nothing"
        raise EngineError(f"exit status {outcome.status}: running {shortened!r}:\n{output}")
    # One newline is removed, as by pulumi-command.
    return {name: getattr(outcome, name).removesuffix("\n") for name in ("stdout", "stderr")}
