"""Finding one's way in the models: which section stands at a place of the file, and what it says of its keys."""

import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from cluster.config.cluster import ClusterConfig
from cluster.config.docstrings import texts
from cluster.config.section import Section
from cluster.findings import Location, flow


def section_at(location: Location) -> type[Section] | None:
    """The section whose keys stand at a location; None where there is none."""
    current: Any = ClusterConfig
    for step in location:
        if isinstance(current, type) and issubclass(current, Section):
            field = current.model_fields.get(str(step))
            if field is None:
                return None
            current = unwrap(field.annotation)
        else:
            current = _member(current)
    return current if isinstance(current, type) and issubclass(current, Section) else None


def unwrap(annotation: Any) -> Any:  # noqa: ANN401 - annotations are of any type
    """The type behind Annotated and `| None`."""
    if get_origin(annotation) is Annotated:
        return unwrap(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        present = [one for one in get_args(annotation) if one is not type(None)]
        return unwrap(present[0]) if len(present) == 1 else annotation
    return annotation


def is_optional(annotation: Any) -> bool:  # noqa: ANN401 - annotations are of any type
    """Whether a key may be left out, so that there is nothing of its kind."""
    if get_origin(annotation) is Annotated:
        return is_optional(get_args(annotation)[0])
    return type(None) in get_args(annotation)


def _member(annotation: Any) -> Any:  # noqa: ANN401 - annotations are of any type
    """What stands in a list or under a key of a mapping."""
    arguments = get_args(annotation)
    if not arguments:
        return None
    is_mapping = get_origin(annotation) in (dict, Mapping)
    return unwrap(arguments[1] if is_mapping else arguments[0])


def description(location: Location) -> str:
    """What the models say of the key at a location, with an example if they have one."""
    section = section_at(location[:-1])
    field = section.model_fields.get(str(location[-1])) if section and location else None
    if section is None or field is None:
        return ""
    text = " ".join((field.description or texts(section).get(str(location[-1]), "")).split())
    return f"{text.rstrip('.')}, e.g. {flow(field.examples[0])}" if field.examples else text
