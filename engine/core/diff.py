"""Differences between two sets of properties, which of them force a replacement, and the paths that name properties:
`a.b[0]`, `a["b.c"]`, with `*` for any key or index."""

import copy
import re
from dataclasses import dataclass, replace
from typing import Literal

from engine.errors import EngineError
from engine.events import Change
from engine.values import SIG, Props, Value, is_secret, plain, same, show

PropertyPath = tuple[str | int, ...]
_TOKEN = re.compile(r'\.?([^.\[\]"]+)|\[(\d+)\]|\[\*\]|\["((?:[^"\\]|\\.)*)"\]')
_ABSENT = object()


@dataclass(frozen=True)
class Diff:
    """The result of a provider's diff. With `changes` None, any difference in the inputs is an update. `replaces` are
    properties that force a replacement; with `delete_first`, the old resource is deleted before the new one is created.
    """

    changes: bool | None = None
    replaces: tuple[str, ...] = ()
    delete_first: bool = False


def differences(old: Props, new: Props) -> tuple[Change, ...]:
    """Return the properties that differ, as deep as both sides are objects or lists. Secrets are not shown."""
    changes: list[Change] = []
    for key in sorted({*old, *new}):
        # Providers bridged from Terraform keep metadata of their own in the inputs.
        if key not in ("__defaults", "__meta"):
            _compare((key,), old.get(key, _ABSENT), new.get(key, _ABSENT), changes, hidden=False)
    return tuple(changes)


def _compare(path: PropertyPath, old: Value, new: Value, changes: list[Change], *, hidden: bool) -> None:
    hidden = hidden or is_secret(old) or is_secret(new)
    if old is not _ABSENT and new is not _ABSENT:
        if same(old, new):
            return
        a, b = plain(old), plain(new)
        if isinstance(a, dict) and isinstance(b, dict) and SIG not in a and SIG not in b:
            a, b = (v["value"] if is_secret(v) else v for v in (old, new))
            for key in sorted({*a, *b}):
                _compare((*path, key), a.get(key, _ABSENT), b.get(key, _ABSENT), changes, hidden=hidden)
            return
        if isinstance(a, list) and isinstance(b, list):
            a, b = (v["value"] if is_secret(v) else v for v in (old, new))
            for i in range(max(len(a), len(b))):
                before, after = (v[i] if i < len(v) else _ABSENT for v in (a, b))
                _compare((*path, i), before, after, changes, hidden=hidden)
            return
    kind: Literal["add", "delete", "update"] = "add" if old is _ABSENT else "delete" if new is _ABSENT else "update"
    before, after = (None if v is _ABSENT else "[secret]" if hidden else show(v) for v in (old, new))
    changes.append(Change(render_path(path), kind, before, after))


def mark_replacing(changes: tuple[Change, ...], replaces: tuple[str, ...], patterns: list[str]) -> tuple[Change, ...]:
    """Return the changes with `replaces` set: by the provider's `replaces`, or by the patterns of replaceOnChanges."""
    forcing = [parse_path(text) for text in (*replaces, *patterns)]

    def forces(change: Change) -> bool:
        path = parse_path(change.path)
        return any(contains(pattern, path) for pattern in forcing)

    return tuple(replace(change, replaces=forces(change)) for change in changes)


def parse_path(text: str) -> PropertyPath:
    """Parse a property path. Raises EngineError if it is not one."""
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if not match:
            message = f'property path {text!r}: can\'t be read from column {position + 1}; write a.b[0] or a["b"]'
            raise EngineError(message)
        name, index, quoted = match.groups()
        parts.append(int(index) if index else "*" if match[0] == "[*]" else name or quoted.replace('\\"', '"'))
        position = match.end()
    return tuple(parts)


def render_path(path: PropertyPath) -> str:
    """Write a property path; the inverse of `parse_path`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[^.\[\]\"]+", part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def contains(pattern: PropertyPath, path: PropertyPath) -> bool:
    """Return whether the pattern matches the path or one that it lies below."""
    return len(pattern) <= len(path) and all(p in ("*", part) for p, part in zip(pattern, path, strict=False))


def keep_old(new: Props, old: Props, patterns: list[str]) -> tuple[Props, list[str]]:
    """Return `new` with the old values at the given paths (ignoreChanges), and the paths for which that is not
    possible, because an element that they lead through was added or removed."""
    result: Value = copy.deepcopy(new)
    failed = [text for text in patterns if not _restore(result, old, parse_path(text))]
    return result, failed


def _restore(new: Value, old: Value, path: PropertyPath) -> bool:
    new, old = (v["value"] if is_secret(v) else v for v in (new, old))
    if type(new) is not type(old) or not isinstance(new, (dict, list)):
        return bool(new == old)
    head, rest = path[0], path[1:]
    if head == "*":
        keys = range(max(len(new), len(old))) if isinstance(new, list) else {*new, *old}
        # A list, because all must be restored, also after one that fails.
        return False not in [_restore(new, old, (key, *rest)) for key in keys]
    before, after = _get(old, head), _get(new, head)
    if (rest or isinstance(new, list)) and (before is _ABSENT or after is _ABSENT):
        return before is after
    if rest:
        return _restore(after, before, rest)
    target: Value = new
    if before is _ABSENT:
        target.pop(head, None)
    else:
        target[head] = before
    return True


def _get(value: Value, key: str | int) -> Value:
    try:
        return value[key]
    except (KeyError, IndexError, TypeError):
        return _ABSENT
