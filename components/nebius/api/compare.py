"""Compares specs in the API's JSON form, without the SDK: a preview compares, and imports no client."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MAPS = frozenset({"labels", "set"})
"""Fields that are maps: an empty one is the same as none, while an empty message is a choice."""


def canonical(value: Any) -> Any:  # noqa: ANN401
    """A value in which equal settings are equal: no absent or default fields, whole numbers as int, lists in one order.

    64-bit integers are text in JSON, so a text of digits is compared as its number. An empty message is kept: it is
    not the same as none.
    """
    if isinstance(value, Mapping):
        fields = {str(name): canonical(one) for name, one in value.items()}
        return {name: one for name, one in fields.items() if one or (one == {} and name not in MAPS)}
    if isinstance(value, (list, tuple)):
        return sorted((canonical(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True, default=str))
    if isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 and str(int(value)) == value:
        return int(value)
    return value


def same(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Whether both say the same."""
    return canonical({"": one}) == canonical({"": other})


def at(spec: Any, path: str) -> Any:  # noqa: ANN401
    """What is at a dotted path, or None."""
    for name in path.split("."):
        spec = spec.get(name) if isinstance(spec, Mapping) else None
    return spec


def differing(olds: Any, news: Any, paths: Iterable[str]) -> list[str]:  # noqa: ANN401
    """Which of the dotted paths differ."""
    return [path for path in paths if not same(at(olds, path), at(news, path))]


def observed(wanted: Any, seen: Any, keep: Iterable[str] = ()) -> Any:  # noqa: ANN401
    """The spec as it is now, of the fields that the stack sets: what the API filled in by itself is no difference.

    `keep` are names of fields that the API does not return: they stay as they are. Fields that agree keep the stack's
    notation.
    """
    if same(wanted, seen):
        return wanted
    if isinstance(wanted, Mapping) and isinstance(seen, Mapping):
        kept = frozenset(keep)
        return {name: one if name in kept else observed(one, seen.get(name), kept) for name, one in wanted.items()}
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
