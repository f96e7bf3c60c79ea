"""The end of the console of a machine of a rehearsal that SSH did not reach: there is no other way to look inside."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from cli import console
from components.local.host.machines.machine import running
from components.local.host.machines.nspawn import console_tail
from components.local.host.paths import MachinePaths, host_root
from engine.events import StepFailed

_UNREACHED = re.compile(r"^(\S+): (?:no SSH connection|interrupted while waiting for an SSH connection)")
"""How the message of engine.providers.ssh begins when an address is given up."""


def show(failures: Sequence[StepFailed], stack: str) -> None:
    """Print on standard error the end of the console of every machine that could not be reached."""
    found = (_UNREACHED.match(failure.message) for failure in failures)
    for address in sorted({match[1] for match in found if match}):
        for paths in _machines(host_root(), address):
            console.note("\n".join(describe(paths, stack)))


def describe(paths: MachinePaths, stack: str) -> list[str]:
    """Whether the machine runs, the last lines of its console, and how to restart it."""
    process = running(paths)
    lines = [f"  {line}" for line in console_tail(paths.console)]
    what = "runs, but does not answer SSH" if process else "does not run"
    last = "the last lines of its console:" if lines else f"its console is empty ({paths.console})"
    again = f"Restart it, with its disk as it is: ./hpc up {stack}"
    if process:
        # The first process inside: all others of the machine end with it.
        again = f"End it and restart it, with its disk as it is: kill -KILL {process.children()[0]}; ./hpc up {stack}"
    return [f"Machine {paths.folder.name} {what}; {last}", *lines, again]


def _machines(root: Path, address: str) -> Iterator[MachinePaths]:
    for record in root.glob("stacks/*/machines/*/machine.json"):
        try:
            if json.loads(record.read_text(encoding="utf-8")).get("address") == address:
                yield MachinePaths(record.parent)
        except (OSError, ValueError):
            continue
