"""The input of the last successful run of each phase, and whether a later run failed.

The stack's state has only the input of a command's last success. If an edit fails and is reverted, the program's input
equals that again: Pulumi has no step to do, but the machine has half of the edit. The records here say which phases
must run again, and with which input.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from system.host import read_json, write

FOLDER = Path("/etc/hpc/phases")
PHASES = ("prologs", "rxdm", "configure", "accounting")
"""The phases that make the machine match their input, in the order of an `up`."""


@contextmanager
def attempt(phase: str, payload: Any) -> Generator[None]:  # noqa: ANN401 - any JSON value
    """Record that `phase` has begun and, if nothing is raised inside, that it succeeded with this input."""
    if phase not in PHASES:
        yield
        return
    write(_begun(phase), "", mode=0o600, quiet=True)
    yield
    # Only root may read it: the scripts of a stack may contain secrets.
    write(_input(phase), json.dumps(payload), mode=0o600, quiet=True)
    _begun(phase).unlink(missing_ok=True)


def unfinished() -> list[str]:
    """Return the phases that have begun and not succeeded since."""
    return [phase for phase in PHASES if _begun(phase).exists()]


def last_input(phase: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the input of the last success of `phase`; None if there was none or it can't be read."""
    return read_json(_input(phase), None)


def forget(phase: str) -> None:
    """Remove the records of `phase`: its work was undone, or it has never succeeded."""
    for path in (_input(phase), _begun(phase)):
        path.unlink(missing_ok=True)


def _input(phase: str) -> Path:
    return FOLDER / f"{phase}.json"


def _begun(phase: str) -> Path:
    return FOLDER / f"{phase}.begun"
