"""What differs between two configurations of one cluster, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from cluster.config.fields import is_optional, unwrap
from cluster.config.section import Section
from cluster.platforms.local.address_plan import plan

if TYPE_CHECKING:
    from cluster.config.cluster import ClusterConfig

Path = tuple[str, ...]
NAMED = "*"
"""Stands in a pattern for a name that the file's author chose."""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One field that differs; what came or went whole, such as a nodeset, a user or a file system, is one edit."""

    path: Path
    """Keys below hpc:cluster, such as (users, alice, uid): members of lists go by their name."""
    pattern: str
    """The same for every name: `users.*.uid`."""
    old: Any
    """None where there was nothing."""
    new: Any
    """None where there is nothing now."""
    before: ClusterConfig
    after: ClusterConfig

    @property
    def dotted(self) -> str:
        """The path as one text; the provider's own settings as the stack file has them: `gcp:zone`."""
        return (":" if self.path[0] == "gcp" else ".").join(self.path)

    @property
    def name(self) -> str:
        """The name that the author chose for what the field belongs to, such as the partition's."""
        return self.path[self.pattern.split(".").index(NAMED)]


def edits(before: ClusterConfig, after: ClusterConfig) -> list[Edit]:
    """Every field that differs, in the order of the models."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    whole = {key for key in old.keys() ^ new.keys() if isinstance(old.get(key, new.get(key)), Section)}
    found = [
        Edit(path=path, pattern=pattern, old=old.get(key), new=new.get(key), before=before, after=after)
        for key in {**old, **new}
        for path, pattern in [key]
        if _differs(old.get(key), new.get(key))
        and not any(path[: len(above)] == above and path != above for above, _ in whole)
    ]
    return found + _moved(before, after, found)


def _differs(old: Any, new: Any) -> bool:  # noqa: ANN401 - a field may be anything
    """Sections that are on both sides are told of by their own fields."""
    told_by_fields = isinstance(old, Section) and isinstance(new, Section) and not old.one_value
    return old != new and not told_by_fields


def _leaves(section: Section, path: Path = (), pattern: Path = ()) -> Iterator[tuple[tuple[Path, str], Any]]:
    """Path and pattern, and the value: of each field, each section that can come and go, each key of a mapping."""
    for key, field in type(section).model_fields.items():
        value, at, like = getattr(section, key), (*path, key), (*pattern, key)
        named = _named(value, field.annotation)
        if isinstance(value, Section) and not value.one_value:
            if is_optional(field.annotation):
                yield (at, ".".join(like)), value
            yield from _leaves(value, at, like)
        elif named is not None:
            for name, one in named.items():
                yield ((*at, name), ".".join((*like, NAMED))), one
                if isinstance(one, Section):
                    yield from _leaves(one, (*at, name), (*like, NAMED))
        elif not (value is None and _is_section(field.annotation)) and not (key == "name" and pattern[-1:] == (NAMED,)):
            yield (at, ".".join(like)), value


def _named(value: Any, annotation: Any) -> Mapping[str, Any] | None:  # noqa: ANN401 - a field may be anything
    """A mapping as it is, a list of sections by their names; None for every other value."""
    if isinstance(value, Mapping):
        return value
    members = get_args(unwrap(annotation))
    if isinstance(value, tuple) and members and _is_section(members[0]):
        return {one.name: one for one in value}
    return None


def _is_section(annotation: Any) -> bool:  # noqa: ANN401 - annotations are of any type
    """Whether a field that says nothing would hold a section with edits of its own if it said something."""
    kind = unwrap(annotation)
    return isinstance(kind, type) and issubclass(kind, Section) and not kind.one_value


def _moved(before: ClusterConfig, after: ClusterConfig, found: list[Edit]) -> list[Edit]:
    """The order of the nodesets, where it alone gives nodes other addresses or topology.conf another line."""
    told = {"platform", "name", "network.cidr", "nodesets.*.addresses"}
    if before.platform != "local" or any(edit.pattern in told for edit in found):
        return []
    old, new = list(before.nodesets), list(after.nodesets)
    staying = [name for name in old if name in after.nodesets]
    same_order = staying == [name for name in new if name in before.nodesets]
    was, now = plan(before).of, plan(after).of
    if same_order and all(now.get(name, address) == address for name, address in was.items()):
        return []
    return [Edit(path=("nodesets",), pattern="nodesets", old=tuple(old), new=tuple(new), before=before, after=after)]
