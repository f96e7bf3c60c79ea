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
    """SIGTERM or SIGHUP arrived: unwind, so that what is private gets removed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], object], *numbers: signal.Signals) -> Generator[None]:
    """Have a handler for these signals inside the block. In another thread than the main one, which alone can have
    handlers, the main thread's hold."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


@contextmanager
def left_to_child() -> Generator[list[int]]:
    """Leave Ctrl-C to the child, which gets it from the terminal as well; yields the list of signals that came.

    A handler rather than SIG_IGN: an ignored signal would stay ignored in the child.
    """
    came: list[int] = []
    with _handled(lambda number, _frame: came.append(number), signal.SIGINT):
        yield came


@contextmanager
def unwound() -> Generator[None]:
    """Raise Terminated on SIGTERM and SIGHUP, which would end the process without any cleaning up.

    Signals are the main thread's: in another one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Terminated(number)

    with _handled(stop, signal.SIGTERM, signal.SIGHUP):
        try:
            yield
        except Terminated as error:
            raise SystemExit(128 + error.number) from None


@contextmanager
def held() -> Generator[None]:
    """Let SIGTERM and SIGHUP wait for the end of this block, in which something begins that has to be ended."""
    waiting: list[int] = []
    try:
        with _handled(lambda number, _frame: waiting.append(number), signal.SIGTERM, signal.SIGHUP):
            yield
    finally:
        if waiting:
            signal.raise_signal(waiting[0])


@contextmanager
def child(command: Sequence[str], *, stderr: int | None = None) -> Generator["subprocess.Popen[bytes]"]:
    """A child on this process's own streams, or with another standard error. It ends before this block does: it gets
    SIGTERM when we do."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with held():
            process = subprocess.Popen(command, stderr=stderr)
        yield process
    except BaseException:
        if process:
            process.terminate()
        raise
    finally:
        if process:
            process.wait()
