"""State files as they lie on disk: the Pulumi CLI's checkpoints, their copies, and how they are written."""

import json
import os
import time
from pathlib import Path

from engine.errors import StateDamaged
from engine.state import journal
from engine.values import Value

UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError)
"""What reading a file raises that is no state."""


def deployment(text: str) -> dict[str, Value]:
    """The deployment in the text of a state file. Raises one of UNREADABLE."""
    row = json.loads(text)["checkpoint"].get("latest") or {}
    for resource in row.get("resources") or []:
        if not (resource["urn"] and resource["type"]):
            raise ValueError("a resource without a URN or type")
    return row


def read(file: Path) -> dict[str, Value]:
    """The deployment in a state file, as it stands there and in its journal; empty if there is no file.
    Raises StateDamaged."""
    return text_and_deployment(file)[1]


def text_and_deployment(file: Path) -> tuple[str, dict[str, Value]]:
    """The same, with the text of the file itself; "" if there is none. Raises StateDamaged."""
    try:
        text = file.read_text(encoding="utf-8")
        found = deployment(text)
        return text, journal.replayed(file, text, found) or found
    except FileNotFoundError:
        return "", {}
    except UNREADABLE as error:
        raise StateDamaged(file, f"{type(error).__name__}: {error}", newest_backup(file)) from None


def newest_backup(file: Path) -> Path | None:
    """The newest state before `file` that can be read: its .bak, or the outcome of a run; None if there is none."""
    for candidate in (file.with_name(file.name + ".bak"), *_outcomes(file)):
        try:
            deployment(candidate.read_text(encoding="utf-8"))
        except (*UNREADABLE, OSError):
            continue
        return candidate
    return None


def newest_outcome(file: Path) -> Path | None:
    """The state after the newest run of those that are kept."""
    return next(iter(_outcomes(file)), None)


def _outcomes(file: Path) -> list[Path]:
    project, stack = file.parent.name, file.stem
    return sorted((file.parents[2] / "backups" / project / stack).glob(f"{stack}.*.json"), reverse=True)


def share(file: Path, other: Path) -> None:
    """Let a copy of a file stand at another place, without its room on the disk where that can be."""
    try:
        os.link(file, other)
    except OSError:
        write_file(other, file.read_text(encoding="utf-8"))


def set_aside(file: Path) -> Path | None:
    """Move a state file that can't be read out of the way, so that it does not become the .bak; where it is then."""
    try:
        read(file)
    except StateDamaged:
        return file.replace(file.with_name(f"{file.name}.damaged-{time.time_ns()}"))
    return None


def text_of(name: str, row: dict[str, Value]) -> str:
    """The text of the state file of a stack, named as organization/PROJECT/STACK."""
    checkpoint = {"version": 3, "checkpoint": {"stack": name, "latest": row}}
    return json.dumps(checkpoint, separators=(",", ":"), ensure_ascii=False)


def write_state(file: Path, name: str, row: dict[str, Value]) -> None:
    """Put a deployment in place of a stack's, whatever its journal says, keeping the one before as `.bak`."""
    write_text(file, text_of(name, row))
    journal.set_aside(file)


def write_text(file: Path, text: str) -> None:
    """Write a state file, keeping the one before as `.bak`."""
    if file.exists():
        backup = file.with_name(file.name + ".bak")
        backup.unlink(missing_ok=True)
        os.link(file, backup)
    write_file(file, text, sync=True)


def write_file(file: Path, text: str, *, sync: bool = False) -> None:
    """Write a whole file or nothing. It is readable by its owner only: even encrypted, states are private."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            out.write(text)
            if sync:
                out.flush()
                os.fsync(out.fileno())
        temporary.replace(file)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
