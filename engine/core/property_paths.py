"""Property paths as resource options name them: `a.b[0]`, `a["b.c"]`, with `*` for any key or index."""

import copy
import re

from engine.errors import EngineError
from engine.values import Props, Value, is_secret

Path = tuple[str | int, ...]
_TOKEN = re.compile(r'\.?([^.\[\]"]+)|\[(\d+)\]|\[\*\]|\["((?:[^"\\]|\\.)*)"\]')
_MISSING = object()


def parse(text: str) -> Path:
    """Raises EngineError for what is no path."""
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


def render(path: Path) -> str:
    """The opposite of `parse`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[^.\[\]\"]+", part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def contains(pattern: Path, path: Path) -> bool:
    """Whether the pattern names the path or something above it."""
    return len(pattern) <= len(path) and all(p in ("*", part) for p, part in zip(pattern, path, strict=False))


def keep_old(new: Props, old: Props, patterns: list[str]) -> tuple[Props, list[str]]:
    """`new` with the old values at the given paths (ignoreChanges), and the paths where that can't be done because
    an element on the way was added or removed."""
    result: Value = copy.deepcopy(new)
    failed = [text for text in patterns if not _reset(result, old, parse(text))]
    return result, failed


def _reset(new: Value, old: Value, path: Path) -> bool:
    new, old = (v["value"] if is_secret(v) else v for v in (new, old))
    if type(new) is not type(old) or not isinstance(new, (dict, list)):
        return bool(new == old)
    head, rest = path[0], path[1:]
    if head == "*":
        keys = range(max(len(new), len(old))) if isinstance(new, list) else {*new, *old}
        # A list, so that none is left out after one that fails.
        return False not in [_reset(new, old, (key, *rest)) for key in keys]
    before, after = _get(old, head), _get(new, head)
    if (rest or isinstance(new, list)) and (before is _MISSING or after is _MISSING):
        return before is after
    if rest:
        return _reset(after, before, rest)
    target: Value = new
    if before is _MISSING:
        target.pop(head, None)
    else:
        target[head] = before
    return True


def _get(value: Value, key: str | int) -> Value:
    try:
        return value[key]
    except (KeyError, IndexError, TypeError):
        return _MISSING
