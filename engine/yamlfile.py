"""Reading YAML files that people write: in bounded time, into values that JSON has too. Errors have line and column.

A file can be damaged or malicious: endless nesting, a few lines of aliases that expand to billions of values (or refer
to themselves), tags that create objects. All of these are errors, and so is a key that is given twice.

PyYAML's safe loader reads, with the rules of the Pulumi CLI for values without quotes (gopkg.in/yaml.v3 3.0.1,
resolve.go): `on` and `12:30:00` are texts, `1e3` is a number. What the loader would not read as the CLI does is an
error: dates, numbers in another base or with `_`, those that are too large, and keys that are no text.
"""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import ClassVar

import yaml

from engine.errors import EngineError
from engine.values import Value

LARGEST = 4 * 1024 * 1024
"""Bytes of a file. A thousand users with their keys take a tenth of it."""
DEEPEST = 50
"""Levels of nesting, of which a cluster has eight."""
MOST_VALUES = 100_000
"""Values of a file, aliases counted with their expansion."""
_TOO_MANY = f"more than {DEEPEST} levels of nesting or {MOST_VALUES} values, aliases counted as what they stand for"
_MOST_FAULTS = 10
_LONGEST = 60
_LONGEST_PROBLEM = 300

# Characters that YAML allows only as an escape (yaml.org/spec/1.1, c-printable).
_RAW_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_STR, _MERGE, _BOOL, _NULL, _INT, _FLOAT, _SEQ, _MAP = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "merge", "bool", "null", "int", "float", "seq", "map")
)
_TAGS = {_STR, _MERGE, _BOOL, _NULL, _INT, _FLOAT, _SEQ, _MAP}
_UNLIKE = "!unlike"
_DIGITS = "[0-9]{1,18}"
_PLAIN = {
    _MERGE: "<<",
    _BOOL: "true|True|TRUE|false|False|FALSE",
    _NULL: "~|null|Null|NULL|",
    _INT: "[-+]?(0|[1-9][0-9]{0,17})",
    _FLOAT: rf"[-+]?(({_DIGITS})?\.{_DIGITS}|{_DIGITS}\.)([eE][-+]?[0-9]{{1,2}})?|[-+]?{_DIGITS}[eE][-+]?[0-9]{{1,2}}",
    _UNLIKE: r"[-+]?(0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9_]+)?)"
    r"|[-+]?\.[0-9_]+([eE][-+]?[0-9_]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ]+[0-9]{1,2}:.*)?",
}
"""Tags of values without quotes: the first whose pattern fits, else it is a text."""


class YamlError(EngineError):
    """A file is not valid or not allowed. The text has the errors with their lines."""


# libyaml, if PyYAML was built with it, is ten times as fast.
_SafeLoader: Value = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SafeDumper: Value = yaml.SafeDumper


class _Loader(_SafeLoader):
    # None: values with any first character.
    yaml_implicit_resolvers: ClassVar = {None: [(tag, re.compile(f"({text})$")) for tag, text in _PLAIN.items()]}


class _Dumper(_SafeDumper):
    # A text is quoted where PyYAML's rules or the ones above would read another value without the quotes, as in `0E0`.
    yaml_implicit_resolvers: ClassVar = {**_SafeDumper.yaml_implicit_resolvers, **_Loader.yaml_implicit_resolvers}


def dump(value: Value, **style: Value) -> str:
    """Return the YAML text of a value that `parse` returns for it; `style` as yaml.dump takes it."""
    return yaml.dump(value, Dumper=_Dumper, **style)


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
        _check_size(text)
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        if faults := sorted(set(_faults(loader, root))):
            raise YamlError(_listed([f"line {line}, column {column}: {reason}." for line, column, reason in faults]))
        return loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        began = f" ({error.context} that begins in line {error.context_mark.line + 1})" if error.context_mark else ""
        raise YamlError(f"{place}{(error.problem or 'no YAML')[:_LONGEST_PROBLEM]}{began}.") from None
    except yaml.YAMLError as error:
        raise YamlError(repr(str(error)[:_LONGEST_PROBLEM])) from None


def _listed(faults: list[str]) -> str:
    if len(faults) == 1:
        return faults[0]
    more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
    return "\n  ".join([f"{len(faults)} errors:", *faults[:_MOST_FAULTS], *more])


def _check_size(text: str) -> None:
    """Refuse a text that the loader would need too much time, memory or stack for, which has no limits of its own."""
    level = 0
    for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
        level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        _check_limits(number, level, event)


def _check_limits(values: int, levels: int, at: Value) -> None:
    if values > MOST_VALUES or levels > DEEPEST:
        raise yaml.MarkedYAMLError(None, None, f"{_TOO_MANY}. Shorten it", at.start_mark)


def _nodes(root: Value) -> Iterator[Value]:
    """Yield all nodes, each before those in it, and aliases as what they stand for."""
    waiting, number = [(root, 1)], 0
    while waiting:
        node, level = waiting.pop()
        number += 1
        _check_limits(number, level, node)
        yield node
        if not isinstance(node, yaml.ScalarNode):
            below = node.value if isinstance(node, yaml.SequenceNode) else chain.from_iterable(node.value)
            waiting += [(inner, level + 1) for inner in below]


def _faults(loader: Value, root: Value) -> Iterator[tuple[int, int, str]]:
    """Yield line, column and reason of what is not read."""
    for node in _nodes(root):
        if node.tag != _UNLIKE and node.tag not in _TAGS:
            yield _fault(node, f"the tag {_quoted(node.tag)} is not read here. Remove it")
        elif isinstance(node, yaml.MappingNode):
            yield from _wrong_keys(node)
        elif isinstance(node, yaml.ScalarNode) and node.tag not in (_STR, _plain_tag(loader, node.value)):
            yield _fault(node, f"{_quoted(node.value)} is not read alike by all programs. Put it in quotes")


def _plain_tag(loader: Value, text: str) -> str:
    """Return the tag of a value without quotes, empty if it has another value in other programs."""
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))
    return "" if tag == _UNLIKE else tag


def _wrong_keys(mapping: Value) -> Iterator[tuple[int, int, str]]:
    """Yield the keys of a mapping that are no text, or are given again: it is not clear which of the two was meant."""
    lines: dict[str, int] = {}
    for key, _ in mapping.value:
        if key.tag not in (_STR, _MERGE):
            yield _fault(key, "a key that is no text. Put it in quotes")
        elif first := lines.get(key.value):
            yield _fault(key, f"the key {_quoted(key.value)} is given again; it stands in line {first} already")
        else:
            lines[key.value] = key.start_mark.line + 1


def _fault(node: Value, reason: str) -> tuple[int, int, str]:
    return node.start_mark.line + 1, node.start_mark.column + 1, reason


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")
