"""Fields and sections that not all platforms have, where the stack's does not."""

from collections.abc import Iterator
from typing import Any

from cluster.config.cluster import ClusterConfig
from cluster.config.section import Section
from cluster.findings import Finding, Location, flow
from cluster.platforms import registry
from cluster.platforms.base import Platform


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    platform, everyone = registry.get(config.platform), registry.all_platforms()
    for at, section in _sections((), config):
        for key in type(section).model_fields:
            owners = [one for one in everyone if key in _fields(one, section)]
            if not owners or platform in owners or (value := given(section, key)) is None:
                continue
            yield Finding(
                id="platform-field",
                at=(*at, key),
                given=shown(value),
                allowed=f"nothing on {platform.name}: {key} is for {' and '.join(one.title for one in owners)}",
                todo=platform.instead.get(key, "remove it here"),
            )


def _fields(platform: Platform, section: Section) -> frozenset[str]:
    """The fields of a section that only some platforms have, this one among them."""
    own = frozenset(platform.sections) if isinstance(section, ClusterConfig) else frozenset[str]()
    return own.union(*(keys for kind, keys in platform.fields.items() if isinstance(section, kind)))


def _sections(at: Location, section: Section) -> Iterator[tuple[Location, Section]]:
    """A section and those below it, by their place; without lists, whose sections are alike on all platforms."""
    yield at, section
    for key, value in section:
        members = value.items() if isinstance(value, dict) else [(None, value)]
        for name, one in members:
            if isinstance(one, Section):
                yield from _sections((*at, key) if name is None else (*at, key, name), one)


def given(section: Section, key: str) -> Any:  # noqa: ANN401 - a field may be anything
    """The value of a field, unless it is the default; None otherwise."""
    value = getattr(section, key)
    default = type(section).model_fields[key].get_default(call_default_factory=True, validated_data={})
    return None if value == default else value


def shown(value: Any) -> str:  # noqa: ANN401 - a field may be anything
    """A value as the file has it."""
    if isinstance(value, Section):
        value = value.model_dump(exclude_none=True, exclude_defaults=True)
    if isinstance(value, tuple):
        return "[" + ", ".join(map(shown, value)) + "]"
    return flow(value)
