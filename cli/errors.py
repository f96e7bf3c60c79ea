"""The CLI's own error, and which exceptions of the other parts are meant for the user."""

import sys

# By the module that has them. The modules are not imported for this: one that nobody imported has raised nothing.
_EXPECTED = {
    "engine.errors": "EngineError",
    "cluster.config": "ConfigError",
    "components.local.host.errors": "HostError",
}


class CliError(Exception):
    """Something the user can put right; the text says where, what was given, what is allowed and what to do."""


def expected() -> tuple[type[BaseException], ...]:
    """The exception types that are shown as their text."""
    loaded = ((sys.modules.get(module), name) for module, name in _EXPECTED.items())
    return (CliError, *(kind for module, name in loaded if isinstance(kind := getattr(module, name, None), type)))


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
            from cli import home

            hint = f"It was taken from {home.passphrase_source()}. Nothing was changed: put the right one there."
    return f"{error}\n{hint}".rstrip()
