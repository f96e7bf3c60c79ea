"""Lookups in the models: the section at a place of the file, and the docstrings of its keys."""

import ast
import inspect
import textwrap
import types
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from cluster.config.section import Section, Slurm, metadata
from cluster.findings import Location, flow

MEMBER = ".*"
"""Stands in a pattern for a name that the file's author chose."""


def section_at(root: type[Section], location: Location) -> type[Section] | None:
    """The section whose keys stand at a location below `root`; None where there is none."""
    current: list[Any] = [root]
    for step in location:
        current = [form for one in current for form in _forms(_below(one, step))]
    return next((one for one in current if isinstance(one, type) and issubclass(one, Section)), None)


def _below(kind: Any, step: str | int) -> Any:  # noqa: ANN401 - annotations are of any type
    """The type at a key or a position of a value of a type; None where there is none."""
    if isinstance(kind, type) and issubclass(kind, Section):
        field = kind.model_fields.get(str(step))
        return field and unwrap(field.annotation)
    return _member(kind)


def _forms(kind: Any) -> Iterator[Any]:  # noqa: ANN401 - annotations are of any type
    """The types of a union, such as that of a field with two forms; of every other type itself."""
    if get_origin(kind) in (Union, types.UnionType):
        for one in get_args(kind):
            yield from _forms(unwrap(one))
    elif kind is not None:
        yield kind


def patterns(section: type[Section], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every field of a section and of those below it, by its pattern: `users.*.uid` for any user's."""
    for key, info in section.model_fields.items():
        here, below = f"{above}{key}", member_section(info)
        yield here, info
        if below:
            yield from patterns(below, f"{here}{MEMBER}.")
        elif is_section(info.annotation):
            yield from patterns(unwrap(info.annotation), f"{here}.")


def edit_patterns(section: type[Section]) -> Iterator[str]:
    """Patterns of what an edit can be of: a field with a value, a section or a member that is added or removed."""
    for pattern, info in patterns(section):
        if pattern.endswith(f"{MEMBER}.name"):
            continue  # another name is another member
        if member_section(info):
            yield f"{pattern}{MEMBER}"
        elif is_section(info.annotation):
            if is_optional(info.annotation):
                yield pattern
        else:
            yield pattern + (MEMBER if get_origin(unwrap(info.annotation)) is Mapping else "")


@cache
def conf_fields(model: type[Section]) -> tuple[tuple[str, Slurm], ...]:
    """Dotted path of every field that sets a parameter of slurm.conf, and the parameter; members have other lines."""
    return tuple(
        (pattern, slurm)
        for pattern, info in patterns(model)
        if MEMBER not in pattern and (slurm := metadata(info, Slurm))
    )


def member_section(info: FieldInfo) -> type[Section] | None:
    """The section of each member, where a field holds a mapping or a list of sections."""
    kind = unwrap(info.annotation)
    found = _member(kind) if get_origin(kind) in (tuple, dict, Mapping) else None
    return found if is_section(found) else None


def is_section(annotation: Any) -> bool:  # noqa: ANN401 - annotations are of any type
    """Return whether a field holds a section whose fields are edited one by one."""
    kind = unwrap(annotation)
    return isinstance(kind, type) and issubclass(kind, Section) and not kind.one_value


def unwrap(annotation: Any) -> Any:  # noqa: ANN401 - annotations are of any type
    """The type behind Annotated and `| None`."""
    if get_origin(annotation) is Annotated:
        return unwrap(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        present = [arg for arg in get_args(annotation) if arg is not type(None)]
        return unwrap(present[0]) if len(present) == 1 else annotation
    return annotation


def is_optional(annotation: Any) -> bool:  # noqa: ANN401 - annotations are of any type
    """Return whether a key may be left out, so that there is nothing of its kind."""
    if get_origin(annotation) is Annotated:
        return is_optional(get_args(annotation)[0])
    return type(None) in get_args(annotation)


def _member(annotation: Any) -> Any:  # noqa: ANN401 - annotations are of any type
    arguments = get_args(annotation)
    if not arguments:
        return None
    is_mapping = get_origin(annotation) in (dict, Mapping)
    return unwrap(arguments[1] if is_mapping else arguments[0])


def explicit(section: Section, key: str) -> Any:  # noqa: ANN401 - a field may be anything
    """The value of a field, unless it is the default; None otherwise."""
    value = getattr(section, key)
    default = type(section).model_fields[key].get_default(call_default_factory=True, validated_data={})
    return None if value == default else value


def as_written(value: Any) -> str:  # noqa: ANN401 - a field may be anything
    """A value as the file has it."""
    if isinstance(value, Section):
        value = value.model_dump(exclude_none=True, exclude_defaults=True)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(as_written, value)) + "]"
    return flow(value)


def description(root: type[Section], location: Location) -> str:
    """The models' text about the key at a location, with an example if they have one."""
    section = section_at(root, location[:-1])
    field = section.model_fields.get(str(location[-1])) if section and location else None
    if section is None or field is None:
        return ""
    text = " ".join((field.description or texts(section).get(str(location[-1]), "")).split())
    return f"{text.rstrip('.')}, e.g. {flow(field.examples[0])}" if field.examples else text


@cache
def texts(section: type[Section]) -> dict[str, str]:
    """The text under each field of a section and of those that it is derived from, by the field's name.

    Read from the source when it is asked for, which is when something is wrong or the schema is written: pydantic would
    do it for every class at every start, which takes a tenth of a second.
    """
    found: dict[str, str] = {}
    for kind in reversed(section.__mro__):
        if issubclass(kind, Section) and kind is not Section:
            found |= _under_fields(kind)
    return found


def _under_fields(kind: type) -> dict[str, str]:
    try:
        source = inspect.getsource(kind)
    except OSError:
        return {}  # derived by cluster.load
    (definition,) = ast.parse(textwrap.dedent(source)).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
