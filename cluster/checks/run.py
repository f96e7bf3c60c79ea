"""All checks of a configuration: those of every platform, and those of the stack's own."""

from collections.abc import Iterator

from cluster.catalog.bounds import MOST_NODES
from cluster.checks import machines, scripts, settings, users
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import given, shown
from cluster.config.section import Section
from cluster.findings import Finding, Location
from cluster.platforms import registry
from cluster.platforms.base import Platform


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    yield from machines.count_errors(config)
    if machines.count_nodes(config) > MOST_NODES:
        return  # the other rules list machines, which takes a while where nobody meant so many
    yield from registry.get(config.platform).checks(config)
    yield from _platform_fields(config)
    for rules in (machines, users, settings, scripts):
        yield from rules.find_errors(config)


def find_warnings(config: ClusterConfig) -> list[Finding]:
    """Warnings of a configuration without errors: every preview and `up` shows them."""
    return [
        *scripts.find_warnings(config),
        *users.find_warnings(config),
        *settings.find_warnings(config),
        *scripts.find_warm_up_warnings(config),
        *registry.get(config.platform).warnings(config),
    ]


def _platform_fields(config: ClusterConfig) -> Iterator[Finding]:
    platform, everyone = registry.get(config.platform), registry.all_platforms()
    for at, section in _sections((), config):
        for key in type(section).model_fields:
            owners = [owner for owner in everyone if key in _own_fields(owner, section)]
            if not owners or platform in owners or (value := given(section, key)) is None:
                continue
            yield Finding(
                id="platform-field",
                at=(*at, key),
                given=shown(value),
                allowed=f"nothing on {platform.name}: {key} is for {' and '.join(owner.title for owner in owners)}",
                todo=platform.instead.get(key, "remove it here"),
            )


def _own_fields(platform: Platform, section: Section) -> frozenset[str]:
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
