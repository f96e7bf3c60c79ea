"""Updates as the API makes them: a field changes if the request sets it, or the header X-ResetMask names it.

Fields of a list are changed item by item, maps as a whole (the API's own rules, facts of its update method).
"""

from collections.abc import Mapping
from typing import Any

HEADER = "x-resetmask"


def parse(text: str) -> Any:  # noqa: ANN401
    """The mask of a header, or None."""
    from nebius.base.fieldmask import Mask

    return Mask.unmarshal(text) if text else None


def part(mask: Any, name: str) -> Any | None:  # noqa: ANN401
    """What a mask says of a field, or None if it does not name it."""
    if mask is None:
        return None
    return next((inner for key, inner in mask.field_parts.items() if str(key) == name), mask.any)


def updated(cls: Any, old: Mapping[str, Any], given: Mapping[str, Any], mask: Any) -> dict[str, Any]:  # noqa: ANN401
    """The JSON of a message of that class after an update with `given`."""
    fields = {field.proto_name: field for field in cls.__FIELDS__}
    result = dict(old)
    for name, field in fields.items():
        inner = part(mask, name)
        if name not in given:
            if inner is not None:
                result.pop(name, None)
            continue
        if field.oneof:
            for other in fields.values():
                if other.oneof == field.oneof:
                    result.pop(other.proto_name, None)
        result[name] = _value(field, old.get(name), given[name], inner)
    return result


def _value(field: Any, old: Any, given: Any, mask: Any) -> Any:  # noqa: ANN401
    if field.map or not field.message:
        return given
    cls = type(field.codec.default())
    if isinstance(given, list):
        before = old if isinstance(old, list) else []
        each = part(mask, "*") if mask is not None and mask.any is None else getattr(mask, "any", None)
        return [
            updated(cls, before[index], one, each) if index < len(before) and isinstance(one, dict) else one
            for index, one in enumerate(given)
        ]
    if isinstance(given, dict):
        return updated(cls, old if isinstance(old, dict) else {}, given, mask)
    return given
