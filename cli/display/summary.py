"""The last line of a run: what was, or would be, done to how many resources, and in what time."""

from typing import TYPE_CHECKING

from cli.display.ops import ORDER, op

if TYPE_CHECKING:
    from engine.events import Result

_MINUTE = 60


def seconds(value: float) -> str:
    """A duration, with a tenth of a second below a minute: `0.4 s`, `2 min 5 s`."""
    if value < _MINUTE - 0.05:
        return f"{value:.1f} s"
    whole = round(value)
    return f"{whole // _MINUTE} min {whole % _MINUTE} s"


def summary(result: "Result", stack: str) -> str:
    """One or two lines that say how the run ended."""
    preview = result.kind == "preview"
    counts = {name: number for name, number in result.counts.items() if number}
    unchanged = counts.pop("same", 0)
    names = [name for name in ORDER if name in counts] + sorted(set(counts) - set(ORDER))
    if result.kind == "refresh" and set(names) <= {"refresh", "read"}:
        unchanged += sum(counts.values())
        names = []
    parts = [f"{counts[name]} {op(name).to_do if preview else op(name).done}" for name in names]
    parts += [f"{unchanged} unchanged"] if unchanged else []
    took = f"in {seconds(result.seconds)}"
    if result.ok:
        if not names:
            none = {"destroy": "Nothing to destroy", "refresh": "Nothing has changed"}.get(result.kind, "Nothing to do")
            return f"{none}: {unchanged} unchanged, {took}" if unchanged else f"{none} ({took})"
        return f"{', '.join(parts)}, {took}"
    skipped = sum(failure.op == "skip" for failure in result.failures)
    failed = len(result.failures) - skipped
    parts = [*([f"{failed} failed"] if failed else []), *([f"{skipped} skipped"] if skipped else []), *parts]
    line = f"{', '.join(parts) or 'nothing done'}, {took}"
    if preview:
        return line
    return f"{line}\nWhat was done is kept: ./hpc {result.kind} {stack} goes on from here."
