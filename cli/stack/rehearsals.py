"""The stack files of rehearsals, which `./hpc rehearse` writes under `$HPC_HOME/rehearsals`."""

import json
import os
import re
import shutil
from importlib import import_module
from pathlib import Path
from types import ModuleType

from cli.errors import CliError
from cli.stack import state_dir

_ENDING = "-rehearsal"
_LONGEST = 100
_NAME = re.compile(rf"(?!\.+$)[A-Za-z0-9._-]{{1,{_LONGEST}}}")


def folder() -> Path:
    return state_dir.directory() / "rehearsals"


def name(stack: str) -> str:
    """The name of a stack's rehearsal, which all commands take as a stack's."""
    return f"{stack}{_ENDING}"


def checked(stack: str) -> str:
    """A stack's name, before it is part of a path. Raises CliError: it is none."""
    if not _NAME.fullmatch(stack):
        shown = stack if len(stack) <= _LONGEST else f"{stack[:_LONGEST]}..."
        raise CliError(f"{shown!r} is no stack name: 1 to {_LONGEST} letters, digits, '.', '_' and '-' are allowed.")
    return stack


def file(rehearsal: str) -> Path:
    """The stack file of a rehearsal, whether it is there or not."""
    return folder() / f"Pulumi.{checked(rehearsal)}.yaml"


def own_folder(rehearsal: str) -> Path:
    """Return what belongs to a rehearsal besides its stack file and its state, if anything does."""
    return folder() / checked(rehearsal)


def own(rehearsal: str) -> ModuleType | None:
    """The module that started what is in the folder, and removes it; None if there is nothing."""
    try:
        return import_module((own_folder(rehearsal) / "module").read_text().strip())
    except FileNotFoundError:
        return None


def programs(rehearsal: str) -> dict[str, Path]:
    """The programs for a rehearsal's own Kubernetes, by name; none for every other stack, for which a cluster would be
    a real one. Processes that this one starts find the same kubectl."""
    try:
        found = {
            name: Path(path) for name, path in json.loads((own_folder(rehearsal) / "tools.json").read_text()).items()
        }
    except FileNotFoundError:
        return {}
    if shutil.which("kubectl") != str(found["kubectl"]):
        os.environ["PATH"] = f"{found['kubectl'].parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return found


def of(path: Path) -> str | None:
    """The stack whose rehearsal a stack file describes; None for one that is no rehearsal's."""
    found = re.fullmatch(rf"Pulumi\.(.+){_ENDING}\.yaml", path.name)
    return found[1] if found and path.parent == folder() else None


def remove(rehearsal: str) -> None:
    """Remove a stack file, and the folder with the last one."""
    file(rehearsal).unlink(missing_ok=True)
    if folder().is_dir() and not any(folder().iterdir()):
        folder().rmdir()
