"""Renders the tree of a preview and the changes of properties: short values as `old -> new`, long ones as a diff."""

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cluster.printable import counted
from engine.events import Change, Planned, Result


@dataclass(frozen=True)
class Op:
    """Symbol, colour and verbs of one operation."""

    symbol: str
    style: str
    present: str
    past: str
    planned: str
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
    """Return the symbol, colour and verbs of an operation. The verbs of an unknown one are its name."""
    return _OPS.get(name) or Op("*", "", name, name, f"to {name}")


def seconds(value: float) -> str:
    """Return a duration as text, with tenths of a second below a minute: `0.4 s`, `2 min 5 s`."""
    if value < 59.95:
        return f"{value:.1f} s"
    whole = round(value)
    return f"{whole // 60} min {whole % 60} s"


def summary(result: Result, stack: str, *, done: int = 0, skipped: int = 0) -> str:
    """Return one or two lines about the end of a run. `done` is the number of steps that succeeded in a failed run."""
    took = f"in {seconds(result.seconds)}"
    if not result.ok:
        # Not `counts`, which are of the planned steps.
        failed = "interrupted" if is_interrupted(result) else f"{len(result.failures)} failed"
        text = ", ".join([failed, *([f"{skipped} skipped"] if skipped else []), f"{done} done", took])
        if result.kind == "preview":
            return text
        return f"{text}\nWhat was done is kept: ./hpc {result.kind} {stack} goes on from here."
    counts = {name: number for name, number in result.counts.items() if number}
    unchanged = counts.pop("same", 0)
    names = [name for name in _ORDER if name in counts] + sorted(set(counts) - set(_ORDER))
    if not names:
        none = {"destroy": "Nothing to destroy", "refresh": "Nothing has changed"}.get(result.kind, "Nothing to do")
        return f"{none}: {unchanged} unchanged, {took}" if unchanged else f"{none}, {took}"
    parts = [f"{counts[name]} {op(name).planned if result.kind == 'preview' else op(name).past}" for name in names]
    parts += [f"{unchanged} unchanged"] if unchanged else []
    return f"{', '.join(parts)}, {took}"


def is_interrupted(result: Result) -> bool:
    """Return whether the user stopped the run: it did not succeed, and no step failed."""
    return not result.ok and not result.failures


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
"""Operations whose changed properties are not listed: all properties are added or removed."""


def tree(planned: Iterable[Planned], *, with_inputs: bool = False) -> list[Line]:
    """Return the lines of a preview: every resource that changes, under its parents, with its changes.

    `with_inputs` adds all properties of resources that are to be created."""
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
    lines: list[Line] = []

    def add(parent: str, indent: str) -> None:
        for plan in children.get(parent, []):
            reason = f"  ({plan.reason})" if plan.reason else ""
            lines.append((f"{op(plan.op).symbol} {indent}{plan.name}  {plan.type}{reason}", op(plan.op).style))
            changed = [] if plan.op in _WHOLE else list(plan.changes)
            if with_inputs:
                changed += [Change(key, "add", None, value) for key, value in sorted(plan.inputs.items())]
            for change in changed:
                lines.extend((f"  {indent}    {text}", style) for text, style in change_lines(change))
            add(plan.urn, f"{indent}  ")

    add("", "")
    return lines


def change_lines(change: Change) -> list[Line]:
    """Return the lines for one change, not indented. Public keys are shortened to their two ends."""
    return [(_KEY.sub(r"\1...\2", text), style) for text, style in _full_lines(change)]


def _full_lines(change: Change) -> list[Line]:
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
        body = [*body[:_MOST_LINES], (f"... {counted(len(body) - _MOST_LINES, 'more line')}", "dim")]
    return [(f"{head}{tail}", style), *((f"    {text}", line_style) for text, line_style in body)]


def _inline(value: Any) -> str:  # noqa: ANN401 - a property's value
    """Return a value on one line, as JSON; the marks for secret and unknown values as they are."""
    return value if value in _MARKS else json.dumps(value, ensure_ascii=False, default=str)


def _size(value: Any) -> str:  # noqa: ANN401 - a property's value
    """Return a mark as it is, and for another value the number of its lines: beside a mark no diff is possible."""
    return value if value in _MARKS else f"[{counted(len(_text(value).splitlines()), 'line')}]"


def _fits(*values: Any) -> bool:  # noqa: ANN401 - properties' values
    texts = [_inline(value) for value in values]
    return sum(map(len, texts)) <= _SHORT and not any("\n" in value for value in values if isinstance(value, str))


def _text(value: Any) -> str:  # noqa: ANN401 - a property's value
    """Return a value on several lines: text as it is, everything else, and text that is a JSON document, as JSON."""
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
    rows: list[Line] = []
    for keyed in difflib.unified_diff(*_with_keys(before.splitlines(), after.splitlines()), lineterm="", n=2):
        if keyed.startswith(("---", "+++")) and not rows:
            continue
        sign, _, line = keyed.partition(_KEY_END)
        row = sign[:1] + line if _KEY_END in keyed else keyed
        style = "green" if row.startswith("+") else "red" if row.startswith("-") else "dim"
        rows.append((row, style))
    # Lines are compared without their ends, so without a row only the ends differ.
    return rows or [("the text differs in its line ends only", "yellow")]


def _with_keys(before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    """Return the lines of both texts with keys in front that match the lines of the common beginning and end.

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
    """Return the part of `text` around its first difference from `other`."""
    pairs = zip(text, other, strict=False)
    first = next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(text), len(other)))
    start, end = max(0, first - _EXCERPT), first + _EXCERPT
    return f"{'...' if start else ''}{text[start:end]}{'...' if end < len(text) else ''}"
