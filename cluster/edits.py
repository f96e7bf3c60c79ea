"""Edits: the fields in which two configurations of one cluster differ; and rules, from an edit to its impact."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from cluster.config.cluster import ClusterConfig
from cluster.config.fields import is_optional, is_section, member_section
from cluster.config.impact_annotations import Effect, Impact
from cluster.config.section import Section
from cluster.findings import PROVIDERS

Path = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A field whose value differs. Adding or removing a member (a nodeset, a user, a file system) is one edit."""

    path: Path
    """Keys below hpc:cluster, such as (users, alice, uid): members of lists go by their name."""
    pattern: str
    """The field for every name: `users.*.uid`."""
    old: Any
    """The value before; None where there was nothing."""
    new: Any
    """The value after; None where there is nothing now."""
    before: ClusterConfig
    after: ClusterConfig

    @property
    def dotted(self) -> str:
        """The path as text, `users.alice.uid`; settings of a provider as stack files have them, `gcp:zone`."""
        return (":" if self.path[0] in PROVIDERS else ".").join(self.path)

    @property
    def name(self) -> str:
        """The name of the member that the field belongs to, such as that of the partition."""
        return self.path[self.pattern.split(".").index("*")]


def edits(before: ClusterConfig, after: ClusterConfig) -> list[Edit]:
    """Return the edits between two configurations, in the order of the models."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    fields = {**old, **new}
    added_or_removed = {key[0] for key in old.keys() ^ new.keys() if isinstance(fields[key], Section)}
    return [
        Edit(path=path, pattern=pattern, old=old.get(key), new=new.get(key), before=before, after=after)
        for key in fields
        for path, pattern in [key]
        if _differs(old.get(key), new.get(key))
        and not any(path[: len(above)] == above and path != above for above in added_or_removed)
    ]


def _differs(old: Any, new: Any) -> bool:  # noqa: ANN401 - a field may be anything
    """Return whether a value differs. Two sections do not: their fields are compared one by one."""
    by_fields = isinstance(old, Section) and isinstance(new, Section) and not old.one_value
    return old != new and not by_fields


def _leaves(section: Section, path: Path = (), pattern: Path = ()) -> Iterator[tuple[tuple[Path, str], Any]]:
    """Yield path, pattern and value of each field, each optional section and each key of a mapping."""
    for key, field in type(section).model_fields.items():
        value, field_path, field_pattern = getattr(section, key), (*path, key), (*pattern, key)
        members = _members(value, field)
        if isinstance(value, Section) and not value.one_value:
            if is_optional(field.annotation):
                yield (field_path, ".".join(field_pattern)), value
            yield from _leaves(value, field_path, field_pattern)
        elif members is not None:
            for name, member in members.items():
                yield ((*field_path, name), ".".join((*field_pattern, "*"))), member
                if isinstance(member, Section):
                    yield from _leaves(member, (*field_path, name), (*field_pattern, "*"))
        elif not (value is None and is_section(field.annotation)) and not (key == "name" and pattern[-1:] == ("*",)):
            yield (field_path, ".".join(field_pattern)), value


def _members(value: Any, info: FieldInfo) -> Mapping[str, Any] | None:  # noqa: ANN401 - a field may be anything
    """Return the members of a mapping, or of a list of sections by name; None for any other value."""
    if isinstance(value, Mapping):
        return value
    return {member.name: member for member in value} if member_section(info) else None


@dataclass(frozen=True, eq=False)
class ImpactRule:
    """A function that returns the impact of an edit of a field, where the impact depends on the values."""

    find: Callable[[Edit], Impact | None]
    possible: tuple[Effect, ...]
    """The effects that it can return, for the reference pages."""

    def __call__(self, edit: Edit) -> Impact | None:
        """Return the impact; None if the edit changes nothing."""
        return self.find(edit)


def rule(*possible: Effect) -> Callable[[Callable[[Edit], Impact | None]], ImpactRule]:
    """Return a decorator that makes a function a rule with these possible effects."""
    return lambda find: ImpactRule(find, possible)
