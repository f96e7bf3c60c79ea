"""Reading YAML files that people write: in bounded time, into values that JSON has too. Errors have line and column.

A file can be damaged or malicious: endless nesting, a few lines of aliases that expand to billions of values (or refer
to themselves), tags that create objects, numbers that can't be read. All of these are errors.

Values without quotes are read as by the Pulumi CLI (gopkg.in/yaml.v3, resolve.go), which is mostly YAML 1.2: `on` and
`12:30:00` are texts, `0o10` is 8 and `1e3` a number. PyYAML has the rules of YAML 1.1.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import yaml

from engine.errors import EngineError
from engine.values import Value

LARGEST = 4 * 1024 * 1024
"""Bytes of a file. A thousand users with their keys take a tenth of it."""
DEEPEST = 50
"""Levels of nesting, of which a cluster has eight."""
MOST_VALUES = 100_000
"""Values of a file, aliases counted with their expansion."""
_MOST_FAULTS = 10
_LONGEST = 60
_LONGEST_PROBLEM = 300
_LONGEST_NUMBER = 100  # characters; the time to read and write a number is quadratic

# libyaml, if PyYAML was built with it, is ten times as fast.
_Loader: Value = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE = "tag:yaml.org,2002:"
_SCALARS = {f"{_CORE}{name}" for name in ("str", "int", "float", "bool", "null")}
_TEXTS = {f"{_CORE}{name}" for name in ("str", "value", "merge")}
# Characters that YAML allows only as an escape (yaml.org/spec/1.1, c-printable).
_RAW_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


_INT = re.compile(r"([-+]?)(0b[01]+|0o[0-7]+|0x[0-9a-f]+|0[0-7]*|[1-9][0-9]*)", re.IGNORECASE)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ]+[0-9]{1,2}:.*)?")
_WORDS = {
    **dict.fromkeys(("true", "True", "TRUE"), ("bool", True)),
    **dict.fromkeys(("false", "False", "FALSE"), ("bool", False)),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), ("null", None)),
    "<<": ("merge", "<<"),
}


class YamlError(EngineError):
    """A file is not valid or not allowed. The text has the errors with their lines."""


@dataclass
class _Open:
    """A list or mapping whose end was not read yet."""

    value: Value
    anchor: str | None
    size: int = 1
    """Values in it so far, itself included."""
    key: Value = None
    """In a mapping: the key whose value is read next, or _NO_KEY if a key is next."""
    lines: dict[str, int] = field(default_factory=dict)
    """Keys so far, as written in the file and in JSON, with their lines."""
    merged: list[Value] = field(default_factory=list)
    """Mappings that are merged by `<<`. The mapping's own keys have precedence."""


_NO_KEY = object()
_MERGE = object()
_BAD_KEY = object()


def read(file: Path) -> Value:
    """Return the value in a file; None if it is empty. Raises YamlError, and OSError as `open` does."""
    if file.exists() and not (file.is_file() or file.is_dir()):
        raise YamlError(f"{file}: not a regular file. Correct the path.")
    with file.open("rb") as opened:
        data = opened.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise YamlError(f"{file}: larger than {LARGEST // 2**20} MiB, which no such file is. Correct the path.")
    try:
        return parse(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise YamlError(f"{file}: not text: line {line} is not in UTF-8. Save it as UTF-8.") from None
    except YamlError as error:
        raise YamlError(f"{file}: not valid YAML: {error}") from None


def parse(text: str) -> Value:
    """Return the value of a YAML text. Raises YamlError with all duplicate keys and wrong values at once."""
    if match := _RAW_CONTROL.search(text):
        line, column = text.count("\n", 0, match.start()) + 1, match.start() - text.rfind("\n", 0, match.start())
        raise YamlError(f"line {line}, column {column}: the control character {match[0]!a}. Remove it.")
    if any(line.startswith("%TAG") for line in text.split("\n")):
        raise YamlError("a line begins with %TAG: own tags are not read here. Remove it.")
    try:
        reader = _Reader(text)
        value = reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        began = f" ({error.context} that begins in line {error.context_mark.line + 1})" if error.context_mark else ""
        raise YamlError(f"{place}{(error.problem or 'no YAML')[:_LONGEST_PROBLEM]}{began}.") from None
    except yaml.YAMLError as error:
        raise YamlError(repr(str(error)[:_LONGEST_PROBLEM])) from None
    if reader.faults:
        others = len(reader.faults) - _MOST_FAULTS
        listed = reader.faults[:_MOST_FAULTS] + ([f"and {others} more"] if others > 0 else [])
        raise YamlError("\n  ".join(listed if len(listed) == 1 else [f"{len(reader.faults)} errors:", *listed]))
    return value


class _Reader:
    """Builds values from libyaml's events. It has a stack of its own, so that no nesting can exhaust Python's."""

    def __init__(self, text: str) -> None:
        self._loader = _Loader(text)
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Value, int]] = {}
        self._root: Value = None
        self._values = 0
        self.faults: list[str] = []

    def document(self) -> Value:
        documents = 0
        while self._loader.check_event():
            event = self._loader.get_event()
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._begin(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._end(event)
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._refuse(event, "a second document begins. Keep one in a file")
        return self._root

    def _scalar(self, event: Value) -> None:
        tag, value = event.tag, event.value
        if tag in (None, "!"):
            if event.implicit[0] and _DATE.fullmatch(value):
                self._fault(
                    event, f"{_quoted(value)} is a date, of which the Pulumi CLI makes a time. Put it in quotes"
                )
            tag, value = _resolve(value) if event.implicit[0] else (f"{_CORE}str", value)
        elif tag not in _SCALARS:
            self._fault(event, f"the tag {_quoted(tag)} is not read here. Remove it")
            tag = f"{_CORE}str"
        if tag.endswith(":merge") and self._open and self._open[-1].key is _NO_KEY:
            self._add(_MERGE, 1, event, "<<")
            return
        if event.tag in _SCALARS and tag not in _TEXTS:
            node = yaml.ScalarNode(tag, value, event.start_mark, event.end_mark)
            try:
                if len(value) > _LONGEST_NUMBER:
                    raise ValueError
                value = self._loader.yaml_constructors[tag](self._loader, node)
            except (ValueError, KeyError, IndexError, OverflowError, yaml.YAMLError):
                kind = tag.removeprefix(_CORE)
                self._fault(event, f"{_quoted(value)} can't be read as {kind}. Put it in quotes if it is text")
        self._anchor(event.anchor, value, 1)
        self._count(1, event)
        self._add(value, 1, event, event.value)

    def _alias(self, event: Value) -> None:
        if any(within.anchor == event.anchor for within in self._open):
            self._refuse(event, f"*{_plain(event.anchor)} stands within what it stands for. Remove it")
        if event.anchor not in self._anchors:
            self._refuse(event, f"*{_plain(event.anchor)} stands for nothing: no &{_plain(event.anchor)} is before it")
        value, size = self._anchors[event.anchor]
        self._count(size, event)
        self._add(value, size, event, "" if isinstance(value, dict | list) else _as_json(value))

    def _begin(self, event: Value) -> None:
        if len(self._open) >= DEEPEST:
            self._refuse(event, f"more than {DEEPEST} levels of nesting. Write it flatter")
        mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", f"{_CORE}map" if mapping else f"{_CORE}seq"):
            self._fault(event, f"the tag {_quoted(event.tag)} is not read here. Remove it")
        self._count(1, event)
        self._open.append(_Open({} if mapping else [], event.anchor, key=_NO_KEY if mapping else None))

    def _end(self, event: Value) -> None:
        done = self._open.pop()
        for below in done.merged:
            for key, value in below.items():
                done.value.setdefault(key, value)
        self._anchor(done.anchor, done.value, done.size)
        self._add(done.value, done.size, event, "")

    def _add(self, value: Value, size: int, event: Value, written: str) -> None:
        """Add a value to the innermost open list or mapping; without one, it is the document."""
        if not self._open:
            self._root = value
            return
        within = self._open[-1]
        within.size += size
        if isinstance(within.value, list):
            within.value.append(value)
        elif within.key is _NO_KEY:
            within.key = self._key(within, value, event, written)
        else:
            key, within.key = within.key, _NO_KEY
            if key is _MERGE:
                self._merge(within, value, event)
            elif key is not _BAD_KEY:
                within.value[key] = value

    def _key(self, within: _Open, key: Value, event: Value, written: str) -> Value:
        if key is not _MERGE and not isinstance(key, str | int | float | bool | None):
            self._fault(event, "a key that is no text. Put it in quotes")
            return _BAD_KEY
        line = event.start_mark.line + 1
        names = {written, "<<" if key is _MERGE else _as_json(key)}
        first = next((within.lines[name] for name in names if name in within.lines), None)
        if first is not None:
            # It is not clear which of the two was meant.
            self._fault(event, f"the key {_quoted(written)} is given again; it stands in line {first} already")
            return _BAD_KEY
        within.lines.update((name, line) for name in names)
        return key if key is _MERGE else _as_json(key)

    def _merge(self, within: _Open, value: Value, event: Value) -> None:
        for below in value if isinstance(value, list) else [value]:
            if isinstance(below, dict):
                within.merged.append(below)
            else:
                self._fault(event, "`<<` takes a mapping, or a list of mappings, e.g. <<: *defaults")

    def _anchor(self, name: str | None, value: Value, size: int) -> None:
        if name is not None:
            self._anchors[name] = value, size

    def _count(self, values: int, event: Value) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            self._refuse(event, f"more than {MOST_VALUES} values, aliases counted as what they stand for. Shorten it")

    def _fault(self, event: Value, message: str) -> None:
        mark = event.start_mark
        self.faults.append(f"line {mark.line + 1}, column {mark.column + 1}: {message}.")

    def _refuse(self, event: Value, message: str) -> NoReturn:
        """Stop reading, because the rest would take too long or has no meaning."""
        self.faults.clear()
        raise yaml.MarkedYAMLError(None, None, message, event.start_mark)


def _resolve(text: str) -> tuple[str, Value]:
    """Return tag and value of a scalar without quotes."""
    if text in _WORDS:
        kind, value = _WORDS[text]
        return f"{_CORE}{kind}", value
    plain = text.replace("_", "") if len(text) <= _LONGEST_NUMBER and text[:1] in "+-.0123456789" else ""
    if match := _INT.fullmatch(plain):
        digits = match[2].lower()
        octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
        return f"{_CORE}int", int(match[1] + (f"0o{digits[1:]}" if octal else digits), 0)
    if _FLOAT.fullmatch(plain) or _SPECIAL_FLOAT.fullmatch(text):
        return f"{_CORE}float", float(plain if _FLOAT.fullmatch(plain) else text.replace(".", ""))
    return f"{_CORE}str", text


def _as_json(key: Value) -> str:
    """Return a key as it is written in JSON, in which programs get it: 1 and "1" are the same key."""
    if key is None:
        return "null"
    return str(key).lower() if isinstance(key, bool) else str(key)


def _quoted(text: str) -> str:
    return repr(_plain(text))


def _plain(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
