"""Ctrl-C and termination while another program has the terminal."""

import signal
import subprocess
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT
"""The exit code of a command that was ended by Ctrl-C."""


class Terminated(BaseException):
    """SIGTERM or SIGHUP arrived. An exception, so that private files are removed on the way out."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], object], *numbers: signal.Signals) -> Generator[None]:
    """Set a handler for these signals inside the block. One that is ignored, as SIGHUP under nohup, stays so. Only the
    main thread can do so: in another thread this does nothing, and the main thread's handlers stay."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = tuple(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


@contextmanager
def leave_ctrl_c_to_child() -> Generator[list[int]]:
    """Leave Ctrl-C to the child, which receives it from the terminal as well. Yields the list of received signals.

    A handler rather than SIG_IGN: the child would inherit that.
    """
    received: list[int] = []
    with _handled(lambda number, _frame: received.append(number), signal.SIGINT):
        yield received


@contextmanager
def exit_on_termination() -> Generator[None]:
    """Raise Terminated on SIGTERM and SIGHUP, which would otherwise end the process without any cleaning up."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Terminated(number)

    with _handled(stop, signal.SIGTERM, signal.SIGHUP):
        try:
            yield
        except Terminated as error:
            raise SystemExit(128 + error.number) from None


@contextmanager
def delay_termination() -> Generator[None]:
    """Delay SIGTERM and SIGHUP until the end of this block, which starts something that has to be ended."""
    received: list[int] = []
    try:
        with _handled(lambda number, _frame: received.append(number), signal.SIGTERM, signal.SIGHUP):
            yield
    finally:
        if received:
            signal.raise_signal(received[0])


@contextmanager
def run_child(command: Sequence[str], *, stderr: int | None = None) -> Generator["subprocess.Popen[bytes]"]:
    """Run a child with this process's own streams, or with another standard error. The child ends before the block: if
    this process is ended, it gets SIGTERM."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with delay_termination():
            process = subprocess.Popen(command, stderr=stderr)
        yield process
    except BaseException:
        if process:
            process.terminate()
        raise
    finally:
        if process:
            process.wait()
