"""This node as slurmctld has it, and the few things that are asked of slurmctld for it."""

from __future__ import annotations

import subprocess
from typing import NamedTuple

from slurm.scontrol import rows, signed
from system.host import SetupError

SECONDS = 10


class Seen(NamedTuple):
    """States and reason of a node."""

    states: set[str]
    reason: str


def look(name: str) -> Seen:
    """Ask slurmctld. Raises SetupError: it does not answer, or knows no such node."""
    row = next(iter(rows(_scontrol("--oneliner", "show", "node", name))), {})
    if row.get("NodeName") != name:
        raise SetupError(f"slurmctld does not know {name}")
    states = row.get("State", "UNKNOWN").replace("*", "+NOT_RESPONDING")
    return Seen(set(states.split("+")), signed(row.get("Reason", ""))[0])


def apply(name: str, action: str, reason: str) -> None:
    """Drain a node, change its reason, or resume it. Raises SetupError: slurmctld refused."""
    words = {
        "drain": ["State=DRAIN", f"Reason={reason}"],
        "reason": [f"Reason={reason}"],
        "resume": ["State=RESUME"],
    }[action]
    _scontrol("update", f"NodeName={name}", *words)


def _scontrol(*words: str) -> str:
    try:
        done = subprocess.run(
            ["scontrol", *words], capture_output=True, text=True, timeout=SECONDS, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise SetupError(f"slurmctld did not answer in {SECONDS} s") from None
    except OSError as error:
        raise SetupError(f"scontrol can't be run: {error.strerror}") from None
    if done.returncode:
        raise SetupError((done.stderr or done.stdout).strip()[:300] or "scontrol failed")
    return done.stdout
