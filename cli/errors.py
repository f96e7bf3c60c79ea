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
