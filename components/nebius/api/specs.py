"""Specs of the API as plain JSON, as stacks and states have them: comparison, and conversion to the SDK's messages.

A comparison needs no SDK, because a preview compares and imports no client.
"""

import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from components.nebius.api.client import NebiusError
from components.nebius.api.kinds import ResourceKind

Message = Any
"""A message or a client of the SDK, or its JSON: a preview does not import the SDK's classes."""
MAPS = frozenset({"labels"})
"""Fields that are maps: an empty map is the same as none, while an empty message is a choice."""


def canonical(value: Message) -> Message:
    """Return a value in which equal settings are equal: without defaults, whole numbers as int, lists in one order.

    64-bit integers are text in JSON, so a text of digits becomes its number. An empty message is kept, because it
    differs from a missing one.
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


def same(left: Message, right: Message) -> bool:
    """Return whether two specs have equal settings."""
    return canonical({"": left}) == canonical({"": right})


def value_at(spec: Message, path: str) -> Message:
    """Return the value at a dotted path, or None."""
    for name in path.split("."):
        spec = spec.get(name) if isinstance(spec, Mapping) else None
    return spec


def differing_paths(olds: Message, news: Message, paths: Iterable[str]) -> list[str]:
    """Return which of the dotted paths differ."""
    return [path for path in paths if not same(value_at(olds, path), value_at(news, path))]


def observed_spec(desired: Message, actual: Message) -> Message:
    """Return the actual spec, of the fields that the stack sets; fields that the API filled in are left out. Equal
    fields keep the stack's notation."""
    if same(desired, actual):
        return desired
    if isinstance(desired, Mapping) and isinstance(actual, Mapping):
        return {name: observed_spec(member, actual.get(name)) for name, member in desired.items()}
    if isinstance(desired, (list, tuple)) and isinstance(actual, (list, tuple)) and len(desired) == len(actual):
        return _observed_items(desired, list(actual))
    return actual


def _observed_items(desired: Sequence[Any], actual: list[Any]) -> list[Any]:
    """Return the actual items: each in the place of the desired one that it agrees with, the others in their order."""
    matches = [_take_match(item, actual) for item in desired]
    others = iter(actual)
    return [
        observed_spec(item, next(others)) if match is None else item
        for item, match in zip(desired, matches, strict=True)
    ]


def _take_match(item: Message, others: list[Any]) -> Message | None:
    """Remove the first of the others that agrees with an item, and return it; None if none does."""
    match = next((other for other in others if same(observed_spec(item, other), item)), None)
    if match is not None:
        others.remove(match)
    return match


def message_class(kind: ResourceKind, name: str) -> Message:
    """Return the class of a message or a client of a kind's package, such as `CreateSubnetRequest`."""
    return getattr(importlib.import_module(f"nebius.api.nebius.{kind.module}"), name)


def spec_message(kind: ResourceKind, spec: Mapping[str, Message]) -> Message:
    """Return the message of a spec in the API's JSON form.

    Raises NebiusError for a key that the API does not have, and for a value that does not fit.
    """
    try:
        return message_class(kind, f"{kind.name}Spec").from_json(json.dumps(with_whole_numbers(spec)))
    except (ValueError, TypeError) as error:
        raise NebiusError(f"the spec of a {kind.name} does not fit: {error}\n  given: {json.dumps(spec)}") from error


def to_json(message: Message) -> dict[str, Message]:
    """Return a message as JSON with snake_case names, without its sensitive fields."""
    hidden = {field.proto_name for field in type(message).__FIELDS__ if field.sensitive or field.credentials}
    return {name: value for name, value in to_full_json(message).items() if name not in hidden}


def to_full_json(message: Message) -> dict[str, Message]:
    """Return a message as JSON with snake_case names, sensitive fields included."""
    return json.loads(message.to_json(preserving_proto_field_name=True))


def merge_specs(base: Message, olds: Mapping[str, Message], news: Mapping[str, Message]) -> Message:
    """Return the spec of an update: `base` as it was fetched, with the fields of `news`.

    Fields that `olds` has and `news` lacks are reset. All others are kept: an update resets every field that it leaves
    at its default (header X-ResetMask), so it must start from the fetched spec.
    """
    cls = type(base)
    return cls.from_json(
        json.dumps(_overlaid(cls, to_full_json(base), with_whole_numbers(olds), with_whole_numbers(news)))
    )


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
        old, fetched = olds.get(name) if isinstance(olds, Mapping) else None, base.get(name)
        if isinstance(value, Mapping) and isinstance(fetched, Mapping) and field.message and not field.map:
            result[name] = _overlaid(_class_of(field), dict(fetched), old, value)
        elif isinstance(value, list) and isinstance(fetched, list):
            # Items that agree with a fetched one have the fields that the API filled in.
            others = list(fetched)
            matches = [_take_match(item, others) for item in value]
            result[name] = [item if match is None else match for item, match in zip(value, matches, strict=True)]
        else:
            result[name] = value
    return result


def _fields(cls: Message) -> dict[str, Message]:
    return {field.proto_name: field for field in cls.__FIELDS__}


def _class_of(field: Message) -> Message:
    return type(field.codec.default())


def with_whole_numbers(value: Message) -> Message:
    """Return a value with whole numbers as int, because all numbers of a state are floating-point numbers."""
    if isinstance(value, Mapping):
        return {str(name): with_whole_numbers(member) for name, member in value.items() if member is not None}
    if isinstance(value, (list, tuple)):
        return [with_whole_numbers(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
