"""The last successful input of each phase, and whether the phase ended: so that a failed edit can be taken back.

The stack's state keeps a command's input of its last success. Where an edit fails and is taken back, both
are the same again and no step is left to do, but the machine has half of the edit. Here is what it has to do again.
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
    """Note that `phase` has begun; and, where nothing is raised inside, that it ended well, and its input."""
    if phase not in PHASES:
        yield
        return
    write(_begun(phase), "", mode=0o600, quiet=True)
    yield
    # Root's alone: a stack's own scripts may hold anything.
    write(_input(phase), json.dumps(payload), mode=0o600, quiet=True)
    _begun(phase).unlink(missing_ok=True)


def unfinished() -> list[str]:
    """The phases that have begun since they last ended well."""
    return [phase for phase in PHASES if _begun(phase).exists()]


def last(phase: str) -> Any:  # noqa: ANN401 - any JSON value
    """The input of the last success of `phase`; None without any, or if it can't be read any more."""
    return read_json(_input(phase), None)


def forget(phase: str) -> None:
    """The work of `phase` was undone, or there is nothing to go back to."""
    for path in (_input(phase), _begun(phase)):
        path.unlink(missing_ok=True)


def _input(phase: str) -> Path:
    return FOLDER / f"{phase}.json"


def _begun(phase: str) -> Path:
    return FOLDER / f"{phase}.begun"
