"""The tree of a preview, and one property's change in it: short values as `old -> new`, long ones as a unified diff."""

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from engine.events import Change, Planned, Result


@dataclass(frozen=True)
class Op:
    """Symbol, colour and verbs of one operation."""

    symbol: str
    style: str
    doing: str
    done: str
    to_do: str
    """The word in a preview's summary, after the number."""


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
    """The symbol, colour and verbs of an operation; an unknown one has its own name for all verbs."""
    return _OPS.get(name) or Op("*", "", name, name, f"to {name}")


def seconds(value: float) -> str:
    """A duration, with a tenth of a second below a minute: `0.4 s`, `2 min 5 s`."""
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    return f"{whole // 60} min {whole % 60} s"


def summary(result: Result, stack: str, *, done: int = 0, skipped: int = 0) -> str:
    """Return one or two lines that say how the run ended; `done` counts the steps that ended well in a failed one."""
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
    """Return whether the run was stopped by the user: it is not well, and yet nothing failed."""
    return not result.ok and not result.failures


def _unfinished(result: Result, stack: str, done: int, skipped: int, took: str) -> str:
    # The counts are of what was planned, and do not show how far it came.
    first = "interrupted" if interrupted(result) else f"{len(result.failures)} failed"
    parts = [first, *([f"{skipped} skipped"] if skipped else []), f"{done} done"]
    text = f"{', '.join(parts)}, {took}"
    if result.kind == "preview":
        return text
    return f"{text}\nWhat was done is kept: ./hpc {result.kind} {stack} goes on from here."


Line = tuple[str, str]
"""Text and rich style."""

_STYLES = {"add": "green", "delete": "red", "update": "yellow"}
_SYMBOLS = {"add": "+", "delete": "-", "update": "~"}
_MARKS = ("[secret]", "[unknown]")
_SHORT = 100
"""Most characters of values on one line."""
_MOST_LINES = 60
_EXCERPT = 40
"""Characters shown around the first difference of two long one-line texts."""
_KEY = re.compile(r"\b(AAAA[A-Za-z0-9+/]{8})[A-Za-z0-9+/]{30,}([A-Za-z0-9+/]{6}={0,2})")
"""The body of an SSH public key."""
_KEY_END = "\0"
_WHOLE = ("create", "delete", "read")
"""Operations of which the properties say nothing new: all of them come or go."""


def tree(planned: Iterable[Planned], *, whole: bool = False) -> list[Line]:
    """A preview's lines: every resource that changes, under its parents, with its changes; empty if nothing changes.
    `whole`: with all properties of what is to be created."""
    rows = {plan.urn: plan for plan in planned}
    shown: set[str] = set()
    for plan in rows.values():
        urn: str | None = plan.urn if plan.op != "same" else None
        while urn in rows and urn not in shown:
            shown.add(urn)
            urn = rows[urn].parent
    children: dict[str, list[Planned]] = {}
    for plan in rows.values():
        if plan.urn in shown:
            children.setdefault(plan.parent if plan.parent in shown else "", []).append(plan)
    found: list[Line] = []
    _add(found, children, "", 0, whole=whole)
    return found


def _add(found: list[Line], children: dict[str, list[Planned]], parent: str, depth: int, *, whole: bool) -> None:
    for plan in children.get(parent, []):
        shown = op(plan.op)
        indent = "  " * depth
        reason = f"  ({plan.reason})" if plan.reason else ""
        found.append((f"{shown.symbol} {indent}{plan.name}  {plan.type}{reason}", shown.style))
        if plan.op not in _WHOLE:
            for change in plan.changes:
                found += [(f"  {indent}    {text}", style) for text, style in lines(change)]
        for key, value in sorted(plan.inputs.items()) if whole else ():
            added = Change(key, "add", None, value)
            found += [(f"  {indent}    {text}", style) for text, style in lines(added)]
        _add(found, children, plan.urn, depth + 1, whole=whole)


def lines(change: Change) -> list[Line]:
    """The lines for one change, not indented; of public keys both ends."""
    return [(_KEY.sub(r"\1...\2", text), style) for text, style in _lines(change)]


def _lines(change: Change) -> list[Line]:
    style = _STYLES[change.kind]
    head = f"{_SYMBOLS[change.kind]} {change.path}:"
    tail = " (forces replacement)" if change.replaces else ""
    if change.kind == "update":
        if _fits(change.old, change.new):
            return [(f"{head} {_inline(change.old)} -> {_inline(change.new)}{tail}", style)]
        if change.old in _MARKS or change.new in _MARKS:
            return [(f"{head} {_size(change.old)} -> {_size(change.new)}{tail}", style)]
        body = _difference(change.old, change.new)
    else:
        value = change.new if change.kind == "add" else change.old
        if _fits(value):
            return [(f"{head} {_inline(value)}{tail}", style)]
        sign = _SYMBOLS[change.kind]
        body = [(f"{sign}{row}", style) for row in _text(value).splitlines()]
    if len(body) > _MOST_LINES:
        body = [*body[:_MOST_LINES], (f"... {len(body) - _MOST_LINES} more lines", "dim")]
    return [(f"{head}{tail}", style), *((f"    {text}", line_style) for text, line_style in body)]


def _inline(value: Any) -> str:  # noqa: ANN401 - a property's value
    """A value on one line: JSON, except for the marks, which stand for values and are none."""
    return value if value in _MARKS else json.dumps(value, ensure_ascii=False, default=str)


def _size(value: Any) -> str:  # noqa: ANN401 - a property's value
    """A mark, or how much there is: beside what is not known, it says nothing more."""
    return value if value in _MARKS else f"[{len(_text(value).splitlines())} lines]"


def _fits(*values: Any) -> bool:  # noqa: ANN401 - properties' values
    texts = [_inline(value) for value in values]
    return sum(map(len, texts)) <= _SHORT and not any("\n" in value for value in values if isinstance(value, str))


def _text(value: Any) -> str:  # noqa: ANN401 - a property's value
    """A value over several lines: text as it is, everything else (and text that is a JSON document) as JSON."""
    if isinstance(value, str):
        if "\n" in value or value[:1] not in ("{", "["):
            return value
        try:
            value = json.loads(value)
        except ValueError:
            return value
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _difference(old: Any, new: Any) -> list[Line]:  # noqa: ANN401 - a property's values
    before, after = _text(old), _text(new)
    if before == after:  # they differ only in type, or in the space of a JSON document
        before, after = _inline(old), _inline(new)
    if "\n" not in before and "\n" not in after:
        return [(f"-{_excerpt(before, after)}", "red"), (f"+{_excerpt(after, before)}", "green")]
    found: list[Line] = []
    for keyed in difflib.unified_diff(*_keyed(before.splitlines(), after.splitlines()), lineterm="", n=2):
        if keyed.startswith(("---", "+++")) and not found:
            continue
        sign, _, line = keyed.partition(_KEY_END)
        row = sign[:1] + line if _KEY_END in keyed else keyed
        style = "green" if row.startswith("+") else "red" if row.startswith("-") else "dim"
        found.append((row, style))
    # Lines are compared without their ends, so a final newline that came or went is reported.
    return found or [("the text differs in its line ends only", "yellow")]


def _keyed(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    """Both texts' lines, each behind a key that ties those which begin and end both to each other.

    Among lines that occur more than once, difflib may match the wrong ones and show more than what was edited.
    """
    shorter = min(len(before), len(after))
    first = next((n for n in range(shorter) if before[n] != after[n]), shorter)
    last = next((n for n in range(shorter - first) if before[-1 - n] != after[-1 - n]), shorter - first)

    def keyed(lines: list[str]) -> list[str]:
        end = len(lines) - last
        keys = [f"{n}" if n < first else f"-{len(lines) - n}" if n >= end else "" for n in range(len(lines))]
        return [f"{key}{_KEY_END}{line}" for key, line in zip(keys, lines, strict=True)]

    return keyed(before), keyed(after)


def _excerpt(text: str, other: str) -> str:
    """`text` around where it begins to differ from `other`."""
    pairs = zip(text, other, strict=False)
    first = next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(text), len(other)))
    start, end = max(0, first - _EXCERPT), first + _EXCERPT
    return f"{'...' if start else ''}{text[start:end]}{'...' if end < len(text) else ''}"
