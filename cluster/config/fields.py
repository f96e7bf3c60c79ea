"""Lookups in the models: the section at a place of the file, patterns of fields, and the docstrings of keys."""

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
"""In a pattern, a name that the file's author chose."""


def section_at(root: type[Section], location: Location) -> type[Section] | None:
    """Return the section whose keys are at a location below `root`; None if there is none."""
    current: list[Any] = [root]
    for step in location:
        current = [form for kind in current for form in _forms(_type_below(kind, step))]
    return next((kind for kind in current if isinstance(kind, type) and issubclass(kind, Section)), None)


def _type_below(kind: Any, step: str | int) -> Any:  # noqa: ANN401 - annotations are of any type
    """Return the type at a key, or a position, of values of a type; None if there is none."""
    if isinstance(kind, type) and issubclass(kind, Section):
        field = kind.model_fields.get(str(step))
        return field and unwrap(field.annotation)
    return _member(kind)


def _forms(kind: Any) -> Iterator[Any]:  # noqa: ANN401 - annotations are of any type
    """Yield the types of a union, such as that of a field with two forms, or else the type itself."""
    if get_origin(kind) in (Union, types.UnionType):
        for member in get_args(kind):
            yield from _forms(unwrap(member))
    elif kind is not None:
        yield kind


def patterns(section: type[Section], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield the fields of a section and of those below it, each with its pattern: `users.*.uid` for any user's uid."""
    for key, info in section.model_fields.items():
        pattern, member = f"{above}{key}", member_section(info)
        yield pattern, info
        if member:
            yield from patterns(member, f"{pattern}{MEMBER}.")
        elif is_section(info.annotation):
            yield from patterns(unwrap(info.annotation), f"{pattern}.")


def edit_patterns(section: type[Section]) -> Iterator[str]:
    """Yield the patterns that an edit can have: those of fields with a value, and of sections and members, which can be
    added or removed."""
    for pattern, info in patterns(section):
        if pattern.endswith(f"{MEMBER}.name"):
            continue  # with another name it is another member
        if member_section(info):
            yield f"{pattern}{MEMBER}"
        elif is_section(info.annotation):
            if is_optional(info.annotation):
                yield pattern
        else:
            yield pattern + (MEMBER if get_origin(unwrap(info.annotation)) is Mapping else "")


@cache
def conf_fields(model: type[Section]) -> tuple[tuple[str, Slurm], ...]:
    """Return dotted path and parameter of every field that sets one of slurm.conf. Members are left out, because they
    set parameters of other lines."""
    return tuple(
        (pattern, slurm)
        for pattern, info in patterns(model)
        if MEMBER not in pattern and (slurm := metadata(info, Slurm))
    )


def member_section(info: FieldInfo) -> type[Section] | None:
    """Return the section of the members, if a field is a mapping or a list of sections."""
    kind = unwrap(info.annotation)
    member = _member(kind) if get_origin(kind) in (tuple, dict, Mapping) else None
    return member if is_section(member) else None


def is_section(annotation: Any) -> bool:  # noqa: ANN401 - annotations are of any type
    """Return whether a type is a section whose fields are edited one by one."""
    kind = unwrap(annotation)
    return isinstance(kind, type) and issubclass(kind, Section) and not kind.one_value


def unwrap(annotation: Any) -> Any:  # noqa: ANN401 - annotations are of any type
    """Return the type without Annotated and `| None`."""
    if get_origin(annotation) is Annotated:
        return unwrap(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        present = [arg for arg in get_args(annotation) if arg is not type(None)]
        return unwrap(present[0]) if len(present) == 1 else annotation
    return annotation


def is_optional(annotation: Any) -> bool:  # noqa: ANN401 - annotations are of any type
    """Return whether a type allows None."""
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
    """Return the value of a field; None if it is the default."""
    value = getattr(section, key)
    default = type(section).model_fields[key].get_default(call_default_factory=True, validated_data={})
    return None if value == default else value


def as_written(value: Any) -> str:  # noqa: ANN401 - a field may be anything
    """Return a value as text, in the form that it has in a file."""
    if isinstance(value, Section):
        value = value.model_dump(exclude_none=True, exclude_defaults=True)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(as_written, value)) + "]"
    return flow(value)


def description(root: type[Section], location: Location) -> str:
    """Return the description of the key at a location, with an example if it has one."""
    section = section_at(root, location[:-1])
    field = section.model_fields.get(str(location[-1])) if section and location else None
    if section is None or field is None:
        return ""
    text = " ".join((field.description or texts(section).get(str(location[-1]), "")).split())
    return f"{text.rstrip('.')}, e.g. {flow(field.examples[0])}" if field.examples else text


@cache
def texts(section: type[Section]) -> dict[str, str]:
    """Return the docstrings under the fields of a section and of its base classes, by the field's name.

    They are read from the source when they are needed, for errors and for the schema. pydantic would read them for
    every class at every start, which takes a tenth of a second.
    """
    docstrings: dict[str, str] = {}
    for kind in reversed(section.__mro__):
        if issubclass(kind, Section) and kind is not Section:
            docstrings |= _under_fields(kind)
    return docstrings


def _under_fields(kind: type) -> dict[str, str]:
    """Return the docstrings under the fields in the source of one class."""
    try:
        source = inspect.getsource(kind)
    except OSError:
        return {}  # a class without source, which cluster.load has derived
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
