"""Operations as the user reads them. `op` is what the engine and the Pulumi CLI call one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Op:
    """Symbol, colour and verbs of one operation."""

    symbol: str
    style: str
    doing: str
    done: str
    to_do: str
    """In a preview's summary, after the number."""


_SAME = Op(" ", "dim", "checking", "unchanged", "unchanged")
_OPS = {
    "same": _SAME,
    "create": Op("+", "green", "creating", "created", "to create"),
    "update": Op("~", "yellow", "updating", "updated", "to update"),
    "replace": Op("±", "magenta", "replacing", "replaced", "to replace"),
    "create-replacement": Op("+", "magenta", "creating", "created", "to create"),
    "delete-replaced": Op("-", "magenta", "deleting", "deleted", "to delete"),
    "delete": Op("-", "red", "deleting", "deleted", "to delete"),
    "read": Op(">", "cyan", "reading", "read", "to read"),
    "refresh": Op("~", "cyan", "refreshing", "refreshed", "to refresh"),
    "import": Op("=", "green", "importing", "imported", "to import"),
    "skip": Op(".", "dim", "skipping", "skipped", "to skip"),
}

# The order of a summary: what was done first, what was left alone last.
ORDER = ("create", "update", "replace", "delete", "delete-replaced", "import", "read", "refresh")


def op(name: str) -> Op:
    """How an operation is shown; an unknown one is shown by its own name."""
    return _OPS.get(name) or Op("*", "", name, name, f"to {name}")
