"""The stack files of rehearsals, which `./hpc rehearse` writes under `$HPC_HOME/rehearsals`."""

import re
from pathlib import Path

from cli.errors import CliError
from cli.stack import state_dir

_ENDING = "-rehearsal"
_LONGEST = 100
_NAME = re.compile(rf"(?!\.+$)[A-Za-z0-9._-]{{1,{_LONGEST}}}")


def folder() -> Path:
    return state_dir.directory() / "rehearsals"


def name(stack: str) -> str:
    """Return the name of a stack's rehearsal, which commands take like the name of a stack."""
    return f"{stack}{_ENDING}"


def checked(stack: str) -> str:
    """Return a stack's name, which may then be part of a path. Raises CliError: it is not a valid name."""
    if not _NAME.fullmatch(stack):
        shown = stack if len(stack) <= _LONGEST else f"{stack[:_LONGEST]}..."
        raise CliError(f"{shown!r} is no stack name: 1 to {_LONGEST} letters, digits, '.', '_' and '-' are allowed.")
    return stack


def file(rehearsal: str) -> Path:
    """Return the path of a rehearsal's stack file, which may not exist."""
    return folder() / f"Pulumi.{checked(rehearsal)}.yaml"


def of(path: Path) -> str | None:
    """Return the stack that a rehearsal's stack file belongs to; None for another stack file."""
    match = re.fullmatch(rf"Pulumi\.(.+){_ENDING}\.yaml", path.name)
    return match[1] if match and path.parent == folder() else None


def remove(rehearsal: str) -> None:
    """Remove a rehearsal's stack file, and with the last one their folder."""
    file(rehearsal).unlink(missing_ok=True)
    if folder().is_dir() and not any(folder().iterdir()):
        folder().rmdir()
