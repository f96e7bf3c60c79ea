"""How operations are shown, and the last lines of a run. `op` is an operation's name in the engine and the CLI."""

from dataclasses import dataclass

from engine.events import Result


@dataclass(frozen=True)
class Op:
    """Symbol, colour and verbs of one operation."""

    symbol: str
    style: str
    doing: str
    done: str
    to_do: str
    """In a preview's summary, after the number."""


_OPS = {
    "same": Op(" ", "dim", "checking", "unchanged", "unchanged"),
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

_ORDER = ("create", "update", "replace", "delete", "delete-replaced", "import", "read", "refresh")


def op(name: str) -> Op:
    """How an operation is shown; an unknown one is shown by its own name."""
    return _OPS.get(name) or Op("*", "", name, name, f"to {name}")


def seconds(value: float) -> str:
    """A duration, with a tenth of a second below a minute: `0.4 s`, `2 min 5 s`."""
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    return f"{whole // 60} min {whole % 60} s"


def summary(result: Result, stack: str, *, done: int = 0, skipped: int = 0) -> str:
    """One or two lines that say how the run ended. Of one that failed, `done` steps ended well."""
    took = f"in {seconds(result.seconds)}"
    if not result.ok:
        return _unfinished(result, stack, done, skipped, took)
    counts = {name: number for name, number in result.counts.items() if number}
    unchanged = counts.pop("same", 0)
    names = [name for name in _ORDER if name in counts] + sorted(set(counts) - set(_ORDER))
    if not names:
        none = {"destroy": "Nothing to destroy", "refresh": "Nothing has changed"}.get(result.kind, "Nothing to do")
        return f"{none}: {unchanged} unchanged, {took}" if unchanged else f"{none}, {took}"
    parts = [f"{counts[name]} {op(name).to_do if result.kind == 'preview' else op(name).done}" for name in names]
    parts += [f"{unchanged} unchanged"] if unchanged else []
    return f"{', '.join(parts)}, {took}"


def interrupted(result: Result) -> bool:
    """Whether the run was stopped by the user: it is not well, and yet nothing failed."""
    return not result.ok and not result.failures


def _unfinished(result: Result, stack: str, done: int, skipped: int, took: str) -> str:
    # The counts are of what was planned, and do not tell how far it came.
    first = "interrupted" if interrupted(result) else f"{len(result.failures)} failed"
    parts = [first, *([f"{skipped} skipped"] if skipped else []), f"{done} done"]
    text = f"{', '.join(parts)}, {took}"
    if result.kind == "preview":
        return text
    return f"{text}\nWhat was done is kept: ./hpc {result.kind} {stack} goes on from here."
