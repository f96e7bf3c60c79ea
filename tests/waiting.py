"""How tests wait: for a condition, with one deadline."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 300.0
"""Seconds until a test gives up what it waits for: many times what it takes on a machine that does much else."""


_BUSY = 4
"""Processes that want each processor from which on all waits are longer."""


def patience() -> float:
    """Seconds until a wait for a condition is given up: PATIENCE, and longer on a host that is very busy."""
    return PATIENCE * max(1.0, os.getloadavg()[1] / (_BUSY * (os.cpu_count() or 1)))


def wait_for(condition: Callable[[], object], what: str = "it", *, pace: float = 0.01) -> None:
    """Wait until something is so."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < patience(), f"{what}: not within {patience():.0f} s"
        time.sleep(pace)


class Meeting:
    """Holds those who come until so many are there at once: a proof that they do not come one after another."""

    def __init__(self, count: int) -> None:
        self._count, self._here = count, 0
        self._lock, self._complete = threading.Lock(), threading.Event()

    def join(self) -> None:
        with self._lock:
            self._here += 1
            if self._here >= self._count:
                self._complete.set()
        self._complete.wait(patience())
        with self._lock:
            self._here -= 1


def lives(pid: int) -> bool:
    """Return whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
