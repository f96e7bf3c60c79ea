"""The CLI's own error, and which exceptions of the other parts are meant for the user."""

import errno
import sys

# By the module that has them. The modules are not imported for this: one that nobody imported has raised nothing.
_EXPECTED = {
    "engine.errors": "EngineError",
    "cluster.findings": "ConfigError",
    "components.local.host.errors": "HostError",
}


_DISK = {
    errno.ENOSPC: "Free some space there (df -h, df -i)",
    errno.EDQUOT: "Free some of your quota there",
    errno.EROFS: "Make it writable",
}


class CliError(Exception):
    """Something the user can put right; the text says where, what was given, what is allowed and what to do."""


def expected() -> tuple[type[BaseException], ...]:
    """The exception types that are shown as their text."""
    loaded = ((sys.modules.get(module), name) for module, name in _EXPECTED.items())
    return (CliError, *(kind for module, name in loaded if isinstance(kind := getattr(module, name, None), type)))


def on_disk(error: BaseException) -> str:
    """What is wrong with a disk that can't be written, and what to do; empty for any other error."""
    todo = _DISK.get(error.errno or 0) if isinstance(error, OSError) else None
    if not isinstance(error, OSError) or todo is None:
        return ""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror}. {todo}, and repeat the command: it goes on from what was written."


def words(error: BaseException) -> str:
    """An expected error's text, with the commands here that help where the engine, which has none, knows no more."""
    hint = ""
    if "engine.errors" in sys.modules:
        from engine import StackLocked, StateDamaged, WrongPassphrase

        if isinstance(error, StateDamaged) and error.backup:
            stack = error.file.stem
            hint = (
                f"Go back with: ./hpc state import {stack} {error.backup}\n"
                f"What that state has missed comes in with: ./hpc up {stack}"
            )
        elif isinstance(error, StackLocked):
            hint = f"Unlock it with: ./hpc state unlock {error.stack}"
        elif isinstance(error, WrongPassphrase):
            from cli.stack import state_dir

            hint = f"It was taken from {state_dir.passphrase_source()}. Nothing was changed: put the right one there."
    return f"{error}\n{hint}".rstrip()
