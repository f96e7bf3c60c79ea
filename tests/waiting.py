"""How tests wait: for a condition, with one deadline."""

import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 300.0
"""Seconds until a test gives up what it waits for: many times what it takes on a machine that does much else."""


def wait_for(condition: Callable[[], object], what: str = "it", *, pace: float = 0.01) -> None:
    """Wait until something is so."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit, f"{what}: not within {PATIENCE:.0f} s"
        time.sleep(pace)


def lives(pid: int) -> bool:
    """Return whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
