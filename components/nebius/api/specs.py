"""Specs of the API as plain JSON, which stacks and states have: compared, and turned into messages of the SDK and back.

Comparing takes no SDK: a preview compares, and imports no client.
"""

import difflib
import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from components.nebius.api.client import NebiusError
from components.nebius.api.kinds import Kind

Message = Any
"""A message or a client of the SDK, or its JSON: a preview does not import the SDK's classes."""
MAPS = frozenset({"labels", "set"})
"""Fields that are maps: an empty one is the same as none, while an empty message is a choice."""


def canonical(value: Message) -> Message:
    """A value in which equal settings are equal: no absent or default fields, whole numbers as int, lists in one order.

    64-bit integers are text in JSON, so a text of digits is compared as its number. An empty message is kept: it is
    not the same as none.
    """
    if isinstance(value, Mapping):
        fields = {str(name): canonical(member) for name, member in value.items()}
        return {name: member for name, member in fields.items() if member or (member == {} and name not in MAPS)}
    if isinstance(value, (list, tuple)):
        return sorted(
            (canonical(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True, default=str)
        )
    if isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 and str(int(value)) == value:
        return int(value)
    return value


def same(one: Message, other: Message) -> bool:
    """Return whether two specs have equal settings."""
    return canonical({"": one}) == canonical({"": other})


def value_at(spec: Message, path: str) -> Message:
    """Return the value at a dotted path, or None."""
    for name in path.split("."):
        spec = spec.get(name) if isinstance(spec, Mapping) else None
    return spec


def differing(olds: Message, news: Message, paths: Iterable[str]) -> list[str]:
    """Return which of the dotted paths differ."""
    return [path for path in paths if not same(value_at(olds, path), value_at(news, path))]


def observed(wanted: Message, seen: Message, keep: Iterable[str] = ()) -> Message:
    """The spec as it is now, of the fields that the stack sets: what the API filled in by itself is no difference.

    `keep` are names of fields that the API does not return: they stay as they are. Fields that agree keep the stack's
    notation.
    """
    if same(wanted, seen):
        return wanted
    if isinstance(wanted, Mapping) and isinstance(seen, Mapping):
        kept = frozenset(keep)
        return {
            name: member if name in kept else observed(member, seen.get(name), kept) for name, member in wanted.items()
        }
    if isinstance(wanted, (list, tuple)) and isinstance(seen, (list, tuple)) and len(wanted) == len(seen):
        return _observed_items(wanted, list(seen))
    return seen


def _observed_items(wanted: Sequence[Any], seen: list[Any]) -> list[Any]:
    """Each item with the one that agrees with it, the rest in their order."""
    result: list[Any] = [None] * len(wanted)
    rest: list[int] = []
    for index, one in enumerate(wanted):
        match = next((other for other in seen if same(observed(one, other), one)), None)
        if match is None:
            rest.append(index)
        else:
            seen.remove(match)
            result[index] = one
    for index, other in zip(rest, seen, strict=True):
        result[index] = observed(wanted[index], other)
    return result


_WHOLE = frozenset({"int64", "uint64", "sint64", "fixed64", "sfixed64"})
"""Kinds of numbers that are text in JSON."""


@cache
def package(kind: Kind) -> ModuleType:
    """The SDK's module with a kind's client and messages."""
    return importlib.import_module(f"nebius.api.nebius.{kind.module}")


def message_class(kind: Kind, name: str) -> Message:
    """A message of a kind's package, such as `CreateSubnetRequest`."""
    return getattr(package(kind), name)


def spec_message(kind: Kind, spec: Mapping[str, Message]) -> Message:
    """The message of a spec in the API's JSON form.

    Raises NebiusError for a key that the API does not know, with its path and the nearest one, and for a value that
    does not fit.
    """
    cls = message_class(kind, f"{kind.name}Spec")
    numbered = whole(spec)
    if unknown := _unknown(cls, numbered, "spec"):
        raise NebiusError("\n".join([f"the spec of a {kind.name} has keys that the API does not have:", *unknown]))
    try:
        return cls.from_json(json.dumps(numbered))
    except (ValueError, TypeError) as error:
        raise NebiusError(f"the spec of a {kind.name} does not fit: {error}\n  given: {json.dumps(spec)}") from error


def plain(message: Message) -> dict[str, Message]:
    """A message as JSON with snake_case names and 64-bit integers as int, without what the API marks as sensitive."""
    return _typed(type(message), full(message))


def full(message: Message) -> dict[str, Message]:
    """A message as JSON with snake_case names, with everything that was returned."""
    return json.loads(message.to_json(preserving_proto_field_name=True))


def merged(base: Message, olds: Mapping[str, Message], news: Mapping[str, Message]) -> Message:
    """The spec that an update sends: `base` as it was fetched, with the fields of `news`.

    Fields that `olds` has and `news` has not are reset. All others stay as they are: an update resets every field that
    it leaves at its default (header X-ResetMask), so it must start from what was fetched.
    """
    cls = type(base)
    return cls.from_json(json.dumps(_overlaid(cls, full(base), whole(olds), whole(news))))


def _overlaid(cls: Message, base: dict[str, Message], olds: Message, news: Mapping[str, Message]) -> dict[str, Message]:
    result = dict(base)
    if isinstance(olds, Mapping):
        for name in olds.keys() - news.keys():
            result.pop(name, None)
    for name, value in news.items():
        field = _fields(cls).get(name)
        if value is None or field is None:
            result.pop(name, None)
            continue
        if field.oneof:
            for other in _fields(cls).values():
                if other.oneof == field.oneof and other.proto_name != name:
                    result.pop(other.proto_name, None)
        before = olds.get(name) if isinstance(olds, Mapping) else None
        result[name] = _overlaid_value(field, base.get(name), before, value)
    return result


def _overlaid_value(field: Message, base: Message, olds: Message, news: Message) -> Message:
    if isinstance(news, Mapping) and isinstance(base, Mapping) and field.message and not field.map:
        return _overlaid(_class_of(field), dict(base), olds, news)
    if isinstance(news, list) and isinstance(base, list):
        return _kept_items(news, list(base))
    return news


def _kept_items(news: list[Any], base: list[Any]) -> list[Any]:
    """The new items; one that agrees with an item that was fetched is that item, with what the API filled in."""
    result: list[Any] = []
    for item in news:
        agreeing = next((row for row in base if same(observed(item, row), item)), None)
        if agreeing is not None:
            base.remove(agreeing)
        result.append(item if agreeing is None else agreeing)
    return result


def _unknown(cls: Message, spec: Message, path: str) -> list[str]:
    fields = _fields(cls)
    if isinstance(spec, list):
        return [line for index, item in enumerate(spec) for line in _unknown(cls, item, f"{path}[{index}]")]
    if not isinstance(spec, Mapping):
        return []
    found: list[str] = []
    for name, value in spec.items():
        field = fields.get(name)
        if field is None:
            nearest = difflib.get_close_matches(name, fields, 1)
            hint = f"nearest: {nearest[0]}" if nearest else f"allowed: {', '.join(sorted(fields))}"
            found.append(f"    {path}.{name} ({hint})")
        elif field.message and not field.map:
            found += _unknown(_class_of(field), value, f"{path}.{name}")
    return found


def _typed(cls: Message, value: Message) -> Message:
    if isinstance(value, list):
        return [_typed(cls, item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = _fields(cls)
    result: dict[str, Any] = {}
    for name, member in value.items():
        field = fields.get(name)
        if field is not None and (field.sensitive or field.credentials):
            continue
        result[name] = member if field is None else _typed_value(field, member)
    return result


def _typed_value(field: Message, value: Message) -> Message:
    if field.map:
        return {key: _typed(_class_of(field), member) for key, member in value.items()} if field.message else value
    if field.message:
        return _typed(_class_of(field), value)
    if field.codec.json_kind in _WHOLE:
        return [int(item) for item in value] if isinstance(value, list) else int(value)
    return value


def _fields(cls: Message) -> dict[str, Message]:
    return {field.proto_name: field for field in cls.__FIELDS__}


def _class_of(field: Message) -> Message:
    return type(field.codec.default())


def whole(value: Message) -> Message:
    """Whole numbers as int: all numbers of a state are floating-point numbers."""
    if isinstance(value, Mapping):
        return {str(name): whole(member) for name, member in value.items() if member is not None}
    if isinstance(value, (list, tuple)):
        return [whole(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
