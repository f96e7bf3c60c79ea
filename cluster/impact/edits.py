"""Edits: the fields in which two configurations of one cluster differ; and rules, from an edit to its impact."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from cluster.config.cluster import ClusterConfig
from cluster.config.fields import is_optional, is_section, member_section
from cluster.config.impact import Effect, Impact
from cluster.config.section import Section
from cluster.findings import PROVIDERS

Path = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A field that differs; a member added or removed, such as a nodeset, a user or a file system, is one edit."""

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
        """The path as one text; the provider's own settings as the stack file has them: `gcp:zone`."""
        return (":" if self.path[0] in PROVIDERS else ".").join(self.path)

    @property
    def name(self) -> str:
        """The name that the author chose for what the field belongs to, such as the partition's."""
        return self.path[self.pattern.split(".").index("*")]


def edits(before: ClusterConfig, after: ClusterConfig) -> list[Edit]:
    """Every field that differs, in the order of the models."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    whole = {key for key in old.keys() ^ new.keys() if isinstance(old.get(key, new.get(key)), Section)}
    return [
        Edit(path=path, pattern=pattern, old=old.get(key), new=new.get(key), before=before, after=after)
        for key in {**old, **new}
        for path, pattern in [key]
        if _differs(old.get(key), new.get(key))
        and not any(path[: len(above)] == above and path != above for above, _ in whole)
    ]


def _differs(old: Any, new: Any) -> bool:  # noqa: ANN401 - a field may be anything
    """Sections that are on both sides are compared by their own fields."""
    by_fields = isinstance(old, Section) and isinstance(new, Section) and not old.one_value
    return old != new and not by_fields


def _leaves(section: Section, path: Path = (), pattern: Path = ()) -> Iterator[tuple[tuple[Path, str], Any]]:
    """Path and pattern, and the value: of each field, each section that can come and go, each key of a mapping."""
    for key, field in type(section).model_fields.items():
        value, at, like = getattr(section, key), (*path, key), (*pattern, key)
        named = _named(value, field)
        if isinstance(value, Section) and not value.one_value:
            if is_optional(field.annotation):
                yield (at, ".".join(like)), value
            yield from _leaves(value, at, like)
        elif named is not None:
            for name, one in named.items():
                yield ((*at, name), ".".join((*like, "*"))), one
                if isinstance(one, Section):
                    yield from _leaves(one, (*at, name), (*like, "*"))
        elif not (value is None and is_section(field.annotation)) and not (key == "name" and pattern[-1:] == ("*",)):
            yield (at, ".".join(like)), value


def _named(value: Any, info: FieldInfo) -> Mapping[str, Any] | None:  # noqa: ANN401 - a field may be anything
    """A mapping as it is, a list of sections by their names; None for every other value."""
    if isinstance(value, Mapping):
        return value
    return {member.name: member for member in value} if member_section(info) else None


@dataclass(frozen=True, eq=False)
class Rule:
    """The impact of an edit of a field, where that depends on the values."""

    find: Callable[[Edit], Impact | None]
    possible: tuple[Effect, ...]
    """The possible effects, for whoever reads before there is an edit."""

    def __call__(self, edit: Edit) -> Impact | None:
        """The impact; None of an edit that changes nothing."""
        return self.find(edit)


def rule(*possible: Effect) -> Callable[[Callable[[Edit], Impact | None]], Rule]:
    """Make a function a rule, which may come to these effects."""
    return lambda find: Rule(find, possible)
