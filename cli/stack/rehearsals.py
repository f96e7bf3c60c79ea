"""The stack files of rehearsals, which `./hpc rehearse` writes under `$HPC_HOME/rehearsals`."""

import re
from pathlib import Path

from cli.stack import state_dir

_ENDING = "-rehearsal"


def folder() -> Path:
    """Where they are."""
    return state_dir.directory() / "rehearsals"


def name(stack: str) -> str:
    """The name of a stack's rehearsal, which all commands take as a stack's."""
    return f"{stack}{_ENDING}"


def file(rehearsal: str) -> Path:
    """The stack file of a rehearsal, whether it is there or not."""
    return folder() / f"Pulumi.{rehearsal}.yaml"


def of(path: Path) -> str | None:
    """The stack whose rehearsal a stack file describes; None for one that is no rehearsal's."""
    found = re.fullmatch(rf"Pulumi\.(.+){_ENDING}\.yaml", path.name)
    return found[1] if found and path.parent == folder() else None


def remove(rehearsal: str) -> None:
    """Remove a stack file, and the folder with the last one."""
    file(rehearsal).unlink(missing_ok=True)
    if folder().is_dir() and not any(folder().iterdir()):
        folder().rmdir()
