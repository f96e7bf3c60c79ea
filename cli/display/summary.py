"""The last line of a run: what was, or would be, done to how many resources, and in what time."""

from cli.display.ops import ORDER, op
from engine.events import Result

_MINUTE = 60


def seconds(value: float) -> str:
    """A duration, with a tenth of a second below a minute: `0.4 s`, `2 min 5 s`."""
    if value < _MINUTE - 0.05:
        return f"{value:.1f} s"
    whole = round(value)
    return f"{whole // _MINUTE} min {whole % _MINUTE} s"


def summary(result: Result, stack: str, *, done: int = 0, skipped: int = 0) -> str:
    """One or two lines that say how the run ended. Of one that failed, `done` steps ended well."""
    took = f"in {seconds(result.seconds)}"
    if not result.ok:
        return _unfinished(result, stack, done, skipped, took)
    counts = {name: number for name, number in result.counts.items() if number}
    unchanged = counts.pop("same", 0)
    names = [name for name in ORDER if name in counts] + sorted(set(counts) - set(ORDER))
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
    kept = (
        "" if result.kind == "preview" else f"\nWhat was done is kept: ./hpc {result.kind} {stack} goes on from here."
    )
    return f"{', '.join(parts)}, {took}{kept}"
